"""``limpyd-jobs schedules``: jobs that are added at set times."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from limpyd.exceptions import DoesNotExist, UniquenessError

from limpyd_jobs.arguments import read_priority
from limpyd_jobs.commandline.options import WorkerOption, for_verbs, seconds
from limpyd_jobs.commands.shared.names import unknown_names
from limpyd_jobs.commands.shared.options import COMMON_OPTIONS, JSON, JSONL, UNAUDITED
from limpyd_jobs.commands.shared.verbs import Verb, VerbCommand, job_class_of
from limpyd_jobs.exceptions import ConfigurationException, LimpydJobsException
from limpyd_jobs.query.schedules import notes_of
from limpyd_jobs.records.lazy_fields import pk_of
from limpyd_jobs.schedules import Schedule
from limpyd_jobs.schedules.misfires import MISFIRE_POLICIES
from limpyd_jobs.schedules.model import aware, now_of_redis
from limpyd_jobs.texts import one_line

HEADING = ("name", "state", "next run (UTC)", "last run (UTC)", "job", "queue", "priority", "time zone", "trigger")

# By the name in JSON, in the same order: the field of the schedule.
FIELDS_SHOWN = {
    "next_run": "next_run",
    "last_run": "last_run",
    "job": "job_model_repr",
    "queue": "queue_name",
    "priority": "priority",
    "timezone": "timezone",
    "trigger": "trigger",
}


class Schedules(VerbCommand):
    """Exit status: 0; 2 if the command line is wrong, or names a schedule that does not exist."""

    summary = "Add jobs at set times: list, add, pause, resume and remove schedules"
    words = """[list|next|add|pause|resume|run-now|remove] [NAME] [JOB_CLASS] [options]

  list                    all of them, with their next times, and why a job is not run in time; without a word, too
  next NAME               the next ten times of a schedule
  add NAME JOB_CLASS      a new one, with one of --cron, --interval, --date and --trigger; prints its first time
  pause NAME, resume NAME
  run-now NAME            add its job now, beside its times
  remove NAME             for good; jobs that are queued stay"""
    option_list = (
        *COMMON_OPTIONS,
        *for_verbs(
            "add",
            WorkerOption("--cron", help="five fields as in crontab, six with seconds first, or as @daily"),
            WorkerOption("--interval", type="float", check=seconds, help="the seconds between two times, from now on"),
            WorkerOption("--date", help="once, as 2030-12-31T23:00:00, by --timezone unless it says otherwise"),
            WorkerOption("--trigger", help="the description of any trigger, as JSON"),
            WorkerOption("--timezone", help="the time zone of the times, e.g. Europe/Paris (default: UTC)"),
            WorkerOption(
                "--identifier",
                help="for the jobs, with {name} and {time} (default: {name}, or {name}:{time} if all are made up for)",
            ),
            WorkerOption("--queue", dest="queue_name", help="the name of the queue (default: the one of the class)"),
            WorkerOption("--priority", help="the priority of the jobs (default: the one of the class)"),
            WorkerOption(
                "--misfire-policy",
                help=f"what to run of missed times: {', '.join(MISFIRE_POLICIES)} (default: {MISFIRE_POLICIES[0]})",
            ),
            WorkerOption(
                "--misfire-grace-time",
                type="float",
                check=seconds,
                help="how many seconds late a time may be run (default: any; a minute with --misfire-policy=none)",
            ),
            WorkerOption("--fields", help='other fields of the jobs, as JSON, e.g. {"to": "ann"}'),
            WorkerOption("--paused", action="store_true", help="paused at first (default: not)"),
        ),
        *for_verbs("add pause resume run-now remove", UNAUDITED),
        JSON,
        JSONL,
    )
    refusals = (
        *VerbCommand.refusals,
        *(AttributeError, DoesNotExist, ImportError, LimpydJobsException, RecursionError, UniquenessError),
    )

    def verbs(self) -> Mapping[str, Verb]:
        return {
            "list": self._list,
            "next": self._next,
            "add": self._add,
            "pause": lambda words: self._change("pause", words, Schedule.pause),
            "resume": lambda words: self._change("resume", words, Schedule.resume),
            "run-now": lambda words: self._change("run-now", words, self._run_now),
            "remove": lambda words: self._change("remove", words, Schedule.delete),
        }

    def _change(self, verb: str, words: Sequence[str], act: Callable[[Schedule], None]) -> None:
        schedule = self._named(verb, words)
        needs_room = verb in ("pause", "run-now")
        with self.audited(f"schedules {verb}", words[0], needs_room=needs_room, refusals=self.refusals):
            act(schedule)

    def _named(self, verb: str, words: Sequence[str]) -> Schedule:
        [name] = self._as_many(verb, words, "NAME")
        schedule = Schedule.get_by_name(name)
        key = f"{Schedule._name}:{pk_of(schedule)}:hash"
        kind = Schedule.get_connection().type(key)
        if kind not in ("hash", "none"):
            raise ValueError(f"{key} is a {kind}: limpyd-jobs check --repair deletes it; then add {name!r} again")
        return schedule

    def _as_many(self, verb: str, words: Sequence[str], *wanted: str) -> Sequence[str]:
        """Return the words after a verb. It is an error if the verb needs more or fewer."""
        if len(words) != len(wanted):
            what = " ".join(wanted) or "nothing"
            given = f", not {' '.join(words)!r}" if words else ""
            self.parser.error(f"{verb} needs {what} after it{given}")
        return words

    def _list(self, words: Sequence[str]) -> None:
        self._as_many("list", words)
        found = sorted((stored for _, stored in Schedule.read_many(Schedule.collection())), key=_name)
        notes = notes_of(found)
        self.print_list(
            map(_as_json, found, notes),
            HEADING,
            ([*_texts(each).values()] for each in found),
            ("time zone", "priority", "last run (UTC)", "queue", "trigger"),
        )
        self.print_notes(
            f"{_name(each)}: {'; '.join(of_it)}" for each, of_it in zip(found, notes, strict=True) if of_it
        )

    def _next(self, words: Sequence[str]) -> None:
        schedule = self._named("next", words)
        times = [time.isoformat() for time in schedule.next_times(10)]
        self._note_if_paused(schedule)
        if not self.print_as_json(times):
            print("\n".join(times))

    def _add(self, words: Sequence[str]) -> None:
        name, job_class = self._as_many("add", words, "NAME", "JOB_CLASS")
        options = vars(self.options)
        options_of_add = ("cron", "interval", "date", "timezone", "identifier", "queue_name", "priority")
        names = (*options_of_add, "misfire_policy", "misfire_grace_time")
        given = {option: options[option] for option in names if options[option] is not None}
        if self.options.trigger is not None:
            given["trigger"] = _parsed("--trigger", self.options.trigger)
        fields = _parsed("--fields", self.options.fields or "{}")
        found = job_class_of(job_class)
        if self.options.queue_name:
            self.note(*unknown_names([("queue", "=", self.options.queue_name)]))
        with self.audited("schedules add", name, needs_room=True, refusals=self.refusals):
            schedule = Schedule.add(name, found, paused=bool(self.options.paused), **given, **fields)
        self._note_if_paused(schedule)
        first = schedule.next_times(1)[0].isoformat()
        if not self.print_as_json({"name": name, "next_run": first}):
            print(first)

    def _note_if_paused(self, schedule: Schedule) -> None:
        if schedule.paused.hget():
            self.note("it is paused: no job is added before limpyd-jobs schedules resume")

    def _run_now(self, schedule: Schedule) -> None:
        job_class_of(schedule.job_model_repr.hget() or "")
        before = now_of_redis(Schedule)
        job = schedule.run_now()
        added = aware(job.added.hget())
        is_new = added is None or added >= before
        if not is_new:
            self.note("a job of this identifier is queued already, so none was added")
        if not self.print_as_json({"ident": job.ident, "added": is_new}):
            print(one_line(job.ident))


def _name(stored: Mapping[str, str]) -> str:
    return stored.get("name", "")


def _texts(stored: Mapping[str, str]) -> dict[str, str | None]:
    state = "paused" if stored.get("paused") else "active" if stored.get("next_run") else "over"
    return {"name": _name(stored), "state": state, **{name: stored.get(field) for name, field in FIELDS_SHOWN.items()}}


def _as_json(stored: Mapping[str, str], notes: Sequence[str]) -> dict[str, Any]:
    """Return a schedule as JSON has it; a trigger that is not JSON is a text."""
    trigger: Any = stored.get("trigger")
    with suppress(TypeError, ValueError, RecursionError):
        trigger = json.loads(trigger)
    priority = read_priority(stored.get("priority"))
    return {**_texts(stored), "priority": priority, "trigger": trigger, "notes": notes}


def _parsed(option: str, text: str) -> Any:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigurationException(f"option {option}: {text!r} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ConfigurationException(f"option {option}: it must be an object of JSON, not {text!r}")
    return found
