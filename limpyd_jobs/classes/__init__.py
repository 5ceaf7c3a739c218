"""Resolving the classes that are stored by their paths, and binding models to databases."""
