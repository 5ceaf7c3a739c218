"""What ``manage.py`` can do with the outbox."""
