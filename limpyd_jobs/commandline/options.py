"""How values of options are read and checked, and the options that are not parameters of a worker."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from copy import copy
from optparse import Option, OptionParser, OptionValueError, Values
from typing import Any, TypeVar

from limpyd_jobs.classes.job_classes import module_names
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.retrying import MAX_SECONDS, SECONDS_OF

# The size of batches is measured.
AUTO = "auto"

Number = TypeVar("Number", int, float)


class OutOfRange(ValueError):
    """A number that an option cannot have; the message says what it must be."""


def one_of(*words: str) -> Callable[[str], str]:
    """Return a check that a text is one of some words."""

    def check(text: str) -> str:
        if text not in words:
            raise ValueError(f"{text!r} is not one of {', '.join(words)}")
        return text

    return check


def between(low: int, high: float) -> Callable[[Number], Number]:
    """Return a function that returns a number in a range, and raises `OutOfRange` for others."""

    def check(number: Number) -> Number:
        if low <= number <= high:
            return number
        raise OutOfRange(f"a number from {low} to {high}")

    return check


def seconds(number: float) -> float:
    """Return a duration of 0 or more seconds, as an integer if it is whole, or raise `OutOfRange`."""
    if not number >= 0:
        raise OutOfRange("a positive integer (including 0), or one with a fraction")
    duration = between(0, MAX_SECONDS)(number)
    return int(duration) if duration.is_integer() else duration


def interval(number: float) -> float:
    """Return a duration as `seconds` does, but 0 raises `OutOfRange`, too."""
    if not number > 0:
        raise OutOfRange("a positive integer, or one with a fraction")
    return seconds(number)


def time_span(text: str) -> float:
    """Return the seconds of a time span as ``90``, ``90s``, ``30m``, ``1h`` or ``2d``."""
    unit = text[-1:] if text[-1:] in SECONDS_OF else ""
    try:
        number = float(text.removesuffix(unit)) * SECONDS_OF[unit]
    except ValueError:
        raise ValueError(f"{text!r} is not a time span: write it as 90, 90s, 30m, 1h or 2d") from None
    return interval(number)


def rate(text: str) -> float:
    """Return how many there are per second, given as ``50``, ``50/s``, ``600/m``, ``1000/h`` or ``1000/d``."""
    number, _, unit = text.partition("/")
    try:
        found = float(number) / SECONDS_OF[unit]
    except (KeyError, ValueError):
        found = 0
    if not 0 < found < math.inf or (not unit and "/" in text):
        raise ValueError(f"{text!r} is not a rate: write it as 50/s, 600/m or 1000/h")
    return found


def part(text: str) -> float:
    """Return a part of one, given as ``20%`` or ``20``."""
    try:
        found = float(text.removesuffix("%")) / 100
    except ValueError:
        found = -1.0
    if not 0 <= found < 1:
        raise ValueError(f"{text!r} is not a part of the jobs: write it as 20%")
    return found


def queue_names(text: str) -> str:
    """Return a text that has a name between its commas, or raise `ValueError`."""
    text.encode()  # bytes of the command line that are not UTF-8 raise here
    if not text.replace(",", "").strip():
        raise ValueError(f"no queue is named by {text!r}")
    return text


def naming(read: Callable[[str], object]) -> Callable[[str], str]:
    """Return a check that a text has such names between its commas."""

    def check(text: str) -> str:
        try:
            read(text)
        except ConfigurationException as error:
            raise ValueError(str(error)) from None
        return text

    return check


modules = naming(module_names)


def flag_of(name: str) -> str:
    """Return the flag of an option: ``--max-loops`` of ``max_loops``."""
    return f"--{name.replace('_', '-')}"


class WorkerOption(Option):
    """An option with a `check`, which takes the converted value and returns what to use, or raises `ValueError`.

    `group` is the title above it in the help. Of the verbs of a command, only those in `verbs` support it, if there
    are any. An application may have the `new_flags`, which version 2 lacks.
    """

    verbs: Sequence[str] = ()

    def __init__(
        self,
        *flags: str,
        check: Callable[[Any], Any] | None = None,
        group: str = "",
        new_flags: Collection[str] = (),
        **attributes: Any,
    ) -> None:
        super().__init__(*flags, **attributes)
        self.check, self.group, self.new_flags = check, group, frozenset(new_flags)

    def without(self, flags: Collection[str]) -> WorkerOption:
        less = copy(self)
        less._long_opts = [flag for flag in self._long_opts if flag not in flags]
        return less

    @property
    def is_new(self) -> bool:
        return self.new_flags.issuperset(self._long_opts)

    def check_value(self, opt: str, value: str) -> Any:
        converted = super().check_value(opt, value)
        try:
            return self.check(converted) if self.check else converted
        except OutOfRange as error:
            name = opt.lstrip("-")
            raise OptionValueError(f"option {opt}: The {name} argument ({value}) must be {error}") from None
        except ValueError as error:
            raise OptionValueError(f"option {opt}: {error}") from None


def for_verbs(verbs: str, *options: WorkerOption) -> Iterator[WorkerOption]:
    """Yield copies of options that only some verbs of a command support. The help names these, if they are few."""
    for option in map(copy, options):
        option.verbs = verbs.split()
        option.help = f"{', '.join(option.verbs)}: {option.help}" if len(option.verbs) <= 3 else option.help
        yield option


class ListOption(WorkerOption):
    """An option that takes all values up to the next option, as shells replace a pattern by several values."""

    def process(self, opt: str, value: Any, values: Values, parser: OptionParser) -> int:
        following: list[str] = parser.rargs or []
        status = super().process(opt, value, values, parser)
        while following and not following[0].startswith("-"):
            status = super().process(opt, following.pop(0), values, parser)
        return status


EARLY_OPTIONS = (
    ListOption(
        "--pythonpath",
        action="append",
        help="A directory to add to the Python path, or several joined as in PYTHONPATH; patterns such as "
        "/srv/*/lib are expanded. May be given more than once, e.g. --pythonpath=/my/module (default: the environment "
        "variable LIMPYD_JOBS_PYTHONPATH; the current directory is the last one on the path)",
    ),
    WorkerOption(
        "--worker-config",
        help="The class that reads these options and runs the worker: WorkerConfig or a subclass, e.g. "
        "--worker-config=my.module.MyWorkerConfig (default: the environment variable LIMPYD_JOBS_WORKER_CONFIG, or "
        "limpyd_jobs.workers.WorkerConfig)",
    ),
)

SCRIPT_OPTIONS = (
    *EARLY_OPTIONS,
    WorkerOption(
        "--worker-class",
        help="The class of the worker: Worker or a subclass, e.g. --worker-class=my.module.WorkerClass "
        "(default: limpyd_jobs.workers.Worker)",
    ),
    WorkerOption("--print-options", action="store_true", help="Print the options in use, then go on"),
    WorkerOption(
        "--reload",
        action="store_true",
        new_flags=["--reload"],
        help="Begin anew when a file of Python has changed, in the current directory, in --pythonpath or in a package "
        "of --job-modules; the running job is finished before. Needs watchfiles",
    ),
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
