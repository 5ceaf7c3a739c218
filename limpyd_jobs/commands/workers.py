"""``limpyd-jobs workers``: see which workers are there and what they do, and give them orders."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain

from limpyd_jobs.commandline.options import WorkerOption, for_verbs
from limpyd_jobs.commands.shared.options import JSON, JSONL, READING_OPTIONS, VERB_OPTIONS
from limpyd_jobs.commands.shared.printing import Row, print_fields, time_between, with_models
from limpyd_jobs.commands.shared.verbs import Verb, VerbCommand
from limpyd_jobs.dates import shown_span, span, utcnow
from limpyd_jobs.models.presence import checked_level, order_lasts
from limpyd_jobs.query import EndedWorker, alive_workers, ended_workers, order_worker, worker_dump
from limpyd_jobs.query.workers import IN_ORDER
from limpyd_jobs.texts import MESSAGE, count_of, one_line
from limpyd_jobs.views.documents import document
from limpyd_jobs.views.hints import names_near
from limpyd_jobs.views.workers import ShownWorker, lines_of_silent, shown_workers

HEADING = ("worker", "status", "queues", "since", "last sign", "done", "failed", "memory", "runs", "for")

OF_ENDED = ("worker", "status", "queues", "since", "ended", "runs", "done", "failed", "memory", "version")

# The columns that a narrow terminal has no room for, the least important first.
SPARE = ("memory", "since", "last sign", "done", "failed", "queues", "model")

# What JSON has of a worker, but those who read it see otherwise.
ADDED = ("pk", "name", "silence", "running_number")

# The orders that need nothing but the names of workers.
ORDERS = ("quiet", "resume", "stop", "dump")


class Workers(VerbCommand):
    """Exit status: 0; 1 if you answered no, or a worker that is named has left; 2 if the command line is wrong, or
    there is no such worker."""

    summary = "Show which workers are there, and what they run; quiet them, stop them"
    words = """[list|show|quiet|resume|stop|dump|log-level] [WORKER...] [options]

  list [WORKER...]           which workers are there, what they do, and when each gave its last sign of life;
                             --ended: those that ended within a day, in order, or silent: killed, cut off or stopped
  show WORKER...             all that is known of some workers
  quiet WORKER...            begin no other job
  resume WORKER...           begin jobs again
  stop WORKER...             end after the running job, as on SIGTERM; in a pool, no other worker takes its place
  dump WORKER...             write to the log of the worker what it does, and where each of its threads is
  log-level LEVEL WORKER...  write more or less to its log: DEBUG, INFO, WARNING, ERROR, CRITICAL, or a number

Without a word, it lists. Call a worker by its name, by the host and pid of its process or of its parent process
(web1:4711), or by the six digits that its log lines begin with; --all means all. A worker obeys with its next
heartbeat, by default within 15 seconds. On a terminal, stop asks."""
    examples = (
        "limpyd-jobs workers",
        "limpyd-jobs workers stop web1:4711",
        "limpyd-jobs workers quiet --all",
    )
    merged = ("", "list")
    option_list = (
        *READING_OPTIONS,
        *for_verbs(
            " ".join(["show", "log-level", *ORDERS]),
            WorkerOption("--all", action="store_true", help="All workers (default: the workers that are named)"),
        ),
        *for_verbs(" ".join(["log-level", *ORDERS]), *VERB_OPTIONS),
        *for_verbs(
            "list",
            WorkerOption("--ended", action="store_true", help="those that ended within a day (default: those there)"),
        ),
        JSON,
        JSONL,
    )

    def verbs(self) -> Mapping[str, Verb]:
        orders = {verb: partial(self._order, verb) for verb in ORDERS}
        return {"list": self._list, "show": self._show, **orders, "log-level": self._set_log_level}

    def _asked(self, verb: str, names: Sequence[str]) -> list[ShownWorker]:
        workers = shown_workers(alive_workers())
        if bool(names) == bool(self.options.all):
            self.parser.error(f"{verb} needs the names of workers, or --all")
        return _named(names, workers)

    # -- Looking

    def _list(self, names: Sequence[str]) -> None:
        if self.options.ended:
            self._list_ended(names)
            return
        found = self.look_at_each(alive_workers)
        everyone = shown_workers([*chain.from_iterable(found.values())])
        workers = _named(names, everyone)
        heading, *rows = table_of(workers)
        numbers = (number for number, each in found.items() for _ in each)
        shards = [number for number, worker in zip(numbers, everyone, strict=True) if worker in workers]
        self.print_list(workers, heading, rows, SPARE, shards)
        self.print_notes(lines_of_silent(workers))

    def _list_ended(self, names: Sequence[str]) -> None:
        if names:
            self.parser.error("--ended takes no names")
        found = self.look_at_each(ended_workers)
        ended = [*chain.from_iterable(found.values())]
        numbers = [number for number, each in found.items() for _ in each]
        self.print_list(ended, OF_ENDED, map(_row_of_ended, ended), SPARE, numbers)

    def _show(self, names: Sequence[str]) -> None:
        workers = self._asked("show", names)
        if not self.print_as_json(workers):
            _print_details(workers)

    # -- Asking for something

    def _set_log_level(self, words: Sequence[str]) -> int:
        if not words:
            self.parser.error("log-level needs a level, and the names of workers, or --all")
        level, *names = words
        return self._order("log-level", names, checked_level(level))

    def _order(self, verb: str, names: Sequence[str], value: str = "") -> int:
        workers = self._asked(verb, names)
        if self.options.dry_run:
            self._note_asked(workers)
            return 0
        if verb == "stop" and not self._is_sure_to_stop(workers):
            return 1
        asked = [worker for worker in workers if self._is_asked(worker, verb, value)]
        self._note_asked(asked)
        return 0 if len(asked) == len(workers) or self.options.all else 1

    def _is_sure_to_stop(self, workers: Sequence[ShownWorker]) -> bool:
        """Ask whether to stop workers. Those that are named are stopped without a question where no one can answer."""
        if self.options.all:
            return self.is_sure(f"stop all {count_of(len(workers), 'worker')}?")
        can_answer = sys.stdin and sys.stdin.isatty()
        names = ", ".join(one_line(worker.name) for worker in workers)
        return not can_answer or self.is_sure(f"stop {count_of(len(workers), 'worker')}, {names}?")

    def _is_asked(self, worker: ShownWorker, verb: str, value: str) -> bool:
        """Ask something of a worker; return whether it is still there."""
        with suppress(LookupError):
            order_worker(worker, verb, value, **self.how_audited)
            return True
        return False

    def _note_asked(self, workers: Sequence[ShownWorker]) -> None:
        self.note(*lines_of_silent(workers))
        for worker in workers:
            if worker.silent_for and not self.options.dry_run:
                self.note(
                    f"{one_line(worker.name)} may not obey: in {span(order_lasts(worker))} the order is forgotten"
                )
        if self.print_as_json({"asked": [worker.name for worker in workers]}):
            return
        for worker in workers:
            print(f"{one_line(worker.name)}: {self.would_be('asked')}")
        if not workers:
            print("there are no workers")


def _named(names: Sequence[str], workers: Sequence[ShownWorker]) -> list[ShownWorker]:
    """Return the workers of some names; all workers if no name is given."""
    for name in names:
        if not any(worker.is_named(name) for worker in workers):
            near = names_near(name, [worker.name for worker in workers])
            raise LookupError(f"there is no worker {one_line(name)}{near}")
    return [worker for worker in workers if not names or any(map(worker.is_named, names))]


def table_of(workers: Sequence[ShownWorker]) -> list[Row]:
    return with_models(HEADING, map(as_row, workers), [worker.queue_model for worker in workers], len(HEADING))


def as_row(worker: ShownWorker) -> list[str]:
    """Return a worker as a row of the table under `HEADING`, as of its last sign of life."""
    first = worker.running[0] if worker.running else None
    more = f" (and {len(worker.running) - 1} more)" if len(worker.running) > 1 else ""
    return [
        worker.name,
        worker.status,
        ",".join(worker.queues),
        time_between(worker.since, utcnow()),
        f"{time_between(worker.last_seen, utcnow())} ago",
        f"{worker.done:,}",
        f"{worker.failed:,}",
        _memory(worker.memory),
        f"{first.ident}{more}" if first else "",
        shown_span(worker.seconds_of(first)) if first else "",
    ]


def _row_of_ended(worker: EndedWorker) -> list[str]:
    return [
        worker.name,
        "ended" if worker.how == IN_ORDER else "silent",
        ",".join(worker.queues),
        time_between(worker.since, worker.last_seen),
        f"{time_between(worker.ended, utcnow())} ago",
        count_of(worker.running, "job") if worker.running else "",
        f"{worker.done:,}",
        f"{worker.failed:,}",
        _memory(worker.memory),
        worker.versions.get("application", ""),
    ]


def _memory(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"


def _print_details(workers: Sequence[ShownWorker]) -> None:
    for number, worker in enumerate(workers):
        if number:
            print()
        told = {name: value for name, value in document(worker).items() if name not in ADDED}
        options = (f"{name}={value}" for name, value in worker.options.items() if value is not None)
        told |= {
            "status": worker.silence or worker.status,
            "queues": ", ".join(worker.queues),
            "running": "; ".join(f"{job.ident} ({job.identifier}) since {job.since}" for job in worker.running),
            "unresolved": ", ".join(worker.unresolved),
            "options": " ".join(options),
            "versions": ", ".join(f"{name} {version}" for name, version in worker.versions.items()),
        }
        print_fields([("worker", worker.name), *told.items()])
        if dump := worker_dump(worker):
            print(f"\nits answer to the last dump, as of {dump.at} by its clock:")
            for line in dump.text.splitlines():
                print(f"  {one_line(line, MESSAGE)}")
