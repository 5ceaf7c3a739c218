"""What a worker can be told: its parameters, their defaults, and what is wrong with a value."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.models import BaseJobsModel, Error, Queue, job_classes
from limpyd_jobs.ordinary import REMEDY, unordinary_kind
from limpyd_jobs.utils import utcnow
from limpyd_jobs.workers.settings import Settings, as_number, checked_amount, read_settings

NO_QUEUES = "The queue(s) to use are not defined: name them with queues=, or with --queues= on a command line"
LOGGER_NAME = "limpyd-jobs"

# The greatest weight of a queue.
MAX_WEIGHT = 1000

# How version 2 spells it, and how it is spelt.
SPELLINGS = ("terminate_gracefuly", "terminate_gracefully")


class Parameters:
    """The parameters of a worker, each also an attribute that a subclass may set. Numbers may be given as text.

    Parameters
    ----------
    queues: str, or list or tuple of str
        The names of the queues, in one string separated by commas, or one by one.
    queue_strategy: str
        Which name's jobs come first, among those of one priority: with ``strict`` those of the name that is given
        first, with ``round_robin`` each name in turn, with ``weighted`` as often as the number behind it says,
        ``mail:3``.
    callback: callable
        What to run for a job, called with the job and the queue; by default `execute`.
    queue_model: type of Queue
    error_model: type of Error
    logger_name: str
    logger_level: int
    save_errors: bool
        Whether to record failures as errors.
    save_tracebacks: bool
        Whether to record the traceback with an error.
    max_loops: int
        How many jobs to fetch before the worker ends.
    burst: bool or str
        Whether the worker ends as soon as no job waits in its queues; with ``"delayed"``, once none is delayed either.
        Those of paused queues do not count.
    max_duration: float or timedelta
        After how many seconds the worker ends; None or 0 for no limit. The attribute is a `timedelta`.
    terminate_gracefuly: bool
        Whether SIGINT, SIGTERM and SIGHUP let the running job finish. Also spelt ``terminate_gracefully``.
    timeout: float
        How many seconds one `wait_for_job` waits at the most; 0 or None for no limit.
    fetch_priorities_delay: float
        How many seconds to let pass between two looks for queues of new priorities, unless it is told of some.
    fetch_delayed_delay: float
        How many seconds at the most until a busy worker notices delayed jobs that are due.
    requeue_times: int
        How often a job that failed is put back in a queue.
    requeue_priority_delta: int
        What is added to its priority then.
    requeue_delay_delta: float
        By how many seconds it is delayed then.
    retry_policy: Retry or str
        When to try again a job that failed, instead of the three before; None to leave it to them. It is for jobs that
        have no policy of their own, nor one of their class.
    lease: float
        For how many seconds a running job is this worker's without a sign of life. The worker gives four during each
        lease; a job without one is put back in its queue by any other worker.
    max_rescues: int
        How often a job may lose its worker before it is an error, of type `WorkerLost`.
    grace_period: float
        How many seconds a job has to finish once the worker is asked to end; it is released then, to be run again.
        None for no limit.
    job_timeout: float
        After how many seconds a job that runs is an error, of type `JobTimeout`, unless the job, or its class, says
        something else. None or 0 for no limit.
    keep_success, keep_errors: int or timedelta
        How many jobs that succeeded, and that failed, to keep in each queue, or for how long; None for what the
        attributes of the queue model say.
    job_modules: str, or list or tuple of str
        The names of the modules and packages whose jobs may be run, in one string separated by commas, or one by one;
        None for any module. They are imported, packages with all that is in them. It holds for the whole process.
    prefetch: int
        How many jobs to claim at once, at most 1,000; they are run one after the other, and their ends are recorded
        together.
    processes: int
        In how many processes the command runs such a worker; see `WorkerPool`, which `run` does not use.

    Raises
    ------
    ConfigurationException
        If there is no queue, or a parameter is not what it has to be.
    """

    queues: Any = None
    queue_strategy = "strict"
    callback: Callable[[Any, Any], Any] | None = None
    queue_model: type[Queue] = Queue
    error_model: type[Error] = Error
    logger_name = LOGGER_NAME
    logger_level: int = logging.INFO
    save_errors = True
    save_tracebacks = True
    max_loops: float = 1000
    max_duration: float | timedelta | None = None
    terminate_gracefuly = True
    terminate_gracefully = True
    timeout: float | None = 30
    fetch_priorities_delay: float = 25
    fetch_delayed_delay: float = 25
    requeue_times: int | None = 0
    requeue_priority_delta: int | None = -1
    requeue_delay_delta: float | timedelta | None = 30
    retry_policy: Any = None

    lease: float = 60
    max_rescues = 3
    burst: bool | str = False
    grace_period: float | None = None
    job_timeout: float | None = None
    keep_success: int | timedelta | None = None
    keep_errors: int | timedelta | None = None
    job_modules: Any = None
    processes = 1
    prefetch = 1

    parameters: tuple[str, ...] = (
        "queues",
        "callback",
        "queue_model",
        "error_model",
        "logger_name",
        "logger_level",
        "save_errors",
        "save_tracebacks",
        "max_loops",
        "max_duration",
        "terminate_gracefuly",
        "timeout",
        "fetch_priorities_delay",
        "fetch_delayed_delay",
        "requeue_times",
        "requeue_priority_delta",
        "requeue_delay_delta",
        "retry_policy",
        "lease",
        "max_rescues",
        "burst",
        "grace_period",
        "job_timeout",
        "keep_success",
        "keep_errors",
        "job_modules",
        "processes",
        "queue_strategy",
        "prefetch",
    )

    # What is told by those parameters that version 2 does not have, and the names of them that the subclass has for
    # something else.
    _settings: Settings
    _names_of_others: list[str]

    def _set_parameters(self, given: dict[str, Any]) -> None:
        for name in self.parameters:
            if name in given:
                setattr(self, name, given[name])
        self._set_graceful(given)
        given_here = {name: given[name] for name in self.parameters if name in given}
        self._settings, self._names_of_others = read_settings(self, given_here, Parameters)

    def _set_graceful(self, given: dict[str, Any]) -> None:
        """Let both spellings say the same: what is given, else the nearest attribute."""
        for attributes in (given, vars(self), *map(vars, type(self).__mro__)):
            said = [attributes[name] for name in SPELLINGS if _is_flag(name, attributes)]
            if said:
                break
        for name in SPELLINGS:
            now = getattr(self, name, None)
            if now != said[0] and _is_flag(name, {name: now}):
                setattr(self, name, said[0])

    def _check_parameters(self) -> None:
        self.queues = self._parse_queues(self.queues)
        self._weights = dict.fromkeys(self.queues, 1)
        if self._settings.queue_strategy == "weighted":
            self._weights = dict(map(self._parse_weight, self.queues))
            self.queues = list(self._weights)
        self._assert_correct_model(self.queue_model, Queue, "queue")
        self._assert_correct_model(self.error_model, Error, "error")
        if self.callback and not callable(self.callback):
            raise ConfigurationException(f"The callback must be callable, unlike {self.callback!r}")
        self._check_is_ordinary("callback", self.callback)
        self._check_is_ordinary("execute method", getattr(self, "execute", None))
        self._check_numbers()
        if self._settings.job_modules is not None:
            try:
                job_classes.load(self._settings.job_modules)
            except ConfigurationException as error:
                raise ConfigurationException(f"job_modules: {error}") from error

    def _check_numbers(self) -> None:
        """Replace numbers that are given as text, and the number of seconds that is a timedelta in version 2."""
        checked = {"max_loops": checked_amount("max_loops", self.max_loops, most=float("inf"))}
        checked["timeout"] = checked_amount("timeout", 0 if self.timeout is None else self.timeout)
        for name in ("fetch_priorities_delay", "fetch_delayed_delay"):
            checked[name] = checked_amount(name, getattr(self, name))
        for name in ("requeue_times", "requeue_priority_delta", "requeue_delay_delta"):
            checked[name] = as_number(getattr(self, name))
            if isinstance(checked[name], str):
                raise ConfigurationException(f"{name} must be a number, not {checked[name]!r}")
        if self.max_duration:
            checked["max_duration"] = self._as_duration(self.max_duration)
        for name, value in checked.items():
            if getattr(self, name) is not value:
                setattr(self, name, value)

    @staticmethod
    def _as_duration(given: Any) -> timedelta:
        try:
            duration = (
                given if isinstance(given, timedelta) else timedelta(seconds=checked_amount("max_duration", given))
            )
            utcnow() + duration
        except OverflowError as error:
            raise ConfigurationException(f"max_duration must end before the year 10000, unlike {given!r}") from error
        return duration

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
        """Divide ``mail:3`` in the name of a queue and its weight, 1 if there is none."""
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
    def _check_is_ordinary(name: str, function: Any) -> None:
        kind = unordinary_kind(function)
        if kind:
            raise ConfigurationException(f"The {name} is {kind}: a worker would run nothing of it. {REMEDY}.")


def _is_flag(name: str, attributes: Mapping[str, Any]) -> bool:
    """Whether attributes say whether to end gracefully, under a name that may be another thing of the application."""
    return name in attributes and (name == "terminate_gracefuly" or isinstance(attributes[name], (bool, int)))
