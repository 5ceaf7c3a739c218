"""The fields of the models, and how values are stored."""
