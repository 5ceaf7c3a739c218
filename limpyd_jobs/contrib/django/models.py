"""What Django's permissions and admin know of. These models have no table: what they are about is in Redis."""

from __future__ import annotations

from typing import Any

from django.db import models


class NoRows(models.Manager[Any]):
    """Finds nothing, and asks no database: ``manage.py dumpdata`` looks at all models."""

    def get_queryset(self) -> models.QuerySet[Any]:
        """Return no rows."""
        return super().get_queryset().none()


class WithoutTable(models.Model):
    """A model whose objects are in Redis."""

    objects = NoRows()

    class Meta:
        abstract = True
        managed = False
        default_permissions = ()
        base_manager_name = "objects"


class Jobs(WithoutTable):
    """The jobs. Its permissions are for all that this application shows, in the dashboard and in the admin."""

    class Meta(WithoutTable.Meta):
        verbose_name = "job"
        verbose_name_plural = "jobs"
        permissions = (
            ("view_jobs", "Can look at jobs, queues, errors and workers"),
            ("act_jobs", "Can change jobs, pause queues and quiet workers"),
            ("admin_jobs", "Can delete jobs and queues, stop workers and change schedules"),
        )


class Errors(WithoutTable):
    """What failed, by its cause."""

    class Meta(WithoutTable.Meta):
        verbose_name = "cause of errors"
        verbose_name_plural = "errors by cause"


class Queues(WithoutTable):
    """The queues."""

    class Meta(WithoutTable.Meta):
        verbose_name = "queue"
        verbose_name_plural = "queues"


class Schedules(WithoutTable):
    """The jobs that are added at set times."""

    class Meta(WithoutTable.Meta):
        verbose_name = "schedule"
        verbose_name_plural = "schedules"


class Workers(WithoutTable):
    """The workers that are there."""

    class Meta(WithoutTable.Meta):
        verbose_name = "worker"
        verbose_name_plural = "workers"
