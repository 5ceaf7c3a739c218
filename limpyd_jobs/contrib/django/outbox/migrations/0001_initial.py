"""The table of the outbox."""

from __future__ import annotations

import uuid
from typing import Any

import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    """Creates it."""

    initial = True
    dependencies: list[Any] = []
    operations = [
        migrations.CreateModel(
            name="OutboxEntry",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("token", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                ("job_class", models.CharField(max_length=500)),
                ("arguments", models.TextField()),
                ("identifier", models.CharField(blank=True, default="", max_length=200)),
                ("created", models.DateTimeField(default=django.utils.timezone.now)),
                ("due", models.DateTimeField(blank=True, db_index=True, null=True)),
                ("tries", models.PositiveIntegerField(default=0)),
                ("error", models.TextField(blank=True, default="")),
            ],
            options={"verbose_name": "entry", "verbose_name_plural": "entries", "ordering": ("id",)},
        ),
    ]
