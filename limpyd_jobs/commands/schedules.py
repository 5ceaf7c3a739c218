"""``limpyd-jobs schedules``: jobs that are added at set times."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from limpyd.exceptions import DoesNotExist, UniquenessError

from limpyd_jobs.commands.command import COMMON_OPTIONS, Command
from limpyd_jobs.commands.tables import print_table
from limpyd_jobs.exceptions import ConfigurationException, LimpydJobsException
from limpyd_jobs.schedules import Schedule
from limpyd_jobs.schedules.misfires import MISFIRE_POLICIES
from limpyd_jobs.utils import MESSAGE, one_line
from limpyd_jobs.workers.options import WorkerOption, seconds

# What a name, a class or an option that cannot be used is answered with.
REFUSALS = (AttributeError, DoesNotExist, ImportError, LimpydJobsException, TypeError, UniquenessError, ValueError)

COLUMNS = ("name", "state", "next run (UTC)", "last run (UTC)", "job", "queue", "priority", "time zone", "trigger")


class Schedules(Command):
    """Exit status: 0; 2 if the command line is wrong, or names a schedule that does not exist."""

    summary = "Add jobs at set times: list, add, pause, resume and remove schedules"
    words = """[list|next|add|pause|resume|run-now|remove] [NAME] [JOB_CLASS] [options]

  list                    all of them, with their next times; also without a word
  next NAME               its next ten times
  add NAME JOB_CLASS      a new one, with one of --cron, --interval, --date and --trigger; prints its first time
  pause NAME, resume NAME
  run-now NAME            add its job now, beside its times
  remove NAME             for good; jobs that are queued stay"""
    option_list = (
        *(option for option in COMMON_OPTIONS if option.dest not in ("queue_model", "error_model")),
        WorkerOption("--cron", help="add: five fields as in crontab, six with seconds first, or as @daily"),
        WorkerOption("--interval", type="float", check=seconds, help="add: every so many seconds, from now on"),
        WorkerOption("--date", help="add: once, as 2030-12-31T23:00:00, by --timezone unless it says otherwise"),
        WorkerOption("--trigger", help="add: the description of any trigger, as JSON"),
        WorkerOption("--timezone", help="add: the time zone of the times, e.g. Europe/Paris (default: UTC)"),
        WorkerOption(
            "--identifier",
            help="add: that of the jobs, with {name} and {time} (default: {name}, or {name}:{time} if all are made up "
            "for)",
        ),
        WorkerOption("--queue", dest="queue_name", help="add: the name of the queue (default: that of the class)"),
        WorkerOption("--priority", help="add: the priority of the jobs (default: that of the class)"),
        WorkerOption(
            "--misfire-policy",
            help=f"add: what to run of missed times: {', '.join(MISFIRE_POLICIES)} (default: {MISFIRE_POLICIES[0]})",
        ),
        WorkerOption(
            "--misfire-grace-time",
            type="float",
            check=seconds,
            help="add: how many seconds late a time may be run (default: any; a minute with --misfire-policy=none)",
        ),
        WorkerOption("--fields", help='add: other fields of the jobs, as JSON, e.g. {"to": "ann"}'),
        WorkerOption("--paused", action="store_true", help="add: paused at first (default: not)"),
    )

    def run(self) -> int:
        """Do what the words say."""
        actions: dict[str, tuple[int, Callable[..., None]]] = {
            "list": (0, self._list),
            "next": (1, self._next),
            "add": (2, self._add),
            "pause": (1, lambda name: self._named(name).pause()),
            "resume": (1, lambda name: self._named(name).resume()),
            "run-now": (1, self._run_now),
            "remove": (1, lambda name: self._named(name).delete()),
        }
        verb, *words = self.given or ["list"]
        if verb not in actions:
            self.parser.error(f"{verb!r} is none of {', '.join(actions)}")
        number, action = actions[verb]
        if len(words) != number:
            wanted = " ".join(("NAME", "JOB_CLASS")[:number]) or "nothing"
            self.parser.error(f"{verb} needs {wanted} after it, not {' '.join(words) or 'nothing'!r}")
        try:
            action(*words)
        except REFUSALS as error:
            self.parser.error(one_line(error, MESSAGE))
        return 0

    def _named(self, name: str) -> Schedule:
        return Schedule.get_by_name(name)

    def _add(self, name: str, job_class: str) -> None:
        options = vars(self.options)
        options_of_add = ("cron", "interval", "date", "timezone", "identifier", "queue_name", "priority")
        names = (*options_of_add, "misfire_policy", "misfire_grace_time")
        given = {option: options[option] for option in names if options[option] is not None}
        if self.options.trigger is not None:
            given["trigger"] = _parsed("--trigger", self.options.trigger)
        fields = _parsed("--fields", self.options.fields or "{}")
        schedule = Schedule.add(name, job_class, paused=bool(self.options.paused), **given, **fields)
        print(schedule.next_times(1)[0].isoformat())

    def _run_now(self, name: str) -> None:
        print(self._named(name).run_now().ident)

    def _next(self, name: str) -> None:
        for time in self._named(name).next_times(10):
            print(time.isoformat())

    def _list(self) -> None:
        print_table([COLUMNS, *sorted(_rows())])


def _rows() -> Iterator[tuple[str, ...]]:
    for schedule in Schedule.collection().instances():
        stored = schedule.hgetall()
        state = "paused" if stored.get("paused") else "active" if stored.get("next_run") else "over"
        names = ("next_run", "last_run", "job_model_repr", "queue_name", "priority", "timezone", "trigger")
        yield stored.get("name", ""), state, *(stored.get(it, "") for it in names)


def _parsed(option: str, text: str) -> Any:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigurationException(f"option {option}: {text!r} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise ConfigurationException(f"option {option}: it must be an object of JSON, not {text!r}")
    return found
