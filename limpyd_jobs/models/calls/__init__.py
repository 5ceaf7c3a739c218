"""Calls of `add_job`: what they say of a job that is queued already, and calls as values."""
