"""Limits by what a job is about: how many jobs run at once, or begin in a time."""
