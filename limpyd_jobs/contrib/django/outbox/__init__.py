"""An outbox for Django: jobs are written to the database, in the transaction, and added once it is committed.

>>> INSTALLED_APPS = [..., "limpyd_jobs.contrib.django", "limpyd_jobs.contrib.django.outbox"]
"""
