"""The options of the command line, one row each.

A new option of the worker is an attribute of `Worker`, named in its ``parameters``, and a row here: a value
that is given is passed to the worker under the row's name (``--max-loops`` is ``max_loops``).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from optparse import Option, OptionParser, OptionValueError, Values
from typing import Any, TypeVar

from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.retrying import Retry
from limpyd_jobs.store.job_classes import module_names
from limpyd_jobs.utils import import_class
from limpyd_jobs.workers.queue_selector import QUEUE_STRATEGIES
from limpyd_jobs.workers.settings import MAX_PREFETCH

MAX_SECONDS = 10**11  # some 3,000 years: today's date and this still make a date
MAX_PROCESSES = 500  # each takes two of the 1,024 files that a process may have open by default
MAX_DELTA = 2**63 - 1  # priorities are 64-bit integers
SECONDS_OF = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}

Number = TypeVar("Number", int, float)


class OutOfRange(ValueError):
    """A number that an option cannot be; the message says what it must be."""


def count(number: int) -> int:
    """Return a number of 0 or more, or raise `OutOfRange`."""
    if number < 0:
        raise OutOfRange("a positive integer (including 0)")
    return number


def processes(number: int) -> int:
    """Return a number of 1 or more, or raise `OutOfRange`."""
    return _between(1, number, MAX_PROCESSES)


def prefetch(number: int) -> int:
    """Return a number of jobs that can be claimed at once, or raise `OutOfRange`."""
    return _between(1, number, MAX_PREFETCH)


def delta(number: int) -> int:
    """Return a number, negative or not, that fits in 64 bits, or raise `OutOfRange`."""
    return _between(-MAX_DELTA, number, MAX_DELTA)


def seconds(number: float) -> float:
    """Return a duration of 0 or more seconds, as an integer if it is whole, or raise `OutOfRange`."""
    if not number >= 0:
        raise OutOfRange("a positive integer (including 0), or one with a fraction")
    duration = _between(0, number, MAX_SECONDS)
    return int(duration) if duration.is_integer() else duration


def interval(number: float) -> float:
    """Return a duration as `seconds` does, but 0 raises `OutOfRange`, too."""
    if not number > 0:
        raise OutOfRange("a positive integer, or one with a fraction")
    return seconds(number)


def retention(text: str) -> int | timedelta:
    """Return how many jobs to keep, or, of a text as ``7d``, ``36h``, ``90m`` or ``30s``, for how long.

    Raises
    ------
    ValueError
        If it is neither.
    """
    found = re.fullmatch(r"(\d{1,18})([dhms]?)", text, re.ASCII)
    if not found:
        raise ValueError(f"{text!r} is neither a number of jobs nor a duration such as 7d, 36h, 90m or 30s")
    number = int(found[1])
    return timedelta(seconds=seconds(float(number * SECONDS_OF[found[2]]))) if found[2] else number


def retry_policy(text: str) -> Retry:
    """Return the retry policy of a text, or raise `ValueError`; the exceptions that it names are imported."""
    try:
        policy = Retry.parse(text)
        only_on = None if policy.only_on is None else [*map(_exception, policy.only_on)]
        return replace(policy, only_on=only_on, never_on=[*map(_exception, policy.never_on)])
    except TypeError as error:
        raise ValueError(str(error)) from None


def _exception(name: str) -> Any:
    if "." not in name:
        return name
    try:
        return import_class(name)
    except Exception as error:  # whatever the module raises
        raise ValueError(f"cannot import {name!r}: {type(error).__name__}: {error}") from None


def level(text: str) -> int:
    """Return a level of logging, given as a number or as a name in any case, or raise `ValueError`."""
    try:
        number = int(text)
    except ValueError:
        number = logging.getLevelName(text.upper())
    if not isinstance(number, int):
        number = -1
    if number < 0:
        raise ValueError(
            f"Invalid logger-level {text}: it is neither a positive number nor a level such as DEBUG, INFO, WARNING or "
            "ERROR"
        )
    return number


def queue_names(text: str) -> str:
    """Return a text that has a name between its commas, or raise `ValueError`."""
    text.encode()  # bytes of the command line that are not UTF-8 raise here
    if not text.replace(",", "").strip():
        raise ValueError(f"no queue is named by {text!r}")
    return text


def queue_strategy(text: str) -> str:
    """Return a text that is a strategy, or raise `ValueError`."""
    if text not in QUEUE_STRATEGIES:
        raise ValueError(f"{text!r} is none of {', '.join(QUEUE_STRATEGIES)}")
    return text


def modules(text: str) -> str:
    """Return a text that has names of modules between its commas, or raise `ValueError`."""
    try:
        module_names(text)
    except ConfigurationException as error:
        raise ValueError(str(error)) from None
    return text


def _between(low: int, number: Number, high: int) -> Number:
    if low <= number <= high:
        return number
    raise OutOfRange(f"a number from {low} to {high}")


class WorkerOption(Option):
    """An option whose value is checked as it is read.

    Parameters
    ----------
    flags: str
        The spellings of the option. Its name, if no ``dest`` is given, is made from the first.
    check: callable
        Takes the value, converted to the option's ``type``, and returns what to use, or raises `ValueError`.
    attributes
        What `optparse.Option` takes.
    """

    group = ""  # the title above the option in the help

    def __init__(self, *flags: str, check: Callable[[Any], Any] | None = None, **attributes: Any) -> None:
        super().__init__(*flags, **attributes)
        self.check = check

    def check_value(self, opt: str, value: str) -> Any:
        """Return the value of the option ``opt``, converted and checked."""
        converted = super().check_value(opt, value)
        try:
            return self.check(converted) if self.check else converted
        except OutOfRange as error:
            name = opt.lstrip("-")
            raise OptionValueError(f"option {opt}: The {name} argument ({value}) must be {error}") from None
        except ValueError as error:
            raise OptionValueError(f"option {opt}: {error}") from None


class ListOption(WorkerOption):
    """An option that takes all values behind it, up to the next option, as shells make several of one pattern."""

    def process(self, opt: str, value: Any, values: Values, parser: OptionParser) -> int:
        """Keep the value of the option ``opt``, and those that follow."""
        following: list[str] = parser.rargs or []
        status = super().process(opt, value, values, parser)
        while following and not following[0].startswith("-"):
            status = super().process(opt, following.pop(0), values, parser)
        return status


def grouped(title: str, *options: WorkerOption) -> tuple[WorkerOption, ...]:
    """Return the options, which from now on belong to the group of that title."""
    for option in options:
        option.group = title
    return options


EARLY_OPTIONS = (
    ListOption(
        "--pythonpath",
        action="append",
        help="A directory to add to the Python path, or several joined as in PYTHONPATH; patterns such as "
        "/srv/*/lib are expanded. May be given more than once, e.g. --pythonpath=/my/module (the current directory is "
        "the last one on the path)",
    ),
    WorkerOption(
        "--worker-config",
        help="The class that reads these options and runs the worker: WorkerConfig or a subclass, e.g. "
        "--worker-config=my.module.MyWorkerConfig (default: limpyd_jobs.workers.WorkerConfig)",
    ),
)

SCRIPT_OPTIONS = (
    *EARLY_OPTIONS,
    WorkerOption("--print-options", action="store_true", help="Print the options in use, then go on"),
    WorkerOption("--dry-run", action="store_true", help="Start the worker and end it at once, without running any job"),
    WorkerOption(
        "--database",
        help="The Redis database to use: host:port:db, host:port or a URL, e.g. --database=localhost:6379:15 "
        "or --database=redis://localhost:6379/15 (default: the environment variable LIMPYD_JOBS_DATABASE, or "
        "localhost:6379:0)",
    ),
    WorkerOption(
        "--no-title",
        action="store_false",
        dest="update_title",
        default=True,
        help="Do not show the state of the worker in the title of its process",
    ),
)

JOB_OPTIONS = grouped(
    "What to run",
    WorkerOption(
        "--queues",
        check=queue_names,
        help="The names of the queues to take jobs from, joined by commas, e.g. --queues=queue1,queue2",
    ),
    WorkerOption(
        "--queue-strategy",
        check=queue_strategy,
        help="Whose jobs come first among those of one priority: strict for those of the queue that is named first, "
        "round_robin for each queue in turn, weighted for as often as the number behind its name says, as "
        "queue1:3,queue2:1 (default: strict)",
    ),
    WorkerOption(
        "--callback",
        help="The function to call for each job, with the job and its queue, e.g. "
        '--callback=my.module.callback (default: the "run" method of the jobs)',
    ),
    WorkerOption(
        "--job-modules",
        check=modules,
        help="The modules and packages whose jobs may be run, joined by commas: they are imported at the start, "
        "packages with all that is in them, and nothing else is because a job says so, e.g. "
        "--job-modules=myapp.jobs,other (default: any but the standard library)",
    ),
    WorkerOption(
        "--worker-class",
        help="The class of the worker: Worker or a subclass, e.g. --worker-class=my.module.WorkerClass "
        "(default: limpyd_jobs.workers.Worker)",
    ),
    WorkerOption(
        "--queue-model",
        help="The model of all the queues: Queue or a subclass, e.g. --queue-model=my.module.QueueModel "
        "(default: the one of the worker class)",
    ),
    WorkerOption(
        "--error-model",
        help="The model to save errors in: Error or a subclass, e.g. --error-model=my.module.ErrorModel "
        "(default: the one of the worker class)",
    ),
    WorkerOption(
        "--processes",
        type="int",
        check=processes,
        help="In how many processes to run such a worker; with more than one, a parent starts them, and starts another "
        "one for each that ends (default: 1), e.g. --processes=4",
    ),
)

END_OPTIONS = grouped(
    "When to end",
    WorkerOption(
        "--max-loops",
        type="int",
        check=count,
        help="End after this number of jobs (default: 1000), e.g. --max-loops=100",
    ),
    WorkerOption(
        "--max-duration",
        type="float",
        check=seconds,
        help="End after this number of seconds (default: never), e.g. --max-duration=3600",
    ),
    WorkerOption(
        "--burst",
        action="store_const",
        const=True,
        help="End as soon as no job waits in the queues, paused ones aside",
    ),
    WorkerOption(
        "--burst-delayed",
        action="store_const",
        const="delayed",
        dest="burst",
        help="The same, but wait for delayed jobs, and run them",
    ),
    WorkerOption(
        "--terminate-gracefuly",
        "--terminate-gracefully",
        action="store_true",
        help="On SIGTERM, SIGINT or SIGHUP, finish the running job before ending (the default)",
    ),
    WorkerOption(
        "--no-terminate-gracefuly",
        "--no-terminate-gracefully",
        action="store_false",
        dest="terminate_gracefuly",
        help="Leave SIGTERM, SIGINT and SIGHUP alone: they end the worker at once, in the midst of a job",
    ),
    WorkerOption(
        "--grace-period",
        type="float",
        check=seconds,
        help="How many seconds the running job has to finish on SIGTERM, SIGINT or SIGHUP, before it is interrupted "
        "and put back at the front of its queue (default: as many as it needs), e.g. --grace-period=25",
    ),
)

WAIT_OPTIONS = grouped(
    "How to wait",
    WorkerOption(
        "--timeout",
        type="float",
        check=seconds,
        help="The most seconds to wait for a job before looking again at whether to end; 0 for no limit "
        "(default: 30), e.g. --timeout=5",
    ),
    WorkerOption(
        "--fetch-priorities-delay",
        type="float",
        check=interval,
        help="The most seconds between two looks for queues of new priorities (default: 25), e.g. "
        "--fetch-priorities-delay=20",
    ),
    WorkerOption(
        "--fetch-delayed-delay",
        type="float",
        check=interval,
        help="The most seconds between two looks for delayed jobs that are due (default: 25), e.g. "
        "--fetch-delayed-delay=20",
    ),
    WorkerOption(
        "--prefetch",
        type="int",
        check=prefetch,
        help="How many jobs to take from the queues at once, at most 1000, to run them one after the other "
        "(default: 1), e.g. --prefetch=100",
    ),
)

FAILURE_OPTIONS = grouped(
    "When a job fails",
    WorkerOption(
        "--requeue-times",
        type="int",
        check=count,
        help="How many times to put a failed job back in its queue (default: 0), e.g. --requeue-times=5",
    ),
    WorkerOption(
        "--requeue-priority-delta",
        type="int",
        check=delta,
        help="What to add to the priority of a job that is put back (default: -1, one level lower), e.g. "
        "--requeue-priority-delta=-2",
    ),
    WorkerOption(
        "--requeue-delay-delta",
        type="float",
        check=seconds,
        help="How many seconds to delay a job that is put back (default: 30), e.g. --requeue-delay-delta=15",
    ),
    WorkerOption(
        "--retry-policy",
        check=retry_policy,
        help="When to try again a job that failed, instead of what the three options before say: after these seconds, "
        "or random ones that grow up to a cap, after which exceptions, up to which age of the job (default: none), "
        "e.g. --retry-policy=delays=1:10:60 or --retry-policy=times=5,cap=10m,max_age=1d",
    ),
    WorkerOption(
        "--lease",
        type="float",
        check=interval,
        help="How many seconds without a sign of life from its worker make a running job one to be rescued "
        "(default: 60), e.g. --lease=300",
    ),
    WorkerOption(
        "--max-rescues",
        type="int",
        check=count,
        help="How often a job may lose its worker before it is an error (default: 3), e.g. --max-rescues=0",
    ),
    WorkerOption(
        "--job-timeout",
        type="float",
        check=seconds,
        help="How many seconds a job may run, unless it or its class says something else, before it is an error; 0 for "
        "no limit (default: no limit), e.g. --job-timeout=3600",
    ),
    WorkerOption(
        "--save-errors",
        action="store_true",
        help="Save an object of the error model (the default)",
    ),
    WorkerOption(
        "--no-save-errors",
        action="store_false",
        dest="save_errors",
        help="Do not save an object of the error model",
    ),
    WorkerOption(
        "--save-tracebacks",
        action="store_true",
        help="Save the traceback with the error (the default)",
    ),
    WorkerOption(
        "--no-save-tracebacks",
        action="store_false",
        dest="save_tracebacks",
        help="Do not save the traceback with the error",
    ),
)

KEEP_OPTIONS = grouped(
    "What to keep",
    WorkerOption(
        "--keep-success",
        check=retention,
        help="How many jobs that succeeded to keep in each queue, or for how long: a number, or one with d, h, m or s "
        "behind it (default: all), e.g. --keep-success=1000 or --keep-success=7d",
    ),
    WorkerOption(
        "--keep-errors",
        check=retention,
        help="The same for jobs that failed (default: all), e.g. --keep-errors=30d",
    ),
)

LOG_OPTIONS = grouped(
    "What to log",
    WorkerOption(
        "--logger-name",
        help='The name of the logger (default: "limpyd-jobs"), e.g. --logger-name=limpyd-jobs.my-job',
    ),
    WorkerOption(
        "--logger-level",
        check=level,
        help="The least level to log, as a name or a number (default: INFO), e.g. --logger-level=ERROR",
    ),
)

OPTIONS: tuple[Option, ...] = (
    *SCRIPT_OPTIONS,
    *JOB_OPTIONS,
    *END_OPTIONS,
    *WAIT_OPTIONS,
    *FAILURE_OPTIONS,
    *KEEP_OPTIONS,
    *LOG_OPTIONS,
)
