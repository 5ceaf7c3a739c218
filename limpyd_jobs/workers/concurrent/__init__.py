"""Coroutines on an event loop beside the worker, and several jobs at once."""
