"""From a command line to a worker that runs."""

from __future__ import annotations

import gc
import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib.metadata import version
from optparse import Option, OptionParser
from typing import Any, NoReturn

from redis.exceptions import RedisError
from setproctitle import setproctitle

from limpyd_jobs.commandline import environment
from limpyd_jobs.commandline.parameters import OPTIONS
from limpyd_jobs.commandline.parser import (
    WorkerOptionParser,
    cannot_use_redis,
    directories_of,
    import_for,
    names_of_application,
    path_of,
    require_subclass,
)
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.models import BaseJobsModel, Error, Queue
from limpyd_jobs.redis.database import database_name, parse_database
from limpyd_jobs.texts import LOGGED, one_line
from limpyd_jobs.threads import Heartbeat
from limpyd_jobs.version import EXACT_VERSION
from limpyd_jobs.workers.process.pool import WorkerPool
from limpyd_jobs.workers.process.reloading import is_child, places_of, run_reloading
from limpyd_jobs.workers.process.system import WorkerTitle, notify, watchdog_interval
from limpyd_jobs.workers.worker import Worker

LOG_FORMAT = "[%(process)d] %(asctime)s (%(name)s) %(levelname)-8s %(message)s"
SIGNALS = (
    "Signals: SIGTERM, SIGINT and SIGHUP end the worker after its job; a second SIGINT from a terminal (Ctrl-C) puts "
    "the job back at the front of its queue. SIGUSR2 makes the worker quiet: it begins no other job until it is ended. "
    "SIGUSR1 logs what it does, and where."
)

# For how many seconds a worker of the command waits for a Redis that does not answer, unless it is given a time: as
# long as a server or a container takes that starts beside it.
WAIT_FOR_REDIS = 60

UNAVAILABLE = 1  # exit status: Redis cannot be used right now, whatever the command line is


class LogFormatter(logging.Formatter):
    """Writes records as its base does, but formats the date only once a second."""

    _last: tuple[int, str] = (0, "")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        second = int(record.created)
        if self._last[0] != second:
            self._last = second, time.strftime(self.default_time_format, self.converter(second))
        return f"{self._last[1]},{int(record.msecs):03}"


class WorkerConfig:
    """Reads a command line, prepares the models and the worker that it asks for, and runs the worker.

    An error is told in one line on standard error. For a wrong command line the exit status is 2. If Redis cannot be
    used when the worker is about to run, it is 1.

    With ``--processes``, the parent does all of this up to the first question to Redis. Each child begins at
    `prepare_worker`, with a worker of its own.

    Subclass it, and name the subclass with ``--worker-config``, to do something before the worker's class is
    imported, or to add options. All options are in ``options``. An option that is in the ``parameters`` of the
    worker's class is passed to the worker.

    >>> from optparse import make_option
    >>> class MyWorkerConfig(WorkerConfig):
    ...     option_list = WorkerConfig.option_list + (make_option("--tenant", help="Whose jobs to run"),)
    ...
    ...     def __init__(self, argv=None):
    ...         django.setup()
    ...         super().__init__(argv)

    Parameters
    ----------
    argv: sequence of str
        The command line, with or without the name of the program before the options; by default, the command line of
        the process.

    Attributes
    ----------
    argv, prog_name: list of str, str
        The command line, and the name of the program.
    parser: optparse.OptionParser
    options, args: optparse.Values, list of str
        The options, None if not given, with classes and callback imported; and the other arguments.
    logger_level: int
        The level that is given, or None.
    database_config: dict
        The settings of the given database, or None.
    update_title: bool
        Whether the title of the process shows the state of the worker.
    worker: Worker
        None until `prepare_worker`.
    """

    help = "Run a worker using redis-limpyd-jobs"
    option_list: tuple[Option, ...] = OPTIONS

    def __init__(self, argv: Sequence[str] | None = None) -> None:
        self.argv = list(argv or sys.argv)
        self.prog_name = os.path.basename(sys.argv[0] if self._begins_with_option() else self.argv[0])
        self.worker: Worker | None = None
        self._title: WorkerTitle | None = None
        self.manage_options()
        self.update_proc_title()

    def _begins_with_option(self) -> bool:
        return self.argv[0].startswith("-")

    # Reading the command line

    def usage(self) -> str:
        """Return the text above the options in the help; ``%prog`` stands for the name of the program."""
        return f"%prog [options]\n\n{self.help}"

    def get_version(self) -> str:
        """Return the versions of this library and of limpyd."""
        return f"(redis-limpyd-jobs {EXACT_VERSION}, redis-limpyd {version('redis-limpyd')})"

    def create_parser(self) -> OptionParser:
        """Return the parser of the command line, which knows the options of `option_list`."""
        version = f"%prog {self.get_version()}"
        parser = WorkerOptionParser(prog=self.prog_name, usage=self.usage(), version=version, epilog=SIGNALS)
        parser.add_grouped_options(self.option_list)
        return parser

    def manage_options(self) -> None:
        """Read the command line into ``options`` and ``args``, and import what it names."""
        self.parser = self.create_parser()
        self.options, self.args = self.parser.parse_args(self.argv)
        self._warn_of_arguments()
        self.do_imports()
        self.logger_level = self.options.logger_level
        self.database_config = self._read_database()
        self.update_title = self.options.update_title

    def _warn_of_arguments(self) -> None:
        """Warn of arguments that are not options: only subclasses that read ``args`` can use them."""
        surplus = self.args if self._begins_with_option() else self.args[1:]
        if surplus:
            texts = " ".join(map(repr, surplus))
            print(f"{self.prog_name}: warning: ignored, because it belongs to no option: {texts}", file=sys.stderr)

    def _read_database(self) -> dict[str, Any] | None:
        if not self.options.database:
            return None
        try:
            return parse_database(self.options.database)
        except ConfigurationException as error:
            self.parser.error(f"option --database: {error}")

    def do_imports(self) -> None:
        """Replace, in ``options``, the paths by the classes and the callback that they name."""
        for name, base in (("worker_class", Worker), ("queue_model", Queue), ("error_model", Error)):
            self.do_import(name, Worker if base is Worker else getattr(self.options.worker_class, name))
            require_subclass(self.parser, name, getattr(self.options, name), base)
        self.do_import("callback", self.options.worker_class.callback)
        if self.options.callback is not None and not callable(self.options.callback):
            self.parser.error(f"option --callback: The callback is not callable: {self.options.callback!r}")

    def do_import(self, name: str, default: Any) -> None:
        """Replace, in ``options``, the path of one option by the object that it names, or None by a default."""
        value = getattr(self.options, name) or default
        if isinstance(value, str):
            value = import_for(self.parser, name, value)
        setattr(self.options, name, value)

    # Preparing and running the worker

    def execute(self) -> None:
        """Do what the command line asks for, until the worker ends."""
        with self._errors_in_one_line():
            if self._reloads():
                sys.exit(self._run_reloading())
            self.prepare_models()
            self.prepare_worker()
            if self.options.print_options:
                self.print_options()
            self._worker()._check_connection(WAIT_FOR_REDIS)
        settings = self._worker()._settings
        if settings.concurrency > 1:
            # A full collection stops all coroutines. It need not look at the code of the application each time.
            gc.collect()
            gc.freeze()
        if (settings.processes > 1 or settings.kill_after) and not self._worker().end_forced:
            self._run_processes()
        else:
            self.run()

    def _reloads(self) -> bool:
        """Whether to run a child that begins anew when code has changed, unless the option is the application's own."""
        is_given = bool(getattr(self.options, "reload", None)) and "reload" not in names_of_application(self.parser)
        return is_given and not (self.options.dry_run or is_child())

    def _run_reloading(self) -> int:
        modules = self.options.job_modules or environment.job_modules() or ""
        directories = directories_of(self.options.pythonpath or environment.python_path())
        return run_reloading(places_of(modules.split(",") if modules else (), directories))

    @contextmanager
    def _errors_in_one_line(self) -> Iterator[None]:
        """End the program if it cannot work, and say why."""
        try:
            yield
        except ConfigurationException as error:
            self.parser.error(str(error))
        except RedisError as error:
            self._exit_without_redis(error)

    def _exit_without_redis(self, error: RedisError) -> NoReturn:
        reason, settings = cannot_use_redis(error), getattr(self.worker, "_settings", None)
        if settings and settings.shards:
            place = f"shard {settings.home}, {settings.shards.name_of(settings.home)}"
            reason = f"{place}: {cannot_use_redis(error, '--shards')}"
        self.parser.exit(UNAVAILABLE, f"{self.prog_name}: error: {reason}\n")

    def prepare_models(self) -> None:
        """Move all models of this library, and the models of the worker, to the given database."""
        if self.database_config is not None:
            for model in (BaseJobsModel, self.options.queue_model, self.options.error_model):
                model.database.reset(**self.database_config)

    def prepare_worker_options(self) -> dict[str, Any]:
        """Return the arguments for the worker's class: its parameters that are given."""
        worker_class, theirs = self.options.worker_class, names_of_application(self.parser)
        names = [name for name in worker_class.parameters if not (name in theirs and worker_class._is_new(name))]
        given = {name: getattr(self.options, name, None) for name in names}
        if "job_modules" in given:
            given["job_modules"] = given["job_modules"] or environment.job_modules()
        return {name: value for name, value in given.items() if value is not None}

    def prepare_worker(self) -> None:
        """Create the worker, and show its state and its logs from now on. With ``--dry-run`` it will end at once.

        It raises `ConfigurationException` if the worker cannot work with its options.
        """
        self.worker = self.options.worker_class(**self.prepare_worker_options())
        if self.worker._settings.shards is not None and self.database_config is not None:
            raise ConfigurationException("the databases are those of --shards: leave --database out")
        self.worker._add_update_status_callback(self.update_proc_title)
        self.worker._add_update_status_callback(_notify_of_end)
        self.worker._run_state.on_ready.append(partial(notify, "READY=1"))
        self._ensure_log_handler(self.worker)
        self.update_proc_title()
        if self.options.dry_run:
            self.worker.end_forced, self.worker._run_state.why = True, "--dry-run"

    @staticmethod
    def _ensure_log_handler(worker: Worker) -> None:
        root, takes_all = logging.getLogger(), worker._settings.log_format == "json" and worker.logger.propagate
        if worker.logger.handlers or (takes_all and _is_ours(root.handlers)):
            return
        shown = [each for each in _handlers_above(worker.logger) if _shows(each, worker.logger.level)]
        if shown and not takes_all:
            return
        for each in shown:  # each line would be there twice
            each.addFilter(lambda record: record.name != worker.logger.name)
        handler = logging.StreamHandler()
        handler.setFormatter(_formatter(worker._settings.log_format))
        (root if takes_all and not root.handlers else worker.logger).addHandler(handler)  # jobs log, too

    def print_options(self) -> None:
        """Print what the script and the worker will use."""
        print("The script is running with the following options:")
        print(f" - dry-run = {bool(self.options.dry_run)}")
        print(f" - worker-config = {_printable(type(self))}")
        settings = self.options.queue_model.database.connection_settings
        print(f" - database = {_printable(database_name(settings))}")
        print(f" - worker-class = {_printable(self.options.worker_class)}")
        print("The worker will run with the following options:")
        for name in self.options.worker_class.parameters:
            print(f" - {name.replace('_', '-')} = {_printable(getattr(self.worker, name, None))}")

    def run(self) -> None:
        """Run the worker."""
        worker, interval = self._worker(), watchdog_interval()
        with Heartbeat(interval, partial(notify, "WATCHDOG=1")) if interval else nullcontext():
            try:
                worker.run()
            except (ConfigurationException, RedisError) as error:
                if worker.status != "starting":
                    raise
                with self._errors_in_one_line():
                    raise error

    def _run_processes(self) -> None:
        """Run a worker in each of several processes, until all have ended."""
        worker = self._worker()
        worker.stop_handling_end_signal()
        worker.connection.connection_pool.disconnect()
        settings = worker._settings
        pool = WorkerPool(
            settings.processes,
            self._prepare_another,
            lambda _: self.run(),
            grace_period=settings.grace_period,
            health_port=settings.health_port,
            health_host=settings.health_host,
            health_file=settings.health_file,
            stalled_after=settings.stalled_after,
            logger=worker.logger,
            on_change=self._update_parent_title,
        )
        with self._errors_in_one_line():
            status = pool.run()
        if status:
            sys.exit(status)

    def _prepare_another(self) -> Worker:
        with self._errors_in_one_line():
            self.prepare_worker()
            self._worker()._check_connection(WAIT_FOR_REDIS)
        return self._worker()

    def _worker(self) -> Worker:
        if self.worker is None:
            raise ConfigurationException("There is no worker yet: prepare_worker() comes first")
        return self.worker

    # The title of the process

    def update_proc_title(self, worker: Worker | None = None) -> None:
        """Show `get_proc_title` as the title of the process, unless ``--no-title`` is given.

        The worker calls this with itself each time its status changes.
        """
        if self.update_title:
            setproctitle(self.get_proc_title())

    def _update_parent_title(self, processes: WorkerPool) -> None:
        if self.update_title:
            queues, alive = ",".join(self._worker().queues), f"{processes.alive}/{processes.number}"
            setproctitle(f"{self._program} [{processes.status}] queues={queues} processes={alive}")

    def get_proc_title(self) -> str:
        """Return the title: the program and the state of the worker."""
        if self.worker is None:
            return f"{self._program} [init]"
        if self._title is None or self._title.worker is not self.worker:
            self._title = WorkerTitle(self._program, self.worker)
        return str(self._title)

    @property
    def _program(self) -> str:
        return self.prog_name.removesuffix(".py")


def _is_ours(handlers: Sequence[logging.Handler]) -> bool:
    return [type(each.formatter).__name__ for each in handlers] == ["JsonFormatter"]


def _handlers_above(logger: logging.Logger) -> Iterator[logging.Handler]:
    """Yield the handlers of other loggers that get what a logger is given."""
    while logger.propagate and logger.parent:
        logger = logger.parent
        yield from logger.handlers


def _shows(handler: logging.Handler, level: int) -> bool:
    """Whether a handler writes all from a level on to the terminal, or to what stands for it."""
    stream = getattr(handler, "stream", None) or getattr(getattr(handler, "console", None), "file", None)
    return handler.level <= level and stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)


def _formatter(log_format: str) -> logging.Formatter:
    if log_format == "json":
        from limpyd_jobs.workers.json_log import JsonFormatter  # most logs are text

        return JsonFormatter()
    return LogFormatter(LOG_FORMAT)


def _notify_of_end(worker: Worker) -> None:
    if worker.end_forced or worker.status == "terminated":
        notify("STOPPING=1")


def _printable(value: Any) -> str:
    """Return an option as `WorkerConfig.print_options` shows it, in one line."""
    if isinstance(value, (list, tuple)):
        value = ",".join(map(str, value))
    elif getattr(value, "__func__", None) is Worker.execute:
        value = '<jobs "run" method>'
    elif callable(value) and not isinstance(value, type):
        value = path_of(value)
    return one_line(value, LOGGED)
