"""Guests: what other systems plug in. Each is an extra, and imports nothing of this library but what is documented."""
