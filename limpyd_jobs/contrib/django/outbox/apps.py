"""The application of Django."""

from __future__ import annotations

from django.apps import AppConfig

from limpyd_jobs.contrib.django.outbox.relaying import RelayTask
from limpyd_jobs.integration import register_worker_task

relay_task = RelayTask()


class OutboxConfig(AppConfig):
    """Lets each worker relay what is left in the outbox."""

    name = "limpyd_jobs.contrib.django.outbox"
    label = "limpyd_jobs_outbox"
    verbose_name = "Outbox of jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Do what the class says."""
        register_worker_task(relay_task)
