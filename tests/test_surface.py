"""Each row of ``surface.txt`` holds: names, kinds, signatures and defaults that code written for 2.x uses.

``python tests/test_surface.py`` counts the rows.
"""

from __future__ import annotations

import ast
import inspect
import logging
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from optparse import Option, OptionParser, Values
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple

import pytest

from limpyd_jobs import STATUSES, Error, Job, Queue, Worker
from limpyd_jobs.workers import WorkerConfig

ABBREVIATIONS = {
    "BaseJobsModel": "limpyd_jobs.models.BaseJobsModel",
    "Job": "limpyd_jobs.models.Job",
    "Queue": "limpyd_jobs.models.Queue",
    "Error": "limpyd_jobs.models.Error",
    "Worker": "limpyd_jobs.workers.Worker",
    "WorkerConfig": "limpyd_jobs.workers.WorkerConfig",
}


class Row(NamedTuple):
    section: str
    item: str
    kind: str
    expected: str


def read_rows() -> list[Row]:
    rows, section = [], ""
    for line in Path(__file__).with_name("surface.txt").read_text().splitlines():
        if line.startswith("== "):
            section = line[3:]
        elif line and not line.startswith("#"):
            item, kind, *expected = line.split(maxsplit=2)
            rows.append(Row(section, item, kind, "".join(expected)))
    return rows


ROWS = read_rows()


class OtherQueue(Queue):
    namespace = "surface"


class OtherError(Error):
    namespace = "surface"


# What a parameter is once it is given one of these, if not the same.
AS_ATTRIBUTE = {"max_duration": timedelta(seconds=60)}

OTHER_VALUES = {
    "queues": ["a", "b"],
    "queue_model": OtherQueue,
    "error_model": OtherError,
    "logger_name": "limpyd-jobs.surface",
    "logger_level": logging.ERROR,
    "save_errors": False,
    "save_tracebacks": False,
    "max_loops": 7,
    "max_duration": 60,
    "terminate_gracefully": False,
    "terminate_gracefuly": False,
    "callback": print,
    "timeout": 5,
    "fetch_priorities_delay": 5,
    "fetch_delayed_delay": 5,
    "requeue_times": 3,
    "requeue_priority_delta": 2,
    "requeue_delay_delta": 15,
}

# What an option may be given, and what that is once read.
SAMPLES = {"text": ("some.name", "some.name"), "number": ("5", 5), "level": ("ERROR", logging.ERROR)}


def locate(item: str) -> Any:
    """Return what a row's item, or a path in its expectation, names."""
    first, _, rest = item.partition(".")
    path = ABBREVIATIONS.get(first, first)
    return resolve_name(f"{path}.{rest}" if rest else path)


def owner_and_name(item: str) -> tuple[Any, str]:
    owner, _, name = item.rpartition(".")
    return locate(owner), name


def static(item: str) -> Any:
    """Return an attribute as its class holds it: a property is a property, a class method a `classmethod`."""
    return inspect.getattr_static(*owner_and_name(item))


def value(text: str) -> Any:
    """Return the value of a Python literal, or what a dotted path names."""
    try:
        return ast.literal_eval(text)
    except ValueError:
        return locate(text)


def signature(function: Callable[..., Any]) -> str:
    """Return a signature as code that calls it sees it: without types."""
    found = inspect.signature(function)
    bare = [parameter.replace(annotation=parameter.empty) for parameter in found.parameters.values()]
    return str(found.replace(parameters=bare, return_annotation=found.empty))


def check_is(item: str, expected: str) -> None:
    assert locate(item) is locate(expected)


def check_subclass(item: str, expected: str) -> None:
    assert issubclass(locate(item), locate(expected))


def check_instance(item: str, expected: str) -> None:
    assert isinstance(locate(item), locate(expected))


def check_constant(item: str, expected: str) -> None:
    assert locate(item) == value(expected)


def check_callable(item: str, expected: str) -> None:
    inspect.signature(locate(item)).bind(**dict.fromkeys(expected.split()))


def check_field(item: str, expected: str) -> None:
    kind, *details = expected.split()
    details_given = dict(detail.partition("=")[::2] for detail in details)
    index_classes = [details_given["indexed"] or "EqualIndex"] if "indexed" in details_given else []
    default = value(details_given["default"]) if "default" in details_given else None

    model, name = owner_and_name(item)
    field = model.get_field(name)
    assert kind in [base.__name__ for base in type(field).__mro__]
    assert field.indexable == bool(index_classes)
    assert [index_class.__name__ for index_class in field.index_classes] == index_classes
    assert getattr(field, "default", None) == default
    assert not field.unique


def check_alias(item: str, expected: str) -> None:
    model, name = owner_and_name(item)
    instance = model.lazy_connect(1)
    assert getattr(instance, name).key == getattr(instance, expected).key


def check_status(item: str, expected: str) -> None:
    assert STATUSES[item] == getattr(STATUSES, item) == expected


def check_attribute(item: str, expected: str) -> None:
    assert locate(item) == value(expected)


def check_property(item: str, expected: str) -> None:
    assert isinstance(static(item), property)


def check_method(item: str, expected: str) -> None:
    assert inspect.isfunction(static(item))
    assert signature(locate(item)) == expected


def check_classmethod(item: str, expected: str) -> None:
    assert isinstance(static(item), classmethod)
    assert signature(locate(item)) == expected


def check_staticmethod(item: str, expected: str) -> None:
    assert isinstance(static(item), staticmethod)
    assert signature(locate(item)) == expected


def check_function(item: str, expected: str) -> None:
    assert inspect.isfunction(locate(item))
    assert signature(locate(item)) == expected


def check_bound(item: str, expected: str) -> None:
    assert signature(locate(item)) == expected


def check_ghost(item: str, expected: str) -> None:
    assert not hasattr(*owner_and_name(item))


def check_parameter(item: str, expected: str) -> None:
    assert locate(item) == value(expected)
    name = item.rpartition(".")[2]
    spelling_of_signals = {} if name == "terminate_gracefully" else {"terminate_gracefuly": False}
    worker = Worker(**{"queues": "a", **spelling_of_signals, name: OTHER_VALUES[name]})
    assert getattr(worker, name) == AS_ATTRIBUTE.get(name, OTHER_VALUES[name])


def check_starts(item: str, expected: str) -> None:
    worker = Worker("a", terminate_gracefuly=False)
    assert getattr(worker, item.rpartition(".")[2]) == value(expected)


def check_starts_as(item: str, expected: str) -> None:
    worker = Worker("a", terminate_gracefuly=False)
    assert isinstance(getattr(worker, item.rpartition(".")[2]), locate(expected))


def check_begins(item: str, expected: str) -> None:
    beginning = value(expected)
    assert locate(item)[: len(beginning)] == beginning


def find_option(text: str) -> Option:
    return next(option for option in WorkerConfig.option_list if text in option._short_opts + option._long_opts)


def check_option(item: str, expected: str) -> None:
    action, dest, *details = expected.split()
    option = find_option(item)
    assert (option.action, option.dest) == (action, dest)
    assert getattr(parse(), dest) is (True if "default=True" in details else None)
    if option.takes_value():
        text, read = SAMPLES[details[0] if details else "text"]
        assert getattr(parse(item, text), dest) == ([read] if action == "append" else read)


def parse(*arguments: str) -> Values:
    return OptionParser(option_list=WorkerConfig.option_list).parse_args(list(arguments))[0]


def config() -> WorkerConfig:
    return WorkerConfig(["limpyd-jobs-worker", "--queues=a"])


def check_parser(item: str, expected: str) -> None:
    assert config().parser.has_option(item)


def check_held(item: str, expected: str) -> None:
    assert hasattr(config(), item.rpartition(".")[2])


CHECKS: dict[str, Callable[[str, str], None]] = {
    "alias": check_alias,
    "attribute": check_attribute,
    "begins": check_begins,
    "bound": check_bound,
    "callable": check_callable,
    "classmethod": check_classmethod,
    "constant": check_constant,
    "field": check_field,
    "function": check_function,
    "ghost": check_ghost,
    "held": check_held,
    "instance": check_instance,
    "is": check_is,
    "method": check_method,
    "option": check_option,
    "parameter": check_parameter,
    "parser": check_parser,
    "property": check_property,
    "starts": check_starts,
    "starts_as": check_starts_as,
    "staticmethod": check_staticmethod,
    "status": check_status,
    "subclass": check_subclass,
}

PHASES = [row.item for row in ROWS if row.kind == "phase"]
STATIC_ROWS = [row for row in ROWS if row.kind != "phase"]


def test_what_2_x_names_is_there() -> None:
    for row in STATIC_ROWS:
        CHECKS[row.kind](row.item, row.expected)


@pytest.mark.usefixtures("redis_client")
def test_the_status_of_a_worker_goes_through_the_documented_phases() -> None:
    seen = []

    class Recorder(Worker):
        def set_status(self, status: str) -> None:
            super().set_status(status)
            seen.append(self.status)

    Job.add_job("a", "surface")
    Recorder("surface", callback=lambda job, queue: None, max_loops=1, terminate_gracefuly=False).run()
    assert list(dict.fromkeys(seen)) == PHASES


def test_there_are_no_other_statuses_than_those_named() -> None:
    assert dict(STATUSES) == {row.item: row.expected for row in ROWS if row.kind == "status"}


def test_no_row_is_written_twice() -> None:
    items = Counter((row.item, row.kind) for row in ROWS)
    assert [item for item, times in items.items() if times > 1] == []


if __name__ == "__main__":
    for section, count in Counter(row.section for row in ROWS).items():
        print(f"{count:4} {section}")
    print(f"{len(ROWS):4} rows")
