"""``limpyd-jobs schedules``: jobs that are added at set times."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from limpyd_jobs.commandline.options import WorkerOption, for_verbs, seconds
from limpyd_jobs.commands.shared.options import COMMON_OPTIONS, JSON, JSONL, UNAUDITED
from limpyd_jobs.commands.shared.verbs import Verb, VerbCommand, job_class_of
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.query.scheduling import (
    REFUSALS,
    ScheduleState,
    edit_schedule,
    pause_schedule,
    remove_schedule,
    run_schedule_now,
    schedule_named,
    schedules,
)
from limpyd_jobs.schedules import Schedule
from limpyd_jobs.schedules.misfires import MISFIRE_POLICIES
from limpyd_jobs.texts import one_line
from limpyd_jobs.views.hints import unknown_names

HEADING = ("name", "state", "next run (UTC)", "last run (UTC)", "job", "queue", "priority", "time zone", "trigger")

# The attributes below that heading; and the last column, if a schedule has an owner.
SHOWN = ("name", "state", "next_run", "last_run", "job", "queue", "priority", "timezone", "trigger")
OWNER = "owner"

MISFIRES = ("misfire_policy", "misfire_grace_time")


class Schedules(VerbCommand):
    """Exit status: 0; 2 if the command line is wrong, or names a schedule that does not exist."""

    summary = "Add jobs at set times: list, add, pause, resume and remove schedules"
    words = """[list|next|add|edit|pause|resume|run-now|remove] [NAME] [JOB_CLASS] [options]

  list                    all of them, with their next times, and why a job is not run in time; without a word, too
  next NAME               the next ten times of a schedule
  add NAME JOB_CLASS      a new one, with one of --cron, --interval, --date and --trigger; prints its first time
  edit NAME               change it, with options of add: what is not given stays; prints its next time
  pause NAME, resume NAME
  run-now NAME            add its job now, beside its times
  remove NAME             for good; jobs that are queued stay"""
    examples = (
        "limpyd-jobs schedules",
        "limpyd-jobs schedules add nightly myapp.jobs.Report --cron='0 3 * * *'",
        "limpyd-jobs schedules next nightly",
    )
    merged = ("", "list")
    option_list = (
        *COMMON_OPTIONS,
        *for_verbs(
            "add edit",
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
            WorkerOption(
                "--jitter",
                type="float",
                check=seconds,
                help="delay each job by a random number of seconds, up to this one (default: 0)",
            ),
            WorkerOption("--fields", help='other fields of the jobs, as JSON, e.g. {"to": "ann"}'),
        ),
        *for_verbs(
            "list add edit", WorkerOption("--owner", help="who declares it; with list, only those of this owner")
        ),
        *for_verbs("add", WorkerOption("--paused", action="store_true", help="paused at first (default: not)")),
        *for_verbs("add edit pause resume run-now remove", UNAUDITED),
        JSON,
        JSONL,
    )
    refusals = REFUSALS

    def verbs(self) -> Mapping[str, Verb]:
        return {
            "list": self._list,
            "next": self._next,
            "add": self._add,
            "edit": self._edit,
            "pause": lambda words: self._change("pause", words, pause_schedule),
            "resume": lambda words: self._change("resume", words, pause_schedule, pauses=False),
            "run-now": self._run_now,
            "remove": lambda words: self._change("remove", words, remove_schedule),
        }

    def _change(self, verb: str, words: Sequence[str], act: Callable[..., None], **how: Any) -> None:
        [name] = self._as_many(verb, words, "NAME")
        act(name, **how, **self.how_audited)

    def _as_many(self, verb: str, words: Sequence[str], *wanted: str) -> Sequence[str]:
        """Return the words after a verb. It is an error if the verb needs more or fewer."""
        if len(words) != len(wanted):
            what = " ".join(wanted) or "nothing"
            given = f", not {' '.join(words)!r}" if words else ""
            self.parser.error(f"{verb} needs {what} after it{given}")
        return words

    def _list(self, words: Sequence[str]) -> None:
        self._as_many("list", words)
        each = self.look_at_each(schedules, owner=self.options.owner)
        rows = [(state, number) for number, some in each.items() for state in some.found]
        rows.sort(key=lambda row: row[0].name)
        found = [state for state, _ in rows]
        owners = [OWNER] if any(state.owner for state in found) else []
        self.print_list(
            found,
            (*HEADING, *owners),
            ([*_as_row(state), *(state.owner for _ in owners)] for state in found),
            ("time zone", "priority", "last run (UTC)", OWNER, "queue", "trigger"),
            [number for _, number in rows],
        )
        self.print_notes(f"{each.name}: {'; '.join(each.notes)}" for each in found if each.notes)

    def _next(self, words: Sequence[str]) -> None:
        [name] = self._as_many("next", words, "NAME")
        schedule = schedule_named(name)
        times = [time.isoformat() for time in schedule.next_times(10)]
        self._note_if_paused(schedule)
        if not self.print_as_json(times):
            print("\n".join(times))

    def _add(self, words: Sequence[str]) -> None:
        name, job_class = self._as_many("add", words, "NAME", "JOB_CLASS")
        given, fields = self._timing(), _parsed("--fields", self.options.fields or "{}")
        found = job_class_of(job_class)
        self._note_unknown_queue()
        with self.audited("schedules add", name, needs_room=True, refusals=self.refusals):
            schedule = Schedule.add(name, found, paused=bool(self.options.paused), fields=fields, **given)
        self._note_if_paused(schedule)
        first = schedule.next_times(1)[0].isoformat()
        if not self.print_as_json({"name": name, "next_run": first}):
            print(first)

    def _edit(self, words: Sequence[str]) -> None:
        [name] = self._as_many("edit", words, "NAME")
        changes = self._timing()
        if self.options.fields is not None:
            changes["job_fields"] = _parsed("--fields", self.options.fields)
        if not changes:
            self.parser.error("say what to change: see --help for the options of edit")
        self._note_unknown_queue()
        time = edit_schedule(name, **changes, **self.how_audited)
        following = time.isoformat() if time else None
        if not self.print_as_json({"name": name, "next_run": following}):
            print(following or "it is over")

    def _timing(self) -> dict[str, Any]:
        """Return the options that are given, but the fields of jobs."""
        options = vars(self.options)
        times = ("cron", "interval", "date", "timezone")
        names = (*times, "identifier", "queue_name", "priority", *MISFIRES, "jitter", OWNER)
        given = {option: options[option] for option in names if options[option] is not None}
        if self.options.trigger is not None:
            given["trigger"] = _parsed("--trigger", self.options.trigger)
        return given

    def _note_unknown_queue(self) -> None:
        if self.options.queue_name:
            self.note(*unknown_names([("queue", "=", self.options.queue_name)]))

    def _note_if_paused(self, schedule: Schedule) -> None:
        if schedule.paused.hget():
            self.note("it is paused: no job is added before limpyd-jobs schedules resume")

    def _run_now(self, words: Sequence[str]) -> None:
        [name] = self._as_many("run-now", words, "NAME")
        run = run_schedule_now(name, **self.how_audited)
        if not run.is_new:
            self.note(f"a job of this identifier {run.why_not_added}, so none was added")
        if not self.print_as_json({"ident": run.ident, "added": run.is_new}):
            print(one_line(run.ident))


def _as_row(state: ScheduleState) -> list[object]:
    trigger = state.trigger if isinstance(state.trigger, str) else json.dumps(state.trigger, ensure_ascii=False)
    return [*(getattr(state, name) for name in SHOWN[:-1]), trigger]


def _parsed(option: str, text: str) -> Any:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigurationException(f"option {option}: {text!r} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ConfigurationException(f"option {option}: it must be an object of JSON, not {text!r}")
    return found
