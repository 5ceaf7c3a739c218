"""``limpyd-jobs jobs``: find jobs by what is in them, look at one, and do something with all that are found."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from limpyd_jobs.commands.command import COMMON_OPTIONS, Command
from limpyd_jobs.commands.progress import shown_progress
from limpyd_jobs.commands.tables import print_json, print_json_lines, print_table
from limpyd_jobs.idents import Ident
from limpyd_jobs.query import Count, Facets, FoundJob, JobDetails, JobFilter, Page, Tally, explain_job, job_details
from limpyd_jobs.query.conditions import parse_moment
from limpyd_jobs.utils import MESSAGE, one_line
from limpyd_jobs.workers.options import WorkerOption, between, interval, seconds

REFUSALS = (LookupError, TypeError, ValueError)

# What can be done with all jobs of a filter, and what else has to be, or may be said.
VERBS = {
    "requeue": ("queue_name", "priority", "delayed_for", "delayed_until"),
    "cancel": (),
    "move": ("queue_name", "priority"),
    "delay": ("delayed_for", "delayed_until"),
    "promote": (),
    "delete": (),
}
FLAGS = {"queue_name": "--queue", "priority": "--priority", "delayed_for": "--for", "delayed_until": "--until"}


class Jobs(Command):
    """Exit status: 0; 1 if jobs could not be changed, or somebody answered no; 2 if the command line is wrong."""

    summary = "Find jobs by what is in them: list them, count them, show one, and requeue, cancel, move or delete all"
    words = """list|count|show|explain|requeue|cancel|move|delay|promote|delete [FILTER... | IDENT...] [options]

  list [FILTER...]     the newest first
  count [FILTER...]    how many there are; --by=FIELD: of each value of a field
  show IDENT...        all that is stored of a job, as myapp.jobs.SendMail:12, and its errors
  explain IDENT...     why it does not run yet, or did not

  requeue FILTER...    put those that failed back in their queues, or in --queue
  cancel FILTER...     cancel those that wait, are delayed or run
  move FILTER...       put those that wait or are delayed in --queue, with --priority
  delay FILTER...      delay those that wait or are delayed, --for so long or --until then
  promote FILTER...    let those that are delayed wait no longer
  delete FILTER...     delete those that nobody runs
They count first, and ask. A job may be named by its ident instead of a filter; --all means all jobs.

A filter is made of words, all of which must be met:
  status=error         waiting, delayed, running, success, error or canceled
  class=shop.jobs.*    the path of the class; or class=SendMail
  queue=mails, owner=web1:4711, error=KeyError (an error of that type is recorded)
  added>-1h            added, start, end, delayed_until: -30m, +2d, 2026-11-20T10:30 (UTC)
  to=ann@example.com   any other field of a job
= != > >= < <= compare. added__gt=-1h is the same as added>-1h, and needs no quotes."""
    option_list = (
        *(option for option in COMMON_OPTIONS if option.dest not in ("queue_model", "error_model")),
        WorkerOption(
            "--limit",
            type="int",
            default=50,
            check=between(1, 10_000),
            help="list: how many jobs, at the most (default: 50)",
        ),
        WorkerOption("--after", help="list: what the page before told to go on with"),
        WorkerOption("--oldest-first", action="store_true", help="list: the oldest first (default: the newest)"),
        WorkerOption("--by", metavar="FIELD", help="count: class, queue, status or any other field"),
        WorkerOption(
            "--timeout",
            type="float",
            check=seconds,
            help="list, count: after how many seconds to tell what is known by then (default: when all is known)",
        ),
        WorkerOption("--queue", help="requeue, move: the name of the queue (default: where each is, or was)"),
        WorkerOption("--priority", help="requeue, move: the priority (default: that of each job)"),
        WorkerOption(
            "--for", dest="delayed_for", type="float", check=interval, help="delay, requeue: for how many seconds"
        ),
        WorkerOption(
            "--until", dest="delayed_until", help="delay, requeue: until when, as 2026-11-20T10:30 (UTC), or +2h"
        ),
        WorkerOption("--all", action="store_true", help="Take all jobs, where a filter or idents are needed"),
        WorkerOption("--dry-run", action="store_true", help="Tell what would be done, and do nothing"),
        WorkerOption("--yes", action="store_true", help="Do not ask"),
        WorkerOption("--json", action="store_true", help="Print JSON (default: a table)"),
        WorkerOption("--jsonl", action="store_true", help="list: print JSON, a job in a line (default: a table)"),
    )

    def run(self) -> int:
        """Do what the words say."""
        verbs: dict[str, Callable[[Sequence[str]], int | None]] = {
            "list": self._list,
            "count": self._count,
            "show": self._show,
            "explain": self._explain,
            **{name: partial(self._do, name) for name in VERBS},
        }
        verb, *words = self.given or [""]
        if verb not in verbs:
            self.parser.error(
                f"{verb!r} is none of {', '.join(verbs)}" if verb else f"say what to do: {', '.join(verbs)}"
            )
        try:
            return verbs[verb](words) or 0
        except REFUSALS as error:
            self.parser.error(one_line(str(error.args[0] if error.args else error), MESSAGE))

    def _list(self, words: Sequence[str]) -> None:
        newest_first = not self.options.oldest_first
        page = JobFilter(*words).page(
            self.options.limit, self.options.after, newest_first=newest_first, timeout=self.options.timeout
        )
        if self.options.json or self.options.jsonl:
            rows = [job._asdict() for job in page.jobs]
            print_json_lines(rows) if self.options.jsonl else print_json(rows)
        else:
            print_table([FoundJob._fields, *map(_shown, page.jobs)])
        self._tell_of_more(page)

    def _tell_of_more(self, page: Page) -> None:
        if page.following:
            why = "there are more jobs" if page.is_complete else "there was no time to look at all jobs"
            print(f"{self.parser.get_prog_name()}: {why}: --after={page.following}", file=sys.stderr)

    def _count(self, words: Sequence[str]) -> None:
        asked, timeout = JobFilter(*words), self.options.timeout
        found: Count | Facets
        with shown_progress("looked at {:,} of {:,} jobs") as progress:
            if self.options.by:
                found = asked.facets(self.options.by, timeout=timeout, progress=progress)
            else:
                found = asked.count(timeout, progress)
        if isinstance(found, Facets):
            self._print_facets(found)
        else:
            self._print_count(found)
        if not found.is_exact:
            print(f"{self.parser.get_prog_name()}: there was no time to look at all jobs", file=sys.stderr)

    def _print_count(self, found: Count) -> None:
        if self.options.json:
            print_json({"count": found.number, **({} if found.is_exact else {"at_least": True})})
        else:
            print(found)

    def _print_facets(self, found: Facets) -> None:
        if self.options.json:
            values = [{self.options.by: value, "count": number} for value, number in found.counts.items()]
            print_json(values)
            return
        rows = [(f"{number:,}", value or "(none)") for value, number in found.counts.items()]
        others = [(f"{found.others:,}", "(others)")] if found.others else []
        print_table([("jobs", self.options.by), *rows, *others])

    def _show(self, words: Sequence[str]) -> None:
        if not words:
            self.parser.error("show needs the ident of a job after it, as myapp.jobs.SendMail:12")
        found = [job_details(ident) for ident in words]
        if self.options.json:
            print_json([job._asdict() for job in found])
            return
        for job in found:
            _print_details(job)

    def _explain(self, words: Sequence[str]) -> None:
        if not words:
            self.parser.error("explain needs the ident of a job after it, as myapp.jobs.SendMail:12")
        found = [explain_job(ident) for ident in words]
        if self.options.json:
            rows = [{**each._asdict(), "reasons": [reason._asdict() for reason in each.reasons]} for each in found]
            print_json(rows[0] if len(rows) == 1 else rows)
            return
        for each in found:
            print(f"{one_line(each.ident)} is {each.status}.")
            for reason in each.reasons:
                print(f"  {one_line(reason.text, MESSAGE)}")

    def _do(self, verb: str, words: Sequence[str]) -> int:
        """Do something with all jobs that are found: count them, ask, and tell what was done."""
        if bool(words) == bool(self.options.all):
            self.parser.error(f"say which jobs to {verb}: give a filter, idents, or --all for all jobs")
        asked, arguments = _filters(words), self._arguments_of(verb)
        would = _sum(self._act(verb, each, arguments, dry_run=True) for each in asked)
        if self.options.dry_run:
            return self._print_tally(f"would {verb}", would)
        if not self._is_sure(verb, would):
            return 1
        return self._print_tally(verb, _sum(self._act(verb, each, arguments) for each in asked))

    def _act(self, verb: str, asked: JobFilter, arguments: Mapping[str, Any], *, dry_run: bool = False) -> Tally:
        with shown_progress(f"{'count' if dry_run else verb}: looked at {{:,}} of {{:,}} jobs") as progress:
            tally: Tally = getattr(asked, f"{verb}_all")(**arguments, dry_run=dry_run, progress=progress)
        is_gone = any(condition.field == "pk" for condition in asked.conditions) and tally == Tally.of(Counter())
        return Tally.of(Counter({f"there is no job {asked}": 1})) if is_gone else tally

    def _arguments_of(self, verb: str) -> dict[str, Any]:
        until = self.options.delayed_until
        given = {
            "queue_name": self.options.queue,
            "priority": self.options.priority,
            "delayed_for": self.options.delayed_for,
            "delayed_until": until and parse_moment("--until", until),
        }
        given = {name: value for name, value in given.items() if value is not None}
        for name in given.keys() - set(VERBS[verb]):
            self.parser.error(f"{FLAGS[name]} means nothing to {verb}")
        return given

    def _is_sure(self, verb: str, would: Tally) -> bool:
        if self.options.yes or not would.done:
            return True
        if not sys.stdin.isatty():
            self.parser.error(f"{verb} {would.done:,} jobs? Give --yes to do so, or --dry-run for what would be done")
        return input(f"{verb} {would.done:,} jobs? [y/N] ").strip().lower() in ("y", "yes")

    def _print_tally(self, verb: str, tally: Tally) -> int:
        if self.options.json:
            print_json(tally._asdict())
        else:
            reasons = [(f"{number:,}", reason) for reason, number in tally.reasons.items()]
            print_table([("jobs", ""), (f"{tally.done:,}", verb), *reasons])
        return 1 if tally.refused else 0


def _filters(words: Sequence[str]) -> list[JobFilter]:
    """Return the filter of some words; or, if these are idents, one for each job."""
    idents = [Ident.parse(word) for word in words]
    if words and all(idents):
        return [JobFilter(f"class={ident.path}", f"pk={ident.pk}") for ident in idents if ident]
    return [JobFilter(*words)]


def _sum(tallies: Iterable[Tally]) -> Tally:
    """Return what several tallies tell together."""
    outcomes: Counter[str] = Counter()
    for tally in tallies:
        outcomes.update(tally.reasons, done=tally.done)
    return Tally.of(outcomes)


def _shown(job: FoundJob) -> Sequence[object]:
    """Return a job as the table shows it: dates to the second."""
    return [*job[:-3], *(date and date.partition(".")[0] for date in job[-3:])]


def _print_details(job: JobDetails) -> None:
    own = {"status": job.status, "queue": job.queue, "claimed by": job.owner}
    fields = {**own, **{name: value for name, value in job.fields.items() if name not in ("status", "queued")}}
    print_table([("job", job.ident), *((name, value) for name, value in fields.items() if value is not None)])
    for error in job.errors:
        print(f"\n{error.get('date_time', '')} {error.get('type', '')}: {one_line(error.get('message', ''), MESSAGE)}")
        print("".join(f"    {one_line(line, MESSAGE)}\n" for line in error.get("traceback", "").splitlines()), end="")
