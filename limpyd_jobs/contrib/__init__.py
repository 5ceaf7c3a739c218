"""Integrations: parts that other systems plug in. Each is an extra, and imports only what the reference documents."""
