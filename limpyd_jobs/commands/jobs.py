"""``limpyd-jobs jobs``: find jobs by what is in them, and look at one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from limpyd_jobs.commands.command import COMMON_OPTIONS, Command
from limpyd_jobs.commands.progress import shown_progress
from limpyd_jobs.commands.tables import print_json, print_json_lines, print_table
from limpyd_jobs.query import Count, Facets, FoundJob, JobDetails, JobFilter, Page, job_details
from limpyd_jobs.utils import MESSAGE, one_line
from limpyd_jobs.workers.options import WorkerOption, between, seconds

REFUSALS = (LookupError, TypeError, ValueError)


class Jobs(Command):
    """Exit status: 0; 2 if the command line is wrong, or names a job that does not exist."""

    summary = "Find jobs by what is in them: list them, count them, show one"
    words = """list|count|show [FILTER... | IDENT...] [options]

  list [FILTER...]    the newest first
  count [FILTER...]   how many there are; --by=FIELD: of each value of a field
  show IDENT...       all that is stored of a job, as myapp.jobs.SendMail:12, and its errors

A filter is made of words, all of which must be met:
  status=error        waiting, delayed, running, success, error or canceled
  class=shop.jobs.*   the path of the class; or class=SendMail
  queue=mails, owner=web1:4711, error=KeyError (an error of that type is recorded)
  added>-1h           added, start, end, delayed_until: -30m, +2d, 2026-11-20T10:30 (UTC)
  to=ann@example.com  any other field of a job
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
        WorkerOption("--json", action="store_true", help="Print JSON (default: a table)"),
        WorkerOption("--jsonl", action="store_true", help="list: print JSON, a job in a line (default: a table)"),
    )

    def run(self) -> int:
        """Do what the words say."""
        verbs: dict[str, Callable[[Sequence[str]], None]] = {
            "list": self._list,
            "count": self._count,
            "show": self._show,
        }
        verb, *words = self.given or [""]
        if verb not in verbs:
            self.parser.error(
                f"{verb!r} is none of {', '.join(verbs)}" if verb else f"say what to do: {', '.join(verbs)}"
            )
        try:
            verbs[verb](words)
        except REFUSALS as error:
            self.parser.error(one_line(str(error.args[0] if error.args else error), MESSAGE))
        return 0

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
