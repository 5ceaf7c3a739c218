"""A backend for the tasks of Django: ``django.tasks``, or, before Django 6.0, the package ``django-tasks``.

>>> TASKS = {"default": {"BACKEND": "limpyd_jobs.contrib.django.tasks.LimpydBackend"}}
"""

from limpyd_jobs.contrib.django.tasks.backend import InProcessBackend, LimpydBackend
from limpyd_jobs.contrib.django.tasks.job import TaskJob
from limpyd_jobs.contrib.django.tasks.task import LimpydTask, task

__all__ = ["InProcessBackend", "LimpydBackend", "LimpydTask", "TaskJob", "task"]
