"""Processes that write to the outbox, or relay it, and are killed before each of their steps.

Run as a program, it takes the story, and the settings as JSON; it prints a line of JSON for each process it killed.

A step is a statement or a commit in the database, or a call of Redis.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from itertools import count
from typing import Any

import project

from limpyd_jobs import Queue, Worker

Act = Callable[[str], Any]

PAST = datetime(2020, 1, 1, tzinfo=timezone.utc)
RELAYERS, ENTRIES = 4, 40


def set_up(options: dict[str, Any]) -> None:
    """Set Django up; every process makes connections of its own."""
    import django
    from django.conf import settings

    applications = [name for name in project.SETTINGS["INSTALLED_APPS"] if "admin" not in name]
    settings.configure(**{**project.SETTINGS, "INSTALLED_APPS": applications, "TEMPLATES": [], **options})
    django.setup()


class Steps:
    """Counts the steps of this process, and kills it before one of them."""

    def __init__(self, last: int) -> None:
        self.number, self._last = 0, last

    def step(self) -> None:
        self.number += 1
        if self.number == self._last:
            os.kill(os.getpid(), signal.SIGKILL)

    def before(self, owner: Any, name: str) -> None:
        """Let a step be taken before each call of a function."""
        function = getattr(owner, name)

        def stepping(*args: Any, **kwargs: Any) -> Any:
            self.step()
            return function(*args, **kwargs)

        setattr(owner, name, stepping)

    def watch(self) -> None:
        from django.db import connection
        from redis import Redis

        connection.ensure_connection()
        self.before(connection, "_commit")
        connection.execute_wrappers.append(lambda execute, *call: (self.step(), execute(*call))[1])
        self.before(Redis, "execute_command")
        self.watch_scripts()

    def watch_scripts(self) -> None:
        """Let only what changes jobs be a step."""
        from limpyd_jobs.redis.scripting import Script

        self.before(Script, "__call__")


def forked(act: Callable[[], Any]) -> tuple[int, Any]:
    """Do something in a fork; return how the process ended, and what it returned, as JSON has it."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, json.dumps(act()).encode())
            os._exit(0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), json.loads(told) if told else None


# -- What processes do


def write(name: str) -> None:
    from bookshop.errands import Errand
    from bookshop.models import Book
    from django.db import transaction

    from limpyd_jobs.contrib.django.transactions import add_job_through_outbox

    with transaction.atomic():
        Book.objects.create(title=name)
        add_job_through_outbox(Errand, name, note="x")


def leave(*names: str) -> None:
    """Write entries, and die before they are relayed."""
    from limpyd_jobs.contrib.django import transactions

    transactions.relay_at_commit = lambda *entry: None
    for name in names:
        write(name)
    make_due()


def make_due() -> None:
    from limpyd_jobs.contrib.django.outbox.models import OutboxEntry

    OutboxEntry.objects.update(due=PAST)


def relay() -> None:
    from limpyd_jobs.contrib.django.outbox.relaying import relay_due

    for _ in range(20):  # another process may have the locks
        make_due()
        if not relay_due("default", 30)[0]:
            return


def relay_until_killed(jobs: int) -> None:
    """Be killed before one more job is added than so many; end if others left fewer."""
    from limpyd_jobs.contrib.django.outbox.models import OutboxEntry
    from limpyd_jobs.contrib.django.outbox.relaying import relay_due

    Steps(jobs + 1).watch_scripts()
    while OutboxEntry.objects.exists():
        relay_due("default", 30)


def run_jobs() -> None:
    from limpyd_jobs.observing import worker_tasks

    worker_tasks.installed.clear()
    number = Queue.count_waiting_jobs("errands")
    if number:
        Worker(["errands"], max_loops=number).run()


def look(name: str) -> dict[str, Any]:
    """What is there of the entries of a name."""
    from bookshop.errands import Errand
    from bookshop.models import Book

    from limpyd_jobs.contrib.django.outbox.models import OutboxEntry

    done: list[str] = Errand.get_connection().lrange("errands done", 0, -1)
    written = [*Book.objects.filter(title__startswith=name).order_by("id").values_list("title", flat=True)]
    ran = sorted((each for each in done if each.startswith(name)), key=lambda each: int(each.rpartition(" ")[2]))
    return {"written": written, "ran": ran, "left": OutboxEntry.objects.count()}


# -- Stories


def killed_at_each_step(
    kind: str, prepare: Callable[[str], Any], act: Callable[[str], Any]
) -> Iterator[dict[str, Any]]:
    """Kill a process before each step of an act. Then jobs are run, the rest is relayed, and jobs are run again."""
    for number in count(1):
        name = f"{kind} {number}"

        def victim(name: str = name, number: int = number) -> int:
            steps = Steps(number)
            steps.watch()
            act(name)
            return steps.number

        forked(lambda name=name: prepare(name))
        status, steps = forked(victim)
        for then in (run_jobs, relay, run_jobs):
            assert forked(then)[0] == 0
        yield {"status": status, "steps": steps, **forked(lambda name=name: look(name))[1]}
        if status == 0:
            return


def writing() -> Iterator[dict[str, Any]]:
    return killed_at_each_step("writing", lambda name: None, lambda name: write(f"{name} 1"))


def relaying() -> Iterator[dict[str, Any]]:
    from limpyd_jobs.contrib.django.outbox.relaying import relay_due

    names = [1, 2, 3]
    return killed_at_each_step(
        "relaying", lambda name: leave(*(f"{name} {each}" for each in names)), lambda name: relay_due("default", 30)
    )


def by_a_worker() -> Iterator[dict[str, Any]]:
    """What was left is relayed by a worker, as its first act, because the application is installed."""
    forked(lambda: leave("worker 1"))
    assert forked(lambda: Worker(["errands"], max_loops=1).run())[0] == 0
    yield {"status": 0, "steps": 0, **forked(lambda: look("worker "))[1]}


def together() -> Iterator[dict[str, Any]]:
    """Several relay the same entries. Each is killed once it has added some of the jobs. These are run at once, so that
    whoever adds them again is found out."""
    forked(lambda: leave(*(f"together {each}" for each in range(ENTRIES))))
    victims = [begun(lambda jobs=each * 8: relay_until_killed(jobs)) for each in range(1, RELAYERS + 1)]
    for pid in victims:
        os.waitpid(pid, 0)
        assert forked(run_jobs)[0] == 0
    helpers = [begun(relay) for _ in range(RELAYERS)]
    statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in helpers]
    assert forked(relay)[0] == forked(run_jobs)[0] == 0
    yield {"status": max(statuses), "steps": 0, **forked(lambda: look("together "))[1]}


def begun(act: Callable[[], Any]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            act()
            os._exit(0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        os._exit(1)
    return pid


if __name__ == "__main__":
    set_up(json.loads(sys.argv[2]))
    if sys.argv[1] == "migrate":
        from django.core.management import call_command

        call_command("migrate", run_syncdb=True, verbosity=0)
    else:
        for found in {"writing": writing, "relaying": relaying, "by a worker": by_a_worker, "together": together}[
            sys.argv[1]
        ]():
            print(json.dumps(found), flush=True)
