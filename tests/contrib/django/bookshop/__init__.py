"""An application of Django, for tests."""
