"""A jobboard of TaskFlow: each posting is a job of a queue, of one of five priorities.

>>> board = taskflow.jobs.backends.fetch("flows", {"board": "limpyd", "url": "redis://localhost/0"})
>>> board.connect()
"""

from limpyd_jobs.contrib.taskflow.board import LimpydJobBoard
from limpyd_jobs.contrib.taskflow.job import LimpydJob
from limpyd_jobs.contrib.taskflow.records import Board, Posting, PostingError

__all__ = ["Board", "LimpydJob", "LimpydJobBoard", "Posting", "PostingError"]
