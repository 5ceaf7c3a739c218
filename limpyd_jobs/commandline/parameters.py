"""The parameters of a worker, one row each: an attribute, its options on the command line, its check.

The attributes, the options with their help, the checks, and the tables of the reference come from these rows. An
application may use the name of a parameter that version 2 does not have for something else: a list that a subclass
calls ``processes`` is left alone, as the kind of the parameter says.
"""

from __future__ import annotations

import logging
import math
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from difflib import get_close_matches
from functools import partial
from optparse import Option
from types import SimpleNamespace
from typing import Any, TypeVar

from limpyd_jobs.commandline import kinds, options
from limpyd_jobs.commandline.kinds import MAX_PREFETCH, amount, count, number_or_none, or_none, whole_number
from limpyd_jobs.commandline.observers import subscribe_named
from limpyd_jobs.commandline.options import AUTO, SCRIPT_OPTIONS, WorkerOption, between, flag_of, interval
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.functions import REMEDY, is_async, unrun_kind
from limpyd_jobs.models import BaseJobsModel, Error, Queue, job_classes
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.retrying import MAX_DELTA
from limpyd_jobs.shards.placing import MAX_SHARDS, Shards

NO_QUEUES = "The queue(s) to use are not defined: name them with queues=, or with --queues= on a command line"
LOGGER_NAME = "limpyd-jobs"

# How a worker chooses among queues of one priority.
QUEUE_STRATEGIES = ("strict", "round_robin", "weighted")

# The methods of workers that are called between jobs, so that none of them may be an async function.
SYNCHRONOUS = (
    *("must_stop", "update_keys", "requeue_delayed_jobs", "wait_for_job", "get_queue", "get_job"),
    *("run_started", "run_ended", "job_started", "job_success", "job_skipped", "job_delayed", "job_error"),
    *("requeue_job", "additional_error_fields"),
)

MAX_PORT = 65535

MAX_PROCESSES = 500  # each takes two of the 1,024 files that a process may have open by default

# The greatest number of jobs that a process runs at once.
MAX_CONCURRENCY = 10_000

LOG_FORMATS = ("text", "json")

# What happens to a call in a coroutine that would wait for Redis.
BLOCKING_CALLS = REFUSE, ALLOW = ("refuse", "allow")

# The greatest weight of a queue.
MAX_WEIGHT = 1000

# The spelling of version 2, and the right one.
SPELLINGS = ("terminate_gracefuly", "terminate_gracefully")
NEW_SPELLINGS = ("--terminate-gracefully", "--no-terminate-gracefully")

WHAT, END, WAIT, FAILURE, KEEP, HEALTH, LOG = GROUPS = (
    "What to run",
    "When to end",
    "How to wait",
    "When a job fails",
    "What to keep",
    "Whether it is healthy",
    "What to log",
)

MakeOption = Callable[[str, "Row"], WorkerOption]  # given the name of the parameter
T = TypeVar("T")


class Row:
    """A parameter of a worker. The help has the first sentence of `about`. Version 2 lacks one that `is_new`."""

    def __init__(
        self,
        default: Any,
        about: str,
        *options: MakeOption,
        group: str,
        kind: kinds.Kind = kinds.ANYTHING,
        is_new: bool = False,
    ) -> None:
        self.default, self.about, self.options = default, about, options
        self.group, self.kind, self.is_new = group, kind, is_new


row: Callable[..., Any] = Row  # may be assigned to a parameter of any type
new_row: Callable[..., Any] = partial(Row, is_new=True)


def option(*examples: str, default: str | None = None, **attributes: Any) -> MakeOption:
    """Return a function that makes the option of a parameter: flag, help and examples come from its name and row."""

    def make(name: str, row: Row) -> WorkerOption:
        flag, said = flag_of(name), str(row.default) if default is None else default
        shown = f" (default: {said})" if said else ""
        text = row.about.partition(". ")[0].rstrip(".").replace("``", "")
        text += f"{shown}, e.g. {' or '.join(f'{flag}={example}' for example in examples)}"
        return _made([flag], name, row, **{"help": text, "check": row.kind.read, **attributes})

    return make


def switch(help_text: str, *flags: str, **attributes: Any) -> MakeOption:
    """Return a function that makes an option without a value. The name of its parameter gives the flag."""
    return lambda name, row: _made(flags or [flag_of(name)], name, row, help=help_text, **attributes)


def _made(flags: Collection[str], name: str, row: Row, **attributes: Any) -> WorkerOption:
    new = flags if row.is_new else [flag for flag in flags if flag in NEW_SPELLINGS]
    return WorkerOption(*flags, dest=name, group=row.group, new_flags=new, **attributes)


def _as_shards(name: str, value: Any) -> Shards:
    if isinstance(value, Shards):
        return value
    if not isinstance(value, str):  # which is not shown: it may be URLs with passwords
        raise ConfigurationException(f"{name} must be a Shards, or a text that names one, not a {type(value).__name__}")
    try:
        return Shards.of_text(value)
    except ConfigurationException as error:
        raise ConfigurationException(f"{name}: {error}") from None


number = partial(option, type="int")
seconds = partial(option, type="float")


def with_rows(cls: type[T]) -> type[T]:
    """Make attributes of the rows of a class; keep the rows in its ``_rows`` and their names in its ``parameters``."""
    rows = {name: value for name, value in vars(cls).items() if isinstance(value, Row)}
    for name, found in rows.items():
        setattr(cls, name, found.default)
    cls._rows, cls.parameters = rows, tuple(rows)  # type: ignore[attr-defined]
    return cls


@with_rows
class Parameters:
    """The parameters of a worker, each also an attribute that a subclass may set. Numbers may be given as text.

    Raises
    ------
    ConfigurationException
        If there is no queue, or a parameter is not what it has to be.
    """

    queues: Any = row(
        None,
        "The names of the queues to take jobs from, joined by commas. A list or a tuple is fine, too. Without any, "
        "``ConfigurationException`` is raised.",
        option("queue1,queue2", default=""),
        group=WHAT,
        kind=kinds.QUEUES,
    )
    callback: Callable[[Any, Any], Any] | None = row(
        None,
        "The function to call for each job, with the job and its queue. By default it is the worker's ``execute``, "
        "which calls ``job.run(queue)``.",
        option("my.module.callback", default='the "run" method of the jobs'),
        group=WHAT,
    )
    queue_model: type[Queue] = row(
        Queue,
        "The model of all the queues: ``Queue`` or a subclass.",
        option("my.module.QueueModel", default="the one of the worker class"),
        group=WHAT,
    )
    error_model: type[Error] = row(
        Error,
        "The model to save errors in: ``Error`` or a subclass.",
        option("my.module.ErrorModel", default="the one of the worker class"),
        group=WHAT,
    )
    logger_name: str = row(LOGGER_NAME, "The name of the logger.", option("limpyd-jobs.my-job"), group=LOG)
    logger_level: int = row(
        logging.INFO,
        "The least level to log, as a name or a number. It is set on the logger.",
        option("ERROR", default="INFO"),
        group=LOG,
        kind=kinds.LEVEL,
    )
    save_errors: bool = row(
        True,
        "Store an ``Error`` when a job fails.",
        switch("Save an object of the error model (the default)", action="store_true"),
        switch("Do not save an object of the error model", "--no-save-errors", action="store_false"),
        group=FAILURE,
    )
    save_tracebacks: bool = row(
        True,
        "Store the traceback in it.",
        switch("Save the traceback with the error (the default)", action="store_true"),
        switch("Do not save the traceback with the error", "--no-save-tracebacks", action="store_false"),
        group=FAILURE,
    )
    max_loops: float = row(
        1000,
        "End after this number of jobs. So leaks of memory remain small. Let something start the worker again: a "
        "parent (see :ref:`Several processes`), or systemd. With ``burst`` the default is no limit, unless there are "
        "several processes, each of which is replaced.",
        number("100", default="1000, no limit in a burst"),
        group=END,
        kind=amount(most=float("inf"), read=count),
    )
    max_duration: float | timedelta | None = row(
        None,
        "End after this number of seconds, once the running job is done. A ``timedelta`` is fine too, and is what the "
        "attribute is. ``None`` or 0: no limit.",
        seconds("3600", default="never"),
        group=END,
        kind=kinds.DURATION,
    )
    terminate_gracefuly: bool = row(
        True,
        "On SIGINT, SIGTERM and SIGHUP, finish the running job, then end: see :ref:`Stopping`. "
        "``terminate_gracefully`` is the same.",
        switch(
            "On SIGTERM, SIGINT or SIGHUP, finish the running job before ending (the default)",
            "--terminate-gracefuly",
            "--terminate-gracefully",
            action="store_true",
        ),
        switch(
            "Leave SIGTERM, SIGINT and SIGHUP alone: they end the worker at once, in the midst of a job",
            "--no-terminate-gracefuly",
            "--no-terminate-gracefully",
            action="store_false",
        ),
        group=END,
    )
    timeout: float | None = row(
        30,
        "The most seconds to wait for a job before looking again at whether to end; 0 for no limit. ``None`` is no "
        "limit, either.",
        seconds("5"),
        group=WAIT,
        kind=or_none(amount(), 0),
    )
    fetch_priorities_delay: float = row(
        25,
        "The most seconds between two looks for queues of new priorities. The worker learns of them before, see "
        ":ref:`When does a job begin?`",
        seconds("20"),
        group=WAIT,
        kind=amount(read=interval),
    )
    fetch_delayed_delay: float = row(
        25,
        "The most seconds between two looks of a busy worker for delayed jobs that are due. An idle one wakes up at "
        "their time.",
        seconds("20"),
        group=WAIT,
        kind=amount(read=interval),
    )
    requeue_times: int | None = row(
        0,
        "How many times to put a failed job back in its queue.",
        number("5"),
        group=FAILURE,
        kind=number_or_none(count),
    )
    requeue_priority_delta: int | None = row(
        -1,
        "What to add to the priority of a job that is put back, each time.",
        number("-2", default="-1, one level lower"),
        group=FAILURE,
        kind=number_or_none(between(-MAX_DELTA, MAX_DELTA)),
    )
    requeue_delay_delta: float | timedelta | None = row(
        30,
        "How many seconds to delay a job that is put back, each time. A ``timedelta`` is fine, too.",
        seconds("15"),
        group=FAILURE,
        kind=number_or_none(options.seconds),
    )
    retry_policy: Any = new_row(
        None,
        "When to try again a job that failed, instead of what the three options before say: after these seconds, or "
        "random ones that grow up to a cap, after which exceptions, up to which age of the job. It is a ``Retry``, or "
        "the text of one, for jobs that have no policy themselves, nor their class. See :ref:`Retries`.",
        option("delays=1:10:60", "times=5,cap=10m,max_age=1d", default="none"),
        group=FAILURE,
        kind=kinds.POLICY,
    )
    lease: float = new_row(
        60,
        "How many seconds without a sign of life from its worker make a running job one to be rescued. A thread renews "
        "the lease four times during each. Once it lapsed, any other worker puts the job back. See "
        ":ref:`How long a lease?`",
        seconds("300"),
        group=FAILURE,
        kind=amount(more_than=0),
    )
    max_rescues: int = new_row(
        3,
        "How often a job may lose its worker before it is an error, of type ``WorkerLost``.",
        number("0"),
        group=FAILURE,
        kind=amount(read=count),
    )
    burst: bool | str = new_row(
        False,
        'True: end as soon as no job waits in its queues, paused ones aside; ``"delayed"``: and none is delayed. '
        "See :ref:`Stopping`.",
        switch("End as soon as no job waits in the queues, paused ones aside", action="store_const", const=True),
        switch(
            "The same, but wait for delayed jobs, and run them",
            "--burst-delayed",
            action="store_const",
            const="delayed",
        ),
        group=END,
        kind=kinds.one_of(True, False, "delayed"),
    )
    grace_period: float | None = new_row(
        None,
        "How many seconds the running job has to finish on SIGTERM, SIGINT or SIGHUP, before it is interrupted and put "
        "back at the front of its queue. That try is not counted. ``None``: as many as it needs. See "
        ":ref:`Stopping`.",
        seconds("25", default="as many as it needs"),
        group=END,
        kind=or_none(amount()),
    )
    job_timeout: float | None = new_row(
        None,
        "How many seconds a job may run, unless it or its class says something else, before it is an error, of type "
        "``JobTimeout``; 0 for no limit. ``None`` is no limit, either. See :ref:`Time limits`.",
        seconds("3600", default="no limit"),
        group=FAILURE,
        kind=or_none(amount()),
    )
    kill_after: float | None = new_row(
        None,
        "How many seconds after the time limit of a job its process is killed, if its code cannot be interrupted. The "
        "job is then an error of type ``JobTimeout``. That needs a parent, so the command starts one, even for one "
        "process. ``None`` or 0: never. See :ref:`Code that cannot be interrupted`.",
        seconds("30", default="never"),
        group=FAILURE,
        kind=or_none(amount()),
    )
    keep_success: int | timedelta | None = new_row(
        None,
        "How many jobs that succeeded to keep in each queue, or for how long: a number, or one with d, h, m or s "
        "behind it. In code, that is an ``int`` or a ``timedelta``. ``None`` leaves it to the attribute of the same "
        "name of the queue model.",
        option("1000", "7d", default="all"),
        group=KEEP,
        kind=kinds.RETENTION,
    )
    keep_errors: int | timedelta | None = new_row(
        None,
        "The same for jobs that failed.",
        option("30d", default="all"),
        group=KEEP,
        kind=kinds.RETENTION,
    )
    job_modules: Any = new_row(
        None,
        "The modules and packages whose jobs may be run, joined by commas: they are imported at the start, packages "
        "with all that is in them, and nothing else is because a job says so. A list or a tuple is fine, too. It holds "
        "for the whole process. If one cannot be imported, ``ConfigurationException`` is raised as the worker is made. "
        "See :ref:`Which classes are imported`.",
        option("myapp.jobs,other", default="any but the standard library"),
        group=WHAT,
        kind=kinds.MODULES,
    )
    processes: int = new_row(
        1,
        "In how many processes to run such a worker; with more than one, a parent starts them, and starts another one "
        "for each that ends. The command does so (see :ref:`Several processes`), ``run`` itself starts none.",
        number("4"),
        group=WHAT,
        kind=whole_number(1, read=between(1, MAX_PROCESSES)),
    )
    concurrency: int = new_row(
        1,
        "How many jobs to run at once in a process, at most 10000: async functions on an event loop, ordinary ones in "
        "threads. See :ref:`Many jobs at once`.",
        number("100"),
        group=WHAT,
        kind=whole_number(1, MAX_CONCURRENCY),
    )
    shards: Any = new_row(
        None,
        "The databases among which the jobs are divided: a ``Shards``, or the text that ``Shards.of_text`` reads. "
        "While the worker is idle, it takes jobs of the shards that are not its home. See :ref:`Workers of shards`.",
        option("redis+cluster://redis-1,redis-2/shop?shards=8", default="none"),
        group=WHAT,
        kind=or_none(kinds.Kind(_as_shards, lambda value: isinstance(value, (str, Shards)))),
    )
    home: int | None = new_row(
        None,
        "The number of the shard that the worker works for, from 0 on.",
        number("3", default="none", check=None),
        group=WHAT,
        kind=or_none(whole_number(0, MAX_SHARDS - 1)),
    )
    blocking_calls: str = new_row(
        REFUSE,
        "What happens if a coroutine of a job calls what waits for Redis, such as ``self.note.hget()``, and so would "
        "hold the event loop: ``refuse`` raises ``BlockingCall``, which names the awaitable form, ``allow`` does it. "
        "See :ref:`Coroutines and fields`.",
        option("allow", type="choice", choices=BLOCKING_CALLS),
        group=WHAT,
        kind=kinds.one_of(*BLOCKING_CALLS),
    )
    queue_strategy: str = new_row(
        QUEUE_STRATEGIES[0],
        "Whose jobs come first among those of one priority: ``strict`` for those of the queue that is named first, "
        "``round_robin`` for each queue in turn, ``weighted`` for as often as the number behind its name says, as "
        "``queue1:3,queue2:1``. See :ref:`Queues that share a worker`.",
        option("round_robin", type="choice", choices=QUEUE_STRATEGIES),
        group=WHAT,
        kind=kinds.one_of(*QUEUE_STRATEGIES),
    )
    prefetch: int | str = new_row(
        1,
        "How many jobs to claim at once, at most 1000, to run them one after the other; ``auto`` for as many as are "
        "run within ``prefetch_time``, and long ones one by one. With ``concurrency``, how many to claim beside those "
        "that run; 1 for as many as will begin within 30 ms. See :ref:`Jobs in batches`.",
        option("auto"),
        group=WAIT,
        kind=whole_number(1, MAX_PREFETCH, or_word=AUTO, read=kinds.read_prefetch),
    )
    prefetch_time: float = new_row(
        0.02,
        "For how many seconds a claimed job may wait for those that are run before it, if ``prefetch`` is ``auto``, "
        "until it is released. Successes are recorded within this time, too, or within 0.02 seconds if that is "
        "shorter.",
        seconds("0.1"),
        group=WAIT,
        kind=amount(more_than=0, read=kinds.read_prefetch_time),
    )
    metrics: bool = new_row(
        True,
        "Count how many jobs are run, how they end, how long they wait and run, for ``limpyd-jobs stats``. See "
        ":ref:`Metrics`.",
        switch("Write metrics for limpyd-jobs stats (the default)", action="store_true"),
        switch("Write no metrics", "--no-metrics", action="store_false"),
        group=LOG,
        kind=kinds.one_of(True, False),
    )
    max_memory: int | None = new_row(
        None,
        "End after the job that leaves the process with more memory in use than this, so that another one is started: "
        "bytes, or a number with kB, MB, GB, KiB, MiB or GiB behind it. ``None`` is no limit. See :ref:`Memory`.",
        option("512MB", default="no limit"),
        group=END,
        kind=or_none(kinds.MEMORY),
    )
    health_port: int | None = new_row(
        None,
        "The port where to answer probes over HTTP: ``/health/live``, ``/health/ready`` and ``/health``. 0 stands for "
        "any that is free, which is logged. With ``processes``, the parent answers for all. See :ref:`Health`.",
        number("8080", default="none"),
        group=HEALTH,
        kind=or_none(whole_number(0, MAX_PORT)),
    )
    health_host: str = new_row(
        "127.0.0.1",
        "The address where to answer probes. By default only this machine can ask; ``0.0.0.0`` lets others do so, too.",
        option("0.0.0.0"),
        group=HEALTH,
        kind=kinds.TEXT,
    )
    health_file: str | None = new_row(
        None,
        "The file to write every few seconds while the worker is alive, with ``ok`` in it if it is ready. See "
        ":ref:`Health`.",
        option("/tmp/healthy", default="none"),
        group=HEALTH,
        kind=or_none(kinds.TEXT),
    )
    stalled_after: float = new_row(
        60,
        "For how many seconds jobs may wait, while the worker is idle, before it is not ready; and for how many its "
        "loop may stand still before it is not alive.",
        seconds("120"),
        group=HEALTH,
        kind=amount(more_than=0),
    )
    wait_for_redis: float | None = new_row(
        None,
        "For how many seconds a worker that begins waits for a Redis that does not answer, before it gives up. "
        "``None`` is 60 for the command, and 0, so that it raises at once, for ``run``. A Redis that loads its data "
        "does answer, and is waited for without a limit. See :ref:`A Redis that is late`.",
        seconds("300", "0", default="a minute"),
        group=WAIT,
        kind=or_none(amount()),
    )

    observers: Any = new_row(
        None,
        "What is called with each event, or stands around jobs, joined by commas: ``opentelemetry``, "
        "``opentelemetry-links``, ``sentry``, or the path of a function, an instrument, or a module that subscribes "
        "them. A list or a tuple is fine, too. It holds for the whole process. If one cannot be imported, "
        "``ConfigurationException`` is raised as the worker is made. See :ref:`Observers by name`.",
        option("opentelemetry,myapp.metrics.count", default="none"),
        group=LOG,
        kind=kinds.OBSERVERS,
    )
    log_format: str = new_row(
        LOG_FORMATS[0],
        "How the command writes its log: ``text``, or ``json`` for an object in each line, with the job, its class, "
        "queue and try, and the ids of its trace. See :ref:`Logs in JSON`.",
        option("json", type="choice", choices=LOG_FORMATS),
        group=LOG,
        kind=kinds.one_of(*LOG_FORMATS),
    )

    terminate_gracefully = True

    _rows: Mapping[str, Row]
    parameters: tuple[str, ...]

    # The checked parameters that version 2 does not have; and their names that the subclass uses for something else.
    _settings: SimpleNamespace
    _names_of_others: list[str]

    def _set_parameters(self, given: dict[str, Any]) -> None:
        for name in self.parameters:
            if name in given:
                setattr(self, name, given[name])
        self._warn_of_slips(given)
        self._set_graceful(given)
        ours = {name for name in self.parameters if name in given}
        self._read_settings(ours)
        if self._settings.burst and self._settings.processes == 1 and not _is_chosen(self, "max_loops"):
            self.max_loops = math.inf
        if self._settings.concurrency > 1 and self._settings.prefetch == AUTO:
            raise ConfigurationException(
                f"prefetch='auto' measures how long one job after the other takes, and concurrency="
                f"{self._settings.concurrency} runs several at once: it finds out by itself how many jobs to claim "
                "ahead. Leave prefetch out, or give a number"
            )
        if "home" in ours.difference(self._names_of_others) and self._settings.shards is None:
            raise ConfigurationException(f"home={self._settings.home} is the number of a shard, so it needs shards")
        if "prefetch_time" in ours.difference(self._names_of_others) and self._settings.prefetch != AUTO:
            raise ConfigurationException(
                f"prefetch_time needs prefetch='auto': with prefetch={self._settings.prefetch} no job is released"
            )

    @classmethod
    def _is_new(cls, name: str) -> bool:
        """Whether version 2 lacks a parameter, and the subclass has none of its own of that name."""
        row = Parameters._rows.get(name)
        return bool(row and row.is_new) and list(cls.parameters).count(name) < 2

    def _warn_of_slips(self, given: Iterable[str]) -> None:
        """Warn if an argument has nearly the name of a parameter. Others may be of a subclass that reads them."""
        reads_others = type(self).__init__.__module__.partition(".")[0] != __name__.partition(".")[0]
        for name in set(given) - {*self.parameters, *SPELLINGS}:
            near = get_close_matches(name, self.parameters, n=1, cutoff=0.85)
            if (near or not reads_others) and not hasattr(self, name):
                hint = f": is {near[0]} meant?" if near else ""
                text = f"{type(self).__name__} has no parameter {name}, so it is ignored{hint}"
                warnings.warn(text, UserWarning, stacklevel=4)

    def _set_graceful(self, given: dict[str, Any]) -> None:
        """Let both spellings have the same value: the given one, else the nearest attribute."""
        for attributes in (given, vars(self), *map(vars, type(self).__mro__)):
            said = [attributes[name] for name in SPELLINGS if _is_flag(name, attributes)]
            if said:
                break
        for name in SPELLINGS:
            now = getattr(self, name, None)
            if now != said[0] and _is_flag(name, {name: now}):
                setattr(self, name, said[0])

    def _read_settings(self, given: set[str]) -> None:
        """Read the parameters that version 2 lacks, once: from arguments, else from attributes that could be meant."""
        new = {name: row.kind for name, row in Parameters._rows.items() if row.is_new}
        self._names_of_others = [
            name for name, kind in new.items() if _is_something_else(self, name, kind, is_given=name in given)
        ]
        self._settings = SimpleNamespace()
        for name, kind in new.items():
            value = getattr(Parameters if name in self._names_of_others else self, name)
            setattr(self._settings, name, kind.check(name, value))

    def _check_parameters(self) -> None:
        self.queues = self._parse_queues(self.queues)
        self._weights = dict.fromkeys(self.queues, 1)
        if self._settings.queue_strategy == "weighted":
            self._weights = dict(map(self._parse_weight, self.queues))
            self.queues = list(self._weights)
        self._assert_correct_model(self.queue_model, Queue, "queue")
        self._assert_correct_model(self.error_model, Error, "error")
        if self.callback and not callable(self.callback):
            hint = ": give the function itself" if isinstance(self.callback, str) else ""
            raise ConfigurationException(f"The callback is not callable: {self.callback!r}{hint}")
        self._check_is_run("callback", self.callback)
        self._check_is_run("execute method", getattr(self, "execute", None))
        for name in SYNCHRONOUS:
            if is_async(getattr(self, name, None)):
                raise ConfigurationException(
                    f"The {name} method is an async function: a worker calls it between jobs, and awaits only the code "
                    "of jobs, and their own methods. Make it an ordinary function."
                )
        self._check_those_of_version_2()
        if self._settings.shards is not None:
            self.shards = self._settings.shards
            self._move_home(self.shards, self._settings.home)
        if self._settings.observers is not None:
            subscribe_named(self._settings.observers)
        if self._settings.job_modules is not None:
            try:
                job_classes.load(self._settings.job_modules)
            except ConfigurationException as error:
                raise ConfigurationException(f"job_modules: {error}") from error

    def _move_home(self, shards: Shards, home: int | None) -> None:
        """Move all models of this library, and those of the worker, to the shard that it works for."""
        if home is None or home >= len(shards):
            raise ConfigurationException(
                f"The home of the worker must be the number of a shard, 0 to {len(shards) - 1}, not {home!r}"
            )
        settings = shards.databases[home].connection_settings
        for model in (BaseJobsModel, self.queue_model, self.error_model):
            if not isinstance(model.database, JobsDatabase):
                raise ConfigurationException(f"{model.__name__} is not on a JobsDatabase, so it cannot be on a shard")
            if model.database.connection_settings != settings:
                model.database.reset(**settings)

    def _check_those_of_version_2(self) -> None:
        for name, found in Parameters._rows.items():
            if not found.is_new and found.kind is not kinds.ANYTHING:
                value = getattr(self, name)
                checked = found.kind.check(name, value)
                if checked is not value:
                    setattr(self, name, checked)

    @staticmethod
    def _parse_queues(queues: Any) -> list[str]:
        if not queues:
            raise ConfigurationException(NO_QUEUES)
        names = queues.split(",") if isinstance(queues, str) else queues
        if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
            raise ConfigurationException(f"Invalid format for queues names: {queues!r}")
        names = list(dict.fromkeys(name.strip() for name in names if name.strip()))
        if not names:
            raise ConfigurationException(NO_QUEUES)
        return names

    @staticmethod
    def _parse_weight(text: str) -> tuple[str, int]:
        """Divide ``mail:3`` into the name of a queue and its weight, 1 if it has none."""
        name, _, weight = text.rpartition(":")
        if not name or not re.fullmatch(r"\d+", weight, re.ASCII):
            return text, 1
        if not 1 <= int(weight) <= MAX_WEIGHT:
            raise ConfigurationException(f"The weight of a queue must be a number from 1 to {MAX_WEIGHT}: {text!r}")
        return name, int(weight)

    @staticmethod
    def _assert_correct_model(model_to_check: Any, model_reference: type[BaseJobsModel], obj_name: str) -> None:
        if not (isinstance(model_to_check, type) and issubclass(model_to_check, model_reference)):
            raise ConfigurationException(f"The {obj_name} model must be a subclass of {model_reference.__name__}")

    @staticmethod
    def _check_is_run(name: str, function: Any) -> None:
        kind = unrun_kind(function)
        if kind:
            raise ConfigurationException(f"The {name} is {kind}: a worker would run nothing of it. {REMEDY}.")


def _is_chosen(worker: Parameters, name: str) -> bool:
    """Whether a parameter was given, or is an attribute of the class, even if its value is the default."""
    return any(name in vars(each) for each in (worker, *type(worker).__mro__) if each is not Parameters)


def _is_flag(name: str, attributes: Mapping[str, Any]) -> bool:
    """Whether the attribute of this name says whether to end gracefully. An application may use it otherwise."""
    return name in attributes and (name == "terminate_gracefuly" or isinstance(attributes[name], (bool, int)))


def _is_something_else(worker: Any, name: str, kind: kinds.Kind, *, is_given: bool) -> bool:
    of_class = getattr(type(worker), name)
    if not type(worker)._is_new(name):
        return True
    if not (isinstance(of_class, property) or kind.could_be(of_class)):
        return True
    try:
        return not (is_given or kind.could_be(getattr(worker, name)))
    except Exception:  # a property may need something that is not there yet
        return True


OPTIONS: tuple[Option, ...] = (
    *SCRIPT_OPTIONS,
    *(
        make(name, each)
        for group in GROUPS
        for name, each in Parameters._rows.items()
        if each.group == group
        for make in each.options
    ),
)
