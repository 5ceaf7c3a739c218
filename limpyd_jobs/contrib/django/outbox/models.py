"""The table of the outbox."""

from __future__ import annotations

import uuid

from django.db import models
from django.utils import timezone


class OutboxEntry(models.Model):
    """A job that is to be added. It is deleted once the job is added.

    Attributes
    ----------
    token: field
        Under which the job is added once, however often that is tried.
    job_class: field
        The path of its class.
    arguments: field
        What its ``add_job`` is given, as JSON.
    identifier: field
        The beginning of its identifier, to be shown; empty if only its class knows it.
    created: field
        When it was written.
    due: field
        From when on any process may relay it; None if it is set aside, because it cannot be relayed.
    tries: field
        How often that failed.
    error: field
        Why it failed last.
    """

    id = models.BigAutoField(primary_key=True)
    token = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    job_class = models.CharField(max_length=500)
    arguments = models.TextField()
    identifier = models.CharField(max_length=200, blank=True, default="")
    created = models.DateTimeField(default=timezone.now)
    due = models.DateTimeField(null=True, blank=True, db_index=True)
    tries = models.PositiveIntegerField(default=0)
    error = models.TextField(blank=True, default="")

    class Meta:
        ordering = ("id",)
        verbose_name = "entry"
        verbose_name_plural = "entries"

    def __str__(self) -> str:
        return f"{self.job_class} {self.identifier}".strip()

    @property
    def is_set_aside(self) -> bool:
        """Whether it is not tried again by itself."""
        return self.due is None
