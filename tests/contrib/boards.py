"""Boards, and flows on them, for the tests of the jobboard."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("taskflow")
from taskflow import engines, task
from taskflow.patterns import linear_flow
from taskflow.utils import persistence_utils

from limpyd_jobs import Queue
from limpyd_jobs.contrib.taskflow import LimpydJobBoard

Make = Callable[..., LimpydJobBoard]


def names(jobs: Any) -> list[str]:
    return [job.name for job in jobs]


def flow() -> linear_flow.Flow:
    return linear_flow.Flow("flow").add(task.FunctorTask(lambda: time.sleep(0.01), name="step"))


def post_flow(board: LimpydJobBoard) -> Any:
    """Post a flow that a conductor can run."""
    book, detail = persistence_utils.temporary_flow_detail(board.persistence)
    engines.save_factory_details(detail, flow, [], {}, backend=board.persistence)
    return board.post("flow", book=book, details={"flow_uuid": detail.uuid})


def queue_of(board: LimpydJobBoard) -> Queue:
    """The only queue that it has."""
    (queue,) = board.model.queue_model.get_all(board.queue_name)
    return queue


def lease_end(board: LimpydJobBoard) -> float:
    """The moment when the only claim lapses; 0 if there is none yet."""
    return max([score for _, score in queue_of(board).running.zrange(0, -1, withscores=True)], default=0)


def is_renewed(board: LimpydJobBoard) -> bool:
    """Whether a beat of its heart renews the only claim."""
    ends = queue_of(board).running.zrange(0, -1, withscores=True)
    board._session._beat()
    return queue_of(board).running.zrange(0, -1, withscores=True) != ends
