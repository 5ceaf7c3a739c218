"""The functions that version 2 has here."""

from limpyd_jobs.classes.imports import import_class
from limpyd_jobs.dates import compute_delayed_until, datetime_to_score, get_delta

__all__ = ["compute_delayed_until", "datetime_to_score", "get_delta", "import_class"]
