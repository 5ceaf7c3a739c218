"""How far an act is, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime

from limpyd_jobs.contrib.web.protocol import Act, Asked, Form, Page, Plan
from limpyd_jobs.contrib.web.refusals import Refusal
from limpyd_jobs.contrib.web.tasks import Task
from limpyd_jobs.contrib.web.users import Role
from limpyd_jobs.query import Tally


@dataclass(frozen=True)
class TaskShown:
    """An act, as it was at this moment."""

    pk: str
    title: str
    user: str
    began: datetime
    looked: int
    total: int
    told: str
    is_over: bool
    tally: Tally | None
    text: str
    error: str
    back: str


def show(asked: Asked) -> TaskShown:
    task = _task_of(asked)
    is_over = task.is_over  # before the rest, which is then whole
    values = {each.name: getattr(task, each.name) for each in fields(TaskShown)}
    return TaskShown(**{**values, "user": task.user.name, "is_over": is_over})


def stop(asked: Asked, form: Form) -> Plan:
    task = _task_of(asked)

    def do(_: object) -> str:
        task.stop.set()
        return f"It ends with its present step: {task.title}"

    return Plan(f"Stop: {task.title}", do, back=f"/tasks/{task.pk}", is_short=True)


def _task_of(asked: Asked) -> Task:
    task = asked.tasks.get(asked.path["pk"])
    if task is None:
        raise Refusal(404, "This process of the dashboard does not know of that: the audit tells what was done")
    return task


PAGE = Page("/tasks/{pk}", "Progress", show, "task.html", acts=(Act("/tasks/{pk}/stop", Role.ACT, stop),))
