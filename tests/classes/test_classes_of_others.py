"""Whoever can write to Redis can name any code there. None of it is run, and none of ours is imported."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from inspect import isclass
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pytest
import redis
from limpyd import fields
from servers import RedisServer

import limpyd_jobs
from limpyd_jobs import Queue
from limpyd_jobs.models.job_record import JobRecord
from limpyd_jobs.records.known_classes import ERRORS, KEY, QUEUES
from limpyd_jobs.records.records import due_key
from limpyd_jobs.schedules.model import Schedule

FOREIGN = ("os.system", "subprocess.run", "subprocess.Popen", "builtins.eval", "limpyd.model.RedisModel")

COMMANDS = (
    "worker --queues=mails --burst --timeout=1",
    "check --pause=0",
    "check --repair --pause=0",
    "info",
    "errors groups",
    "jobs list",
    "jobs show IDENT",
    "jobs explain IDENT",
    "jobs requeue IDENT --yes",
    "quarantine",
    "schedules list",
    "schedules run-now PATH",
    "workers list",
)

THAT_LOOK_FOR_CLASSES = tuple(
    each for each in COMMANDS if each.split()[0] in ("worker", "schedules") or "--repair" in each or "show" in each
)

# Runs commands in one process, and says which modules of ours it imported that are for the application to import.
PROGRAM = """
import sys
from limpyd_jobs.scripts import jobs, worker

for command in sys.stdin.read().splitlines():
    name, *words = command.split()
    sys.argv = [name, *words] if name == "worker" else ["limpyd-jobs", name, *words]
    try:
        (worker if name == "worker" else jobs).main()
    except SystemExit as end:
        print(command, "ended with", end.code, file=sys.stderr)
print("imported:", *(name for name in sys.modules if name.startswith(("limpyd_jobs.contrib.", "limpyd_jobs.testing"))))
"""


class Bomb:
    """Touches a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self._path,)


def classes_of_ours() -> Iterator[type]:
    """All classes that the package has, but for those of what is not installed, or needs a project of Django."""
    for info in walk_packages(limpyd_jobs.__path__, "limpyd_jobs."):
        with suppress(ImportError, _of_no_project()):
            yield from (each for each in vars(import_module(info.name)).values() if isclass(each) and _is_ours(each))


def _of_no_project() -> type[Exception]:
    """What Django raises if there is no project; if Django is not installed, nothing."""
    try:
        from django.core.exceptions import ImproperlyConfigured
    except ImportError:
        return ImportError
    return ImproperlyConfigured


def path_of(cls: type) -> str:
    return f"{cls.__module__}.{cls.__name__}"


def _is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "limpyd_jobs"


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "canary"


@pytest.fixture
def idents(redis_client: redis.Redis, canary: Path, pytestconfig: pytest.Config) -> list[str]:
    """The idents of jobs of all classes of ours, and of what is no class of ours, whose records name code.

    Of the classes that are no jobs there is one of each module, or with ``--long`` all.
    """
    classes = [*classes_of_ours()]
    assert {"Job", "ScheduledRun", "PickledRun"} <= {each.__name__ for each in classes}
    of_jobs = {path_of(each) for each in classes if issubclass(each, JobRecord)}
    call = json.dumps({"args": [f"touch {canary}"]})
    bomb = b64encode(pickle.dumps(Bomb(canary))).decode()
    for number, (func, text) in enumerate((("os:system", call), ("os:system", bomb), ("builtins:print", bomb)), 1):
        values = {"identifier": f"{number}", "status": "w", "priority": "0", "queued": "1", "func": func, "call": text}
        values |= {
            "_retry_policy": "only_on=os.system delay=1",
            "_result": text,
            "_progress_state": text,
            "callback": func,
        }
        for each in classes:
            if issubclass(each, JobRecord):
                name = f"{each.namespace}:{each.__name__.lower()}"
                redis_client.hset(f"{name}:{number}:hash", mapping=values)
                redis_client.sadd(f"{name}:collection", number)
    paths = sorted({*map(path_of, classes)} - of_jobs)
    if not pytestconfig.getoption("--long"):
        paths = [*{path.rpartition(".")[0]: path for path in paths}.values()]
    others = [f"{path}:1" for path in paths]
    return [f"{path}:{number}" for path in (*sorted(of_jobs), *FOREIGN) for number in (1, 2, 3)] + others


def push_everywhere(client: redis.Redis, queue: Queue, idents: list[str]) -> None:
    """Write idents to all that a queue has, and where else a class is named."""
    for name in queue._fields:
        field = queue.get_field(name)
        if isinstance(field, fields.ListField):
            client.rpush(field.key, *idents)
        elif isinstance(field, fields.SortedSetField):
            client.zadd(field.key, dict.fromkeys(idents, 1))
        elif isinstance(field, fields.HashField):
            client.hset(field.key, mapping=dict.fromkeys(idents, "1"))
    for number, path in enumerate(dict.fromkeys(ident.rpartition(":")[0] for ident in idents), 1):
        known = [path, "jobs:job", ["func", "status", "identifier"], {"status": "jobs:job:status:"}, {}, []]
        client.hset(KEY, path, json.dumps(known))
        for kind in (QUEUES, ERRORS):
            client.hset(KEY, f"{kind} jobs:{number}", json.dumps([path, f"jobs:{number}", *known[2:]]))
        schedule = {"name": path, "job_model_repr": path, "next_run": "2020-01-01 00:00:00"}
        schedule |= {"trigger": '{"interval": {"seconds": 5}}', "queue_name": "mails", "timezone": "UTC"}
        schedule["job_fields"] = json.dumps({"func": "os:system", "call": client.hget("jobs:job:1:hash", "call")})
        client.hset(f"{Schedule._name}:{number}:hash", mapping=schedule)
        client.zadd(due_key(Schedule), {str(number): 1})
        error = {"job_model_repr": path, "job_pk": "1", "identifier": "1", "queue_name": "mails", "type": "os.system"}
        client.hset(f"jobs:error:{number}:hash", mapping=error)
        client.sadd("jobs:error:collection", number)


# An application that has imported an integration gives no command more to do, but code of ours more to find classes by.
@pytest.mark.proof
@pytest.mark.parametrize(
    ("application", "commands"),
    [
        ("", COMMANDS),
        pytest.param("import limpyd_jobs.contrib.apscheduler", THAT_LOOK_FOR_CLASSES, marks=pytest.mark.proof),
    ],
)
def test_commands_and_workers_run_none_of_it(
    redis_server: RedisServer,
    redis_client: redis.Redis,
    idents: list[str],
    canary: Path,
    application: str,
    commands: tuple[str, ...],
) -> None:
    push_everywhere(redis_client, Queue.get_queue("mails"), idents)
    ident = next(each for each in idents if each.endswith("ScheduledRun:1"))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"{application}\n{PROGRAM}"],
        input="\n".join(commands).replace("IDENT", ident).replace("PATH", ident[:-2]),
        env={"LIMPYD_JOBS_DATABASE": redis_server.url, "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=280,
    )
    print(done.stderr)
    imported = done.stdout.splitlines()[-1].split()
    assert imported[0] == "imported:"
    assert application or imported == ["imported:"], "our integrations are for the application to import"
    assert not canary.exists()
