"""From jobs of APScheduler to the fields of their records, and back."""

from __future__ import annotations

import json
import pickle
import re
from base64 import b64decode, b64encode
from datetime import datetime, tzinfo
from functools import lru_cache
from typing import Any

from apscheduler.job import Job

from limpyd_jobs.contrib.apscheduler.records import Stored, StoredJob, moment_of, run_time_of, text_of
from limpyd_jobs.integration import codec_of, describe_trigger, one_line, trigger_of, zone_of

# The values of a job's state that are stored together with its arguments, unless they are these.
OPTIONS = {"misfire_grace_time": 1, "coalesce": True, "max_instances": 1}

# What JSON holds as it is.
PLAIN = (str, int, bool, type(None))

# The arguments of a trigger that are moments.
LIMITS = ("start_date", "end_date")

# How they are stored, as the next run time is: see `text_of`.
MOMENT = re.compile(r"-?\d+\.\d{6}", re.ASCII)

# How many triggers that were read are remembered. A job that comes again has the same one each time.
TRIGGERS = 10_000

# How many characters of the name of a job are shown.
MAX_NAME = 1000


class Serializer:
    """From jobs to fields, and back: as ``json``, or as ``pickle`` where JSON cannot hold a value. Reading one runs
    any code that stands in Redis, so no other application may write to that database."""

    def __init__(self, kind: str, protocol: int = pickle.HIGHEST_PROTOCOL) -> None:
        if kind not in ("json", "pickle"):
            raise ValueError(f"The serializer must be 'json' or 'pickle', not {kind!r}")
        if not str(protocol).isdecimal() or int(protocol) > pickle.HIGHEST_PROTOCOL:  # a file of settings gives text
            raise ValueError(f"pickle_protocol must be from 0 to {pickle.HIGHEST_PROTOCOL}, not {protocol!r}")
        self.is_pickle = kind == "pickle"
        self._protocol = int(protocol)

    def dump(self, job: Job) -> dict[str, str]:
        """Return the fields of a job; raise `TypeError` or `ValueError` that says what cannot be stored."""
        options = {name: getattr(job, name) for name, usual in OPTIONS.items() if getattr(job, name) != usual}
        call = self.dump_call(job, **options)
        return {
            "name": job.name,
            "func": job.func_ref,
            "executor": job.executor,
            "next_run_time": text_of(job.next_run_time),
            **self._dumped_trigger(job),
            "state": call,
        }

    def dump_advance(self, job: StoredJob) -> dict[str, str]:
        """Return the fields of a job that change when it is due: also a trigger that is a pickle, which may count."""
        fields = {"next_run_time": text_of(job.next_run_time)}
        return fields if _is_json(job.as_read["trigger"]) else {**fields, **self._dumped_trigger(job)}

    def dump_call(self, job: Job, **options: Any) -> str:
        """Return the text of the arguments of a job, and of some options."""
        state = job.__getstate__()
        args, kwargs = list(state["args"]), dict(state["kwargs"])
        call = {**options, "args": args, **({"kwargs": kwargs} if kwargs else {})}
        try:
            for name, value in [*enumerate(args), *kwargs.items()]:
                _check_argument(f"The argument {name!r} of the job {job.id!r}", value)
            return _as_json(call)
        except (TypeError, ValueError):
            if not self.is_pickle:
                raise
            return self._pickled(call)

    def load(self, pk: str, stored: Stored, zone: tzinfo) -> StoredJob:
        """Return a job by its fields, or raise any exception. The zone is for a time whose trigger has none."""
        state = self.load_call(stored["state"])
        trigger = self._loaded_trigger(stored["trigger"], stored.get("timezone"))
        state.update(
            id=pk,
            name=one_line(stored["name"], MAX_NAME),  # APScheduler logs it as it is
            func=stored["func"],
            executor=stored["executor"],
            args=tuple(state["args"]),
            trigger=trigger,
            next_run_time=moment_of(run_time_of(stored), getattr(trigger, "timezone", None) or zone),
        )
        job = StoredJob.__new__(StoredJob)
        job.__setstate__(state)
        job.as_read, job.is_refused = stored, False
        return job

    def _dumped_trigger(self, job: Job) -> dict[str, str]:
        try:
            description, zone = _shortened(job.trigger)
            return {"trigger": _as_json(description), "timezone": zone}
        except (TypeError, ValueError) as error:
            if self.is_pickle:
                return {"trigger": self._pickled(job.trigger), "timezone": ""}
            raise TypeError(
                f"The trigger of the job {job.id!r} cannot be stored as JSON (serializer='pickle' may): {error}"
            ) from error

    def _pickled(self, value: Any) -> str:
        return b64encode(pickle.dumps(value, self._protocol)).decode()

    def _loaded_trigger(self, text: str, zone: str | None) -> Any:
        if not _is_json(text):
            return self._loaded(text)
        kind, state = _described_trigger(text, zone or "UTC")
        trigger = kind.__new__(kind)  # each job has its own, as an application may change it
        trigger.__setstate__(state)
        return trigger

    def load_call(self, text: str) -> dict[str, Any]:
        """Return the values that `dump_call` has stored, with all options."""
        return {**OPTIONS, "kwargs": {}, **self._loaded(text)}

    def _loaded(self, text: str) -> Any:
        if _is_json(text):
            return codec_of(json).load(text)
        if not _is_pickle(text):
            raise ValueError(f"it is neither a JSON object nor a pickle: {one_line(text)}")
        if not self.is_pickle:
            raise ValueError("it is stored as a pickle, but only JSON is read here")
        return codec_of(pickle).load(text)


@lru_cache(TRIGGERS)
def _described_trigger(text: str, zone: str) -> tuple[Any, Any]:
    """Return the class and the state of the trigger of a stored description."""
    trigger = trigger_of(_lengthened(codec_of(json).load(text), zone_of(zone)), zone)
    return type(trigger), trigger.__getstate__()


def _shortened(trigger: Any) -> tuple[dict[str, Any], str]:
    """Return the description of a trigger as it is stored, and its time zone, which is empty for UTC."""
    # Redis needs half of the memory for a record if no value has more than 64 bytes, as an interval would have.
    ((kind, what),) = describe_trigger(trigger).items()
    if not isinstance(what, dict):
        return {kind: what}, ""
    zone = what.pop("timezone", "UTC")
    short = {name: _short(name, value, trigger.timezone) for name, value in what.items()}
    return {kind: short}, "" if zone == "UTC" else zone


def _short(name: str, value: Any, zone: tzinfo) -> Any:
    if name in LIMITS and "T" in value:  # the one of a calendar is a date
        moment = datetime.fromisoformat(value)
        return text_of(moment) if moment.astimezone(zone).isoformat() == value else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _lengthened(stored: Any, zone: tzinfo) -> Any:
    """Return the description of a trigger from the stored one, shortened or not."""
    if not isinstance(stored, dict):
        return stored
    return {
        kind: {name: _long(name, value, zone) for name, value in what.items()} if isinstance(what, dict) else what
        for kind, what in stored.items()
    }


def _long(name: str, value: Any, zone: tzinfo) -> Any:
    if name in LIMITS and MOMENT.fullmatch(str(value)):
        moment = moment_of(value, zone)
        return moment and moment.isoformat()
    return value


def _check_argument(what: str, value: Any) -> None:
    """Raise `TypeError`, or `ValueError`, if JSON cannot hold a value, or Redis cannot hold its text."""
    text = value if type(value) in PLAIN else codec_of(json).stored(what, value)
    try:
        str(text).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} has half of a character, which cannot be stored: {error}") from None


def _as_json(value: Any) -> str:
    text = codec_of(json).dump(value)
    text.encode()  # JSON of ours may hold half of a character, which Redis cannot
    return text


def _is_json(text: str) -> bool:
    """Return whether a stored text is meant to be JSON, and not a pickle."""
    return text.startswith("{")


def _is_pickle(text: str) -> bool:
    """Return whether a stored text is the Base64 of a pickle, all of which end with a dot."""
    try:
        return b64decode(text, validate=True).endswith(pickle.STOP)
    except ValueError:
        return False
