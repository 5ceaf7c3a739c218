"""Which functions data may name: those that the source of a module makes jobs with our decorator, and no others."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from cases import each
from running import work

from limpyd_jobs import Job, Queue
from limpyd_jobs.classes.job_classes import resolve_path
from limpyd_jobs.classes.sources import defines_job_function
from limpyd_jobs.models import job_classes

TRACE = "open(__file__ + '.imported', 'w').close()\n"

JOBS = {
    "the decorator": "from limpyd_jobs import job\n@job\ndef task(): ...",
    "the decorator with options": "from limpyd_jobs import job\n@job(queue='a')\ndef task(): ...",
    "of the package": "import limpyd_jobs\n@limpyd_jobs.job\ndef task(): ...",
    "of the package, with options": "import limpyd_jobs.models\n@limpyd_jobs.job(queue='a')\ndef task(): ...",
    "under another name": "from limpyd_jobs import job as task_of\n@task_of\ndef task(): ...",
    "of the package under another name": "import limpyd_jobs as lj\n@lj.job()\ndef task(): ...",
    "with all": "from limpyd_jobs import *\n@job\ndef task(): ...",
    "above others": "from limpyd_jobs import job\nfrom functools import lru_cache\n@job\n@lru_cache\ndef task(): ...",
    "of its own name": "from limpyd_jobs import job as task\n@task\ndef task(): ...",
    "in a condition": "from limpyd_jobs import job\nif True:\n    @job\n    def task(): ...\nelse:\n    task = None",
}

NO_JOBS = {
    "a plain function": "def task(): ...",
    "another decorator": "from functools import cache\n@cache\ndef task(): ...",
    "another one of its name": "def job(f): return f\n@job\ndef task(): ...",
    "one that is bound anew": "from limpyd_jobs import job\njob = staticmethod\n@job\ndef task(): ...",
    "one that is imported later": "def job(f): return f\n@job\ndef task(): ...\nfrom limpyd_jobs import job",
    "one of a module of the application": "from functions_helper import job\n@job\ndef task(): ...",
    "one of a module below ours": "from limpyd_jobs.models import job\n@job\ndef task(): ...",
    "one that is relative": "from .limpyd_jobs import job\n@job\ndef task(): ...",
    "one that is made": "from limpyd_jobs import job\nmails = job(queue='a')\n@mails\ndef task(): ...",
    "another of ours": "from limpyd_jobs import Retry\n@Retry\ndef task(): ...",
    "in a function": "from limpyd_jobs import job\ndef outer():\n    @job\n    def task(): ...",
    "in a class": "from limpyd_jobs import job\nclass Outer:\n    @job\n    def task(): ...",
    "in the program": "from limpyd_jobs import job\nif __name__ == '__main__':\n    @job\n    def task(): ...",
    "for type checkers": "from limpyd_jobs import job\nif TYPE_CHECKING:\n    @job\n    def task(): ...",
    "brought in": "from limpyd_jobs import job\nfrom functions_helper import task",
    "another name of one": "from limpyd_jobs import job\n@job\ndef other(): ...\ntask = other",
    "a call": "from limpyd_jobs import job\ndef task(): ...\ntask = job(task)",
    "set by name": "from limpyd_jobs import job\n@job\ndef other(): ...\nglobals()['task'] = other",
    "bound anew": "from limpyd_jobs import job\n@job\ndef task(): ...\nfrom os import system as task",
    "deleted": "from limpyd_jobs import job\n@job\ndef task(): ...\ndel task",
    "a class": "from limpyd_jobs import job\n@job\nclass task: ...",
    "an argument of a decorator": "from limpyd_jobs import job\n@print(job)\ndef task(): ...",
    "a text": "'''\nfrom limpyd_jobs import job\n@job\ndef task(): ...\n'''",
}


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "functions_helper.py").write_text(
        f"{TRACE}from limpyd_jobs import job\n@job\ndef task() -> None: ...\n"
    )
    models = job_classes.base.database._models
    before = {*sys.modules}, {*models}
    yield
    for name in {*sys.modules} - before[0]:
        if name.startswith("functions_"):
            del sys.modules[name]
    for name in {*models} - before[1]:
        models.pop(name).abstract = True


def write(path: Path, text: str, name: str = "functions_module") -> None:
    (path / f"{name}.py").write_text(f"{TRACE}{text}\n")
    importlib.invalidate_caches()


@each("text", JOBS.values())
def test_a_function_with_our_decorator_is_found_without_an_import(tmp_path: Path, text: str) -> None:
    write(tmp_path, text)
    assert defines_job_function("functions_module", "task")
    assert [*tmp_path.glob("*.imported")] == []


@each("text", NO_JOBS.values())
def test_for_another_function_nothing_is_imported(tmp_path: Path, text: str) -> None:
    write(tmp_path, text)
    with pytest.raises(
        AttributeError,
        match="task is neither the name of a subclass of Job at the top level of its source",
    ):
        resolve_path("functions_module.task", Job)
    assert [*tmp_path.glob("*.imported")] == []


def test_what_the_source_said_is_checked_once_it_is_imported(tmp_path: Path) -> None:
    write(tmp_path, "from limpyd_jobs import job\n@job\ndef task() -> None: ...\nglobals()['task'] = print")
    with pytest.raises(ValueError, match="is not a subclass of Job"):
        resolve_path("functions_module.task", Job)


class Pretender:
    """Looks like a function that is a job."""

    job_class = Job

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


pretender = Pretender()


def plain() -> None:
    raise AssertionError


@pytest.mark.parametrize(
    "path",
    [
        f"{__name__}.plain",
        f"{__name__}.pretender",
        f"{__name__}.Pretender.job_class",
        "os.system",
        "builtins.exec",
        "subprocess.Popen",
        "functions_helper.task.job_class",
        "functions_helper.job",
        "limpyd_jobs.job",
        "limpyd_jobs.models.functions.decorator.job",
        "functions_module.outer.task",
        "functions_module.task",
    ],
)
def test_no_other_path_is_followed_for_an_ident_in_a_list(
    redis_client: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(os, "system", plain)
    write(tmp_path, "from functions_helper import task")
    queue = Queue.get_queue("queue")
    redis_client.rpush(queue.waiting.key, f"{path}:1")
    redis_client.hset(f"jobs:{path}:1:hash", mapping={"identifier": "a", "status": "w", "queued": "1"})
    Job.add_job("good", "queue")
    worker = work(max_loops=5, burst=True)
    assert Job.get("1").status.hget() == "s"
    assert worker.status == "terminated"
    assert [*tmp_path.glob("*.imported")] == []


def test_a_function_that_is_brought_in_is_found_by_its_own_path_only(tmp_path: Path) -> None:
    write(tmp_path, "from functions_helper import task")
    module = importlib.import_module("functions_module")
    assert resolve_path("functions_helper.task", Job) is module.task.job_class
    with pytest.raises(ValueError, match=r"is not the path of a job, but another name of functions_helper\.task"):
        resolve_path("functions_module.task", Job)


def test_only_allowed_modules_are_followed(tmp_path: Path) -> None:
    job_classes.allow("functions_other")
    try:
        with pytest.raises(ImportError, match="in none of the modules that jobs may come from"):
            job_classes.resolve("functions_helper.task")
    finally:
        job_classes.allow(None)
    assert [*tmp_path.glob("*.imported")] == []
