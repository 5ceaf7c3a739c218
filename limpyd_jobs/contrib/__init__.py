"""Guests: parts that other systems plug in. Each is an extra, and imports only documented parts of this library."""
