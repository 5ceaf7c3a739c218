"""The models of integrations that have records in the database: the check has to know them."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import Any

from limpyd_jobs.models import BaseJobsModel

# The namespaces of LimpydJobStore and of RedisJobStore, unless they are given others.
JOB_STORES = ("apscheduler", "apscheduler.jobs")

# By name: the module, the model, the namespaces, and a key that exists if it was used.
INTEGRATIONS = {
    "apscheduler": ("limpyd_jobs.contrib.apscheduler", "ScheduledJob", JOB_STORES, "scheduledjob:collection"),
    "taskflow": ("limpyd_jobs.contrib.taskflow", "Posting", ("taskflow",), "posting:max_pk"),
}


def import_used_integrations() -> None:
    """Import the models of the integrations that have records in the database, if they can be imported."""
    client: Any = BaseJobsModel.get_connection()
    for module, name, namespaces, key in INTEGRATIONS.values():
        used = [namespace for namespace in namespaces if client.exists(f"{namespace}:{key}")]
        with suppress(ImportError):
            for namespace in used:
                model = getattr(import_module(module), name)
                model.bound_to(model.database, namespace)
