"""The classes that are stored by their paths, the databases that models are bound to, and awaitable methods."""
