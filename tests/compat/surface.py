"""Describes what an application can see of redis-limpyd-jobs: of whichever version this Python has.

``python -c "import surface; surface.main()" SOCKET`` writes a JSON object: dotted names, and what each of them is.

Nothing here may use a name that redis-limpyd-jobs 2 does not have.
"""

import inspect
import json
import logging
import sys
import types
from collections.abc import Mapping
from datetime import timedelta
from importlib import import_module

from limpyd.contrib.database import PipelineDatabase
from limpyd.fields import RedisField

from limpyd_jobs import Error, Job, Queue, Worker
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.workers import WorkerConfig

MODULES = (
    *("limpyd_jobs", "limpyd_jobs.models", "limpyd_jobs.workers", "limpyd_jobs.utils", "limpyd_jobs.version"),
    "limpyd_jobs.scripts.worker",
)
CLASSES = (BaseJobsModel, Queue, Job, Error, Worker, WorkerConfig)
DIFFERS_BY_RUN = ("_id", "id", "elapsed", "_creation_source")


def main():
    json.dump(dict(describe(sys.argv[1])), sys.stdout)


def describe(socket):
    """Yield names and what they are, with the Redis of a unix socket."""
    BaseJobsModel.use_database(PipelineDatabase(unix_socket_path=socket, db=0))
    for name in MODULES:
        yield from of_module(name)
    for cls in CLASSES:
        yield from of_object(cls.__name__, cls)
    yield from of_object("job", Job.add_job("surface", "surface"))
    yield from of_object("queue", Queue.get_queue("surface"))
    config = WorkerConfig(["limpyd-jobs-worker", "--queues=surface"])
    yield from of_object("config", config)
    yield from of_object("options", config.options)
    yield from of_options(config)
    worker = Worker("surface", max_loops=1, max_duration=60, timeout=1, logger_level=logging.CRITICAL)
    yield from of_object("worker", worker)
    worker.callback = lambda job, queue: None
    worker.run()
    yield from of_object("worker that ended", worker)


def of_module(name):
    """Describe what a module defines, and what it has from other modules of this library."""
    for attribute, value in sorted(vars(import_module(name)).items()):
        owner = getattr(value, "__module__", name) or name
        if is_seen(attribute, value) and not isinstance(value, types.ModuleType) and owner.startswith("limpyd_jobs"):
            yield f"{name}.{attribute}", described(value)


def of_object(name, value):
    """Describe what can be read of a class or an instance; of an instance without the methods of its class."""
    is_class = isinstance(value, type)
    for attribute in sorted({*dir(value), *getattr(value, "_fields", ())}):
        of_class = getattr(type(value), attribute, None)
        if attribute in DIFFERS_BY_RUN or (not is_class and is_method(of_class)):
            continue
        try:
            found = getattr(value, f"_redis_attr_{attribute}", None) or getattr(value, attribute)
        except AttributeError:  # the pk of an abstract model
            continue
        if is_seen(attribute, found):
            yield f"{name}.{attribute}", described(found, is_class)


def of_options(config):
    """Describe the options of the command line, by their flags."""
    for option in config.option_list:
        for flag in option._long_opts + option._short_opts:
            yield f"option {flag}", [option.dest, option.action, str(option.type)]


def is_seen(name, value=None):
    """Whether a name is one of this library: of those with an underscore, limpyd has many."""
    owner = getattr(value, "__module__", None) or ""
    is_ours = is_method(value) and not name.startswith("__") and owner.startswith("limpyd_jobs")
    return not name.startswith("_") or is_ours


def is_method(value):
    return inspect.isroutine(value)


def described(value, is_of_class=False):
    """Return what a value is: its kind, then the parameters if it can be called, or the value itself."""
    if isinstance(value, RedisField):
        kinds = [cls.__name__ for cls in type(value).__mro__ if cls.__module__.startswith("limpyd.")]
        return ["field", kinds[0], value.indexable, getattr(value, "default", None)]
    if isinstance(value, property):
        return ["property"]
    if isinstance(value, type):
        return ["class"]
    if is_method(value):
        skips = is_of_class and inspect.isfunction(value)  # `self`: static methods aside, which have none
        return ["method" if inspect.ismethod(value) or skips else "function", *parameters(value)]
    return ["value", plain(value)]


def plain(value):
    """Return a value as JSON has it; of one that each run has another of, its type."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, timedelta):
        return f"timedelta {value}"
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(plain, value)]
    if isinstance(value, (set, frozenset)):
        return ["set", *sorted(map(str, value))]
    if isinstance(value, type):
        return value.__name__
    if is_method(value):
        return "function"
    return next(cls.__name__ for cls in type(value).__mro__ if not cls.__module__.startswith("limpyd_jobs"))


def parameters(function):
    """Return the parameters: ``name``, ``name=default``, ``*``, ``**``."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return [stars.get(one.kind) or str(one.replace(annotation=one.empty)) for one in found]
