"""What users do with jobs, queues, errors and workers, told the same way to redis-limpyd-jobs 2 and to ours.

A story is a function that is given a `teller.Teller`, and that uses only what version 2 has. Each is told with both
versions; afterwards everything that was said, and each key of the database, must be the same. What version 2 does
wrong, and we do not copy, is declared with the story, as patterns of what may differ there (see `compare.py`).
"""

from . import adding, fetching, hooks, queues, records, running
from .registry import STORIES, names

__all__ = ["STORIES", "adding", "fetching", "hooks", "names", "queues", "records", "running"]
