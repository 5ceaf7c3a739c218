"""A signal of Django."""

from django.dispatch import Signal

# Sent once a job was added that another process had written to the outbox, or this one before: with `job`.
relayed_later = Signal()
