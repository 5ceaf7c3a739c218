"""Calls of `add_job` as text: written down now, and made later, maybe by another process."""
