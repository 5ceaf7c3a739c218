"""``limpyd-jobs jobs``: find jobs by what is in them, look at one, and change all that are found."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from shlex import quote
from time import monotonic
from typing import Any, NamedTuple

from limpyd.exceptions import UniquenessError

from limpyd_jobs.arguments import check_servable, stored_queue_name
from limpyd_jobs.commandline.options import OutOfRange, WorkerOption, between, for_verbs, seconds, time_span
from limpyd_jobs.commandline.programs import as_typed
from limpyd_jobs.commands.pause import refuse_unknown
from limpyd_jobs.commands.shared.options import COMMON_OPTIONS, ERROR_MODEL, JSON, JSONL, PACE_OPTIONS, VERB_OPTIONS
from limpyd_jobs.commands.shared.printing import (
    print_error,
    print_fields,
    print_fitted,
    print_json_lines,
    shown_progress,
    wrapped,
)
from limpyd_jobs.commands.shared.verbs import Verb, VerbCommand, job_class_of
from limpyd_jobs.commands.shared.watching import EVERY, Following, watch
from limpyd_jobs.exceptions import LimpydJobsException, NotEditable
from limpyd_jobs.fields.argument import ValueField, arguments_of
from limpyd_jobs.fields.new_fields import default_priority
from limpyd_jobs.idents import EXACT_DIGITS, Ident, read_pk
from limpyd_jobs.models import Job
from limpyd_jobs.models.adding import why_not_added
from limpyd_jobs.query import (
    Count,
    Facets,
    FieldBeside,
    FoundJob,
    JobDetails,
    JobFilter,
    MissingIndex,
    Page,
    edit_job,
    explain_job,
    job_details,
    lapsed_jobs,
    queue_names,
    queue_states,
    release_job,
)
from limpyd_jobs.records.flows import END_OF_ALL_DATES
from limpyd_jobs.records.records import redis_of
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.conditions import parse_moment
from limpyd_jobs.search.walk import OnStep
from limpyd_jobs.texts import MESSAGE, count_of, is_meant, one_line
from limpyd_jobs.views.hints import not_found, some_of, unknown_classes, unknown_names
from limpyd_jobs.views.jobs import job_rows
from limpyd_jobs.views.merged import page_of_all
from limpyd_jobs.views.verbs import VERBS, Change, filter_of_job

# After how many seconds a search is long, and how many of the missing indexes are named then.
LONG_SEARCH, MAX_HINTS = 1.0, 3

# The columns that a narrow terminal has no room for, the least important first.
SPARE = ("end", "start", "tries", "priority", "added")

# How many jobs of an identifier are listed, if only one may have it.
MAX_NAMED = 10

# How many characters of a value are shown that is edited.
MAX_SHOWN = 60

# How a word begins that names a job otherwise than by its ident.
IDENTIFIER = "identifier="

# The verbs for all jobs of a filter, and all that change jobs.
CHANGING_MANY = " ".join(VERBS)
CHANGING = f"release edit {CHANGING_MANY}"


class Jobs(VerbCommand):
    """Exit status: 0, also for jobs with which there is nothing to do, as they are not in error; 1 if jobs could not be
    changed, you answered no, or there is no queue of the name that --queue gives; 2 if the command line is wrong. Of
    follow: 0 if the job succeeded, 1 if it is in error, 4 if it is canceled, 5 if it was deleted."""

    summary = "Find jobs by what is in them: list them, count them, show one; requeue, cancel, move or delete all"
    words = """[VERB] [FILTER... | IDENT...] [options]

  list [FILTER...]     the newest first; without a word, too
  count [FILTER...]    how many there are; --by=FIELD: of each value of a field
  show IDENT...        all that is stored of a job, for example myapp.jobs.SendMail:12, and its errors
  follow IDENT         its log, progress and output, until its end: the exit status says how it ended
  explain IDENT...     why it does not run yet, or did not run
  release IDENT...     put a job whose worker is dead at the front of its list; refused while the worker is alive,
                       unless --force is given: then the job may be run twice
  export FILTER...     all that is stored of each, as JSON, one job per line
  edit IDENT priority=5 delayed_for=10m FIELD=VALUE...
                       change a job that waits or is delayed, in one step; delayed_for=0: it waits no more;
                       delayed_until=+2h: a moment, as in filters; refused once the job is claimed
  add CLASS [IDENTIFIER] [FIELD=VALUE...]
                       a job, as add myapp.jobs.SendMail welcome:42 to=ann@example.com; an identifier is made for one
                       without; the class may be the path of a function

  requeue FILTER...    put jobs that failed back in their queues, or in --queue
  cancel FILTER...     cancel jobs that wait, are delayed or run
  move FILTER...       put jobs that wait or are delayed in --queue, with --priority
  delay FILTER...      delay jobs that wait or are delayed, --for some time or --until a moment
  promote FILTER...    put delayed jobs in their waiting lists
  delete FILTER...     delete jobs that no worker runs
They count first, and ask. A job may be named by its ident instead of a filter; --all means all jobs.

show, follow, explain and release also take identifier=welcome:42, as log lines tell, and other conditions behind it. Of
several such jobs of a class, it is the one that is queued, or the last one; for release, the one that runs.

A filter is made of words. All of them must be met:
  status=error         waiting, delayed, running, success, error or canceled
  class=shop.jobs.*    the path of the class; or class=SendMail
  queue=mails, owner=web1:4711
  error=KeyError, fingerprint=b26a57955b34a28f (an error of that type, or cause, is recorded)
  added>-1h            added, start, end, delayed_until: -30m, +2d, 2026-11-20T10:30 (UTC)
  to=ann@example.com   any other field of a job
= != > >= < <= compare. added__gt=-1h is the same as added>-1h, and needs no quotes."""
    examples = (
        "limpyd-jobs jobs list status=error added>-1h",
        "limpyd-jobs jobs follow myapp.jobs.Import:12",
        "limpyd-jobs jobs explain identifier=welcome:42",
        "limpyd-jobs jobs requeue status=error queue=mails --rate=50/s",
    )
    merged = ("", "list", "count")
    option_list = (
        *COMMON_OPTIONS,
        *for_verbs(f"list count show explain export {CHANGING}", ERROR_MODEL),
        *for_verbs(
            "list", WorkerOption("--watch", action="store_true", help="list them again and again, until Ctrl-C")
        ),
        *for_verbs("list", EVERY),
        *for_verbs(
            "list count",
            WorkerOption(
                "--limit",
                type="int",
                default=50,
                check=between(1, 10_000),
                help="how many jobs at most, or with --by how many values (default: 50)",
            ),
            WorkerOption(
                "--timeout",
                type="float",
                check=seconds,
                help="after how many seconds to stop, and tell what is known (default: look at all)",
            ),
        ),
        *for_verbs(
            "list",
            WorkerOption("--oldest-first", action="store_true", help="the oldest first (default: the newest)"),
        ),
        *for_verbs(
            "list follow",
            WorkerOption("--after", help="the value that the previous page ended with; the id of a chunk of output"),
        ),
        *for_verbs(
            "count", WorkerOption("--by", metavar="FIELD", help="class, queue, status, error, fingerprint or any other")
        ),
        *for_verbs(
            "add requeue move",
            WorkerOption("--queue", help="its name (default: the one of the class; where each job is, or was)"),
            WorkerOption("--priority", help="the priority (default: the one of the class; of each job)"),
        ),
        *for_verbs(
            "add delay requeue",
            WorkerOption("--for", dest="delayed_for", check=time_span, help="a time in seconds, or as 30m, 1h or 2d"),
            WorkerOption("--until", dest="delayed_until", help="until when, as 2026-11-20T10:30 (UTC), or +2h"),
        ),
        *for_verbs(
            "requeue",
            *PACE_OPTIONS,
            WorkerOption(
                "--restart", action="store_true", help="let loops and steps begin anew, not go on where they were"
            ),
        ),
        *for_verbs(
            "release add requeue move",
            WorkerOption(
                "--force", action="store_true", help="release: even if its worker seems alive; others: make a new queue"
            ),
        ),
        *for_verbs(
            f"export {CHANGING_MANY}",
            WorkerOption("--all", action="store_true", help="Take all jobs, where a filter or idents are needed"),
        ),
        *for_verbs(CHANGING, *VERB_OPTIONS),
        JSON,
        JSONL,
    )

    refusals = (*VerbCommand.refusals, LimpydJobsException, UniquenessError)

    def verbs(self) -> Mapping[str, Verb]:
        return {
            "list": self._list,
            "count": self._count,
            "show": self._show,
            "follow": self._follow_job,
            "explain": self._explain,
            "release": self._release,
            "export": self._export,
            "edit": self._edit,
            "add": self._add,
            **{name: partial(self._do, name) for name in VERBS},
        }

    def _filter(self, *words: str, database: JobsDatabase | None = None) -> JobFilter:
        return JobFilter(*words, error_model=self.options.error_model, database=database)

    def _filters(self, words: Sequence[str]) -> list[JobFilter]:
        """Return the filter of some words; or, if these are idents, a filter for each job."""
        idents = [Ident.parse(word) for word in words]
        if words and all(idents):
            return [filter_of_job(ident, error_model=self.options.error_model) for ident in idents if ident]
        return [self._filter(*words)]

    def _list(self, words: Sequence[str]) -> int:
        self.refuse_after()
        if not self.options.watch:
            if "every" in self.given_options:
                self.parser.error("--every needs --watch")
            self._list_once(words)
            return 0
        if self.options.json or self.options.jsonl:
            self.parser.error("--watch does not go with --json and --jsonl")
        return watch(partial(self._list_once, words), self.options.every)

    def _list_once(self, words: Sequence[str]) -> None:
        began = monotonic()
        looks = self.look_at_each(self._page, words=words)
        took = monotonic() - began
        page, shards = page_of_all(
            {number: look.page for number, look in looks.items()},
            self.options.limit,
            lambda job: job.added,
            newest_first=not self.options.oldest_first,
        )
        heading, rows = self._with_messages(page.found)
        self.print_list(page.found, heading, rows, SPARE, shards)
        asked = [look.asked for look in looks.values()]
        if not (page.found or self.options.after):
            self.note_unknown(unknown_names, conditions=asked[0].conditions)
        self.note_next_page("jobs", page.following, page.is_complete)
        if ended := [ident for look in looks.values() for ident in look.lapsed]:
            self.note(f"the lease ended of what is shown as running: {some_of(ended, MAX_NAMED)}")
        self._note_unseen(*asked)
        self._note_indexes(asked[0], took, page.is_complete)

    def _with_messages(self, found: Sequence[FoundJob]) -> tuple[Sequence[str], list[Sequence[object]]]:
        """Return a table of jobs: on a terminal, with the message of those that are in error, or wait for something."""
        rows: list[Sequence[object]] = [*map(_shown, found)]
        if self.shards or not sys.stdout.isatty():
            return FoundJob._fields, rows
        messages = [each.message for each in job_rows(found)]
        if not any(messages):
            return FoundJob._fields, rows
        return (*FoundJob._fields, "message"), [(*row, each) for row, each in zip(rows, messages, strict=True)]

    def _page(self, words: Sequence[str], database: JobsDatabase | None = None) -> _Look:
        asked, newest_first = self._filter(*words, database=database), not self.options.oldest_first
        page = asked.page(
            self.options.limit, self.options.after, newest_first=newest_first, timeout=self.options.timeout
        )
        running = [job.ident for job in page.found if job.status == "running"]
        lapsed = lapsed_jobs(queue_states(database=database), database) if running else set()
        return _Look(asked, page, [ident for ident in running if ident in lapsed])

    def _note_unseen(self, *asked: JobFilter) -> None:
        if unseen := sum(each.unseen for each in asked):
            why = "the pk is not a number of at most 18 digits. limpyd-jobs check names them"
            self.note(f"not looked at: {count_of(unseen, 'job')}, because {why}")
        self.note_unknown(unknown_classes)

    def _note_indexes(self, asked: JobFilter, took: float, is_complete: bool) -> None:
        """If a search took long, say with which indexes it would be short."""
        if is_complete and took < LONG_SEARCH:
            return
        for missing in asked.missing_indexes()[:MAX_HINTS]:
            self.note(f"jobs are looked at one by one, because {missing}. {_remedy(missing)}")

    def _count(self, words: Sequence[str]) -> None:
        if "limit" in self.given_options and not self.options.by:
            self.parser.error("count supports --limit with --by only")
        began = monotonic()
        with shown_progress("looked at {:,} of {:,} jobs") as progress:
            looks = self.look_at_each(self._counted, words=words, progress=None if self.shards else progress)
        took = monotonic() - began
        asked, counts = [each for each, _ in looks.values()], [count for _, count in looks.values()]
        found = Facets.sum(counts, self.options.limit) if self.options.by else Count.sum(counts)
        if isinstance(found, Facets):
            self._print_facets(found)
        elif not self.print_as_json(found):
            print(found)
        if not (found.counts if isinstance(found, Facets) else found.number):
            self.note_unknown(unknown_names, conditions=asked[0].conditions)
        self._note_unseen(*asked)
        if not (all(count.is_exact for count in counts) or any(each.unseen for each in asked)):
            self.note("there was no time to look at all jobs")
        self._note_indexes(asked[0], took, found.is_exact)

    def _counted(
        self, words: Sequence[str], progress: OnStep | None, database: JobsDatabase | None = None
    ) -> tuple[JobFilter, Any]:
        """Return a filter, and the `Facets` or the `Count` of its jobs."""
        asked, by, timeout = self._filter(*words, database=database), self.options.by, self.options.timeout
        return asked, asked.facets(by, self.options.limit, timeout, progress) if by else asked.count(timeout, progress)

    def _print_facets(self, found: Facets) -> None:
        values = ({self.options.by: value, "count": number} for value, number in found.counts.items())
        rows = [(f"{number:,}", value or "(none)") for value, number in found.counts.items()]
        others = [(f"{found.others:,}", "(others)")] if found.others else []
        self.print_list(values, ("jobs", self.options.by), [*rows, *others])
        self.note_others(found.others, "job", "values")

    def _idents(self, verb: str, words: Sequence[str]) -> list[str]:
        """Return the idents that words are, or, such as ``identifier=welcome:42``, stand for."""
        if not words:
            self.parser.error(f"{verb} needs the ident of a job after it, for example myapp.jobs.SendMail:12")
        named: list[list[str]] = []
        for word in words:
            is_condition = not {*"=<>"}.isdisjoint(word) and not word.startswith(IDENTIFIER)
            if is_condition and named and named[-1][0].startswith(IDENTIFIER):
                named[-1].append(word)
            elif is_condition and (hint := is_meant(re.split("[=<>]", word)[0], [IDENTIFIER])):
                raise ValueError(f"{one_line(word)!r} is not the ident of a job{hint}")
            elif is_condition or word.startswith(IDENTIFIER) or Ident.parse(word):
                named.append([word])
            else:
                told = f"{one_line(word)!r} is not the ident of a job, for example myapp.jobs.SendMail:12"
                raise ValueError(f"{told}: write {IDENTIFIER}{one_line(word)} if it is its identifier")
        return [self._ident(verb, each) if each[0].startswith(IDENTIFIER) else each[0] for each in named]

    def _ident(self, verb: str, words: Sequence[str]) -> str:
        """Return the ident of the job of some conditions: of several of a class, the one that is meant most likely."""
        jobs, asked = self._filter(*words).page(MAX_NAMED + 1).found, one_line(" ".join(words))
        if len(jobs) == 1:
            return jobs[0].ident
        if not jobs:
            raise LookupError("; ".join([f"there is no job with {asked}", *unknown_classes()]))
        meant = self._filter(*words, "status=running" if verb == "release" else "queued=1").page(2).found
        if not meant and verb != "release" and len({Ident.of(job.ident).path for job in jobs}) == 1:
            meant = jobs[:1]  # the last one
        number = f"more than {MAX_NAMED}" if len(jobs) > MAX_NAMED else f"{len(jobs)}"
        told = ", ".join(f"{one_line(job.ident)} ({one_line(job.status)})" for job in jobs[:MAX_NAMED])
        if len(meant) != 1:
            raise LookupError(f"{number} jobs have {asked}; give the ident of one: {told}")
        self.note(f"{number} jobs have {asked}: {told}. Taken: {meant[0].ident}")
        return meant[0].ident

    def _release(self, words: Sequence[str]) -> None:
        idents, force = self._idents("release", words), bool(self.options.force)
        for ident in idents:
            release_job(ident, force=force, dry_run=True)
            job_class_of(Ident.of(ident).path)
        if not self.options.dry_run:
            for ident in idents:
                release_job(ident, force=force, **self.how_audited)
        rows = [{"ident": ident, "outcome": self.would_be("released")} for ident in idents]
        if not self.print_as_json(rows):
            for row in rows:
                print(f"{one_line(row['ident'])}: {row['outcome']}")

    def _follow_job(self, words: Sequence[str]) -> int:
        idents = self._idents("follow", words)
        if len(idents) > 1:
            self.parser.error("follow takes one job")
        if self.options.json:
            self.parser.error("follow does not support --json: --jsonl prints each chunk of output as a line")
        return Following(idents[0], self.options.after, is_jsonl=bool(self.options.jsonl)).until_end()

    def _show(self, words: Sequence[str]) -> None:
        idents = self._idents("show", words)
        found = [job_details(ident, error_model=self.options.error_model) for ident in idents]
        if not self.print_as_json(found):
            for job in found:
                _print_details(job, self.as_here(f"limpyd-jobs jobs follow {quote(job.ident)}") if job.output else "")

    def _explain(self, words: Sequence[str]) -> None:
        idents = self._idents("explain", words)
        found = [explain_job(ident, error_model=self.options.error_model) for ident in idents]
        if self.print_as_json(found[0] if len(found) == 1 else found):
            return
        for each in found:
            print(f"{one_line(each.ident)}: {one_line(each.status)}")
            for reason in each.reasons:
                command = self.as_here(reason.command) if reason.command else ""
                text = as_typed(reason.text.replace(reason.command, command) if command else reason.text)
                print(wrapped(one_line(text, MESSAGE), one_line(command, MESSAGE), margin="  "))

    def _export(self, words: Sequence[str]) -> None:
        if bool(words) == bool(self.options.all):
            self.parser.error("say which jobs to export: give a filter, or --all for all jobs")
        asked = self._filter(*words)
        with shown_progress("looked at {:,} of {:,} jobs") as progress:
            number = print_json_lines(asked.records(progress))
        if not number:
            self.note(*unknown_names(asked.conditions))
        self._note_unseen(asked)

    def _add(self, words: Sequence[str]) -> None:
        if not words:
            self.parser.error("add needs a class after it, for example myapp.jobs.SendMail welcome:42 to=ann")
        path, *given = words
        job_class: Any = job_class_of(path)
        has_identifier = given and given[0].partition("=")[0] not in arguments_of(job_class)
        identifier, given = (given[:1], given[1:]) if has_identifier else ([], given)
        last, arguments = _last_pk(job_class), self._arguments()
        if "priority" not in arguments and default_priority(job_class, None) != "0":
            arguments["priority"] = None  # the one of the class
        job = job_class.add_job(*identifier, **_values(job_class, given), **arguments)
        number = read_pk(job.pk.get())
        if number is not None and number <= last:
            why = why_not_added(vars(job).get("_add_outcome"))
            self.note(f"a job of this identifier {why}, so none was added")
        if not self.print_as_json({"ident": job.ident, "identifier": job.identifier.hget()}):
            print(one_line(job.ident))

    def _edit(self, words: Sequence[str]) -> int:
        if len(words) < 2:
            self.parser.error("edit needs an ident and what to change after it: myapp.jobs.SendMail:12 priority=5")
        [ident] = self._idents("edit", words[:1])
        edit = partial(edit_job, ident, **_edits(job_class_of(Ident.of(ident).path), words[1:]), **self.how_audited)
        try:
            found = edit(dry_run=True)
            if found and not self.options.dry_run:
                what = ", ".join(f"{each.name} {_told(each.before)} → {_told(each.after)}" for each in found)
                if not self.is_sure(f"edit {one_line(ident)}: {what}?"):
                    return 1
                found = edit(seen={each.name: each.before for each in found}) or found
        except NotEditable as error:
            self.note(f"{error}")
            return 1
        rows = [{"field": each.name, "before": each.before, "after": each.after} for each in found]
        if not self.print_as_json([{"ident": ident, **row} for row in rows]):
            heading = (self.would_be("changed"), "before", "after")
            print_fitted([heading, *((each.name, _told(each.before), _told(each.after)) for each in found)])
        return 0

    def _do(self, verb: str, words: Sequence[str]) -> int:
        """Apply a verb to all jobs that are found: count them, ask, and tell what was done."""
        if bool(words) == bool(self.options.all):
            self.parser.error(f"say which jobs to {verb}: give a filter, idents, or --all for all jobs")
        filters, pace = self._filters(words), self.pace
        if pace and len(filters) > 1:
            filters = [JobFilter.of_jobs(words)]
        change = Change(verb, filters, **self._arguments(), **pace)
        return self.change_many(change, partial(not_found, filters))

    def _arguments(self) -> dict[str, Any]:
        until = self.options.delayed_until
        given = {
            "queue_name": self.options.queue,
            "priority": self.options.priority,
            "delayed_for": self.options.delayed_for,
            "delayed_until": until and parse_moment("--until", until),
            "restart": self.options.restart or None,
        }
        given = {name: value for name, value in given.items() if value is not None}
        if self.options.queue is not None and not self.options.force:
            name, names = stored_queue_name(self.options.queue), queue_names()
            check_servable(name)
            if name not in names:
                refuse_unknown(self, name, names, "; --force makes it")
        if given.keys() >= {"delayed_for", "delayed_until"}:
            self.parser.error("--for and --until do not go together")
        return given


def _remedy(missing: MissingIndex) -> str:
    """Return how to declare an index, and what it costs."""
    cost = {"EqualIndex": "5 to 100 bytes"}.get(missing.kind, "some 120 bytes")
    return (
        f"To find them at once, for {cost} a job, declare {missing.field} with "
        f"indexable=True, indexes=[{missing.kind}], and run: limpyd-jobs check --repair"
    )


def _last_pk(job_class: type[Job]) -> int:
    last = redis_of(job_class).get(f"{job_class._name}:max_pk")
    return (read_pk(last) if isinstance(last, str) and len(last) <= EXACT_DIGITS else None) or 0


def _values(job_class: type[Job], words: Sequence[str]) -> dict[str, Any]:
    """Return the values that are given as ``field=value``. Arguments get values of their kind."""
    values: dict[str, Any] = {}
    for word in words:
        name, is_given, text = word.partition("=")
        if not (is_given and name):
            raise ValueError(f"{one_line(word)!r} is not a field: write it as field=value")
        if name not in job_class._fields or name.startswith("_"):
            raise ValueError(f"{job_class.__name__} has no field {one_line(name)!r}")
        field = job_class.get_field(name)
        values[name] = field.read(text) if isinstance(field, ValueField) else text
    return values


def _edits(job_class: type[Job], words: Sequence[str]) -> dict[str, Any]:
    """Return what `edit_job` is given for such words."""
    edits: dict[str, Any] = {}
    fields = []
    for word in words:
        name, is_given, text = word.partition("=")
        if is_given and name == "delayed_for" and name not in job_class._fields:
            edits[name] = 0 if text in ("0", "0s") else _delay_of(text)
        elif is_given and name == "delayed_until":
            edits[name] = parse_moment(name, text)
        elif is_given and name == "priority":
            edits[name] = text
        else:
            fields.append(word)
    return {**edits, "fields": _values(job_class, fields)}


def _delay_of(text: str) -> float:
    try:
        return time_span(text)
    except OutOfRange as error:
        raise ValueError(f"delayed_for must be {error}, not {text!r}") from None


def _told(text: str | None) -> str:
    return "(none)" if text is None else one_line(text, MAX_SHOWN)


class _Look(NamedTuple):
    asked: JobFilter
    page: Page[FoundJob]
    lapsed: Sequence[str]  # the idents of those that are recorded as running, but whose lease ended


def _shown(job: FoundJob) -> Sequence[object]:
    """Return a job as the table shows it: dates to the second."""
    return [*job[:-3], *(date and date.partition(".")[0] for date in job[-3:])]


def _print_beside(name: str, field: FieldBeside) -> None:
    """Print a field that is not in the hash of a job: a line for each entry."""
    is_text = field.kind == "string"
    print(f"  {one_line(name)} ({field.kind} of {count_of(field.size, 'byte' if is_text else 'value')}):")
    pairs = field.values.items() if isinstance(field.values, dict) else ((None, value) for value in field.values)
    for key, value in pairs:
        print(f"    {one_line(value if key is None else f'{key}: {value}', MESSAGE)}")
    if not is_text and field.size > len(field.values):
        print(f"    … {count_of(field.size - len(field.values), 'more value')}")


def _print_earlier(stored: int, shown: int, what: str) -> None:
    if stored > shown:
        print(f"  … {stored - shown:,} earlier {what} are not shown")


def _print_details(job: JobDetails, follow: str) -> None:
    """Print a job; `follow` is the command that prints its output, if it has some."""
    own = {"status": job.waits_for or job.status, "queue": job.queue, "claimed by": job.owner}
    if job.silence:
        own["claimed by"] = f"{job.owner}, {job.silence}"
    fields = {**own, **{name: value for name, value in job.fields.items() if name not in ("status", "queued")}}
    if fields.get("delayed_until") == END_OF_ALL_DATES:
        del fields["delayed_until"]
    if job.lost:
        fields["lost"] = f"{count_of(job.lost, 'run')}, with its worker"
    if job.progress:
        fields["progress"] = f"{job.progress.fraction:.0%} {job.progress.text} ({job.progress.at})"
    if job.cursor:
        fields["cursor"] = job.cursor
    beside = {"canceled because": job.cancel_reason, "flow": job.flow, "signal": job.signal}
    fields |= {name: one_line(text, MESSAGE) for name, text in beside.items() if text}
    if job.output:
        fields["output"] = f"{count_of(job.output, 'chunk')}: {follow}"
    fields |= {"trace": job.trace_id or None, "result": job.result}
    print_fields([("job", job.ident), *((name, value) for name, value in fields.items() if value is not None)])
    for name, field in job.beside.items():
        _print_beside(name, field)
    _print_earlier(job.changes_stored, len(job.history), "changes of the status")
    for at, status, owner, reason in job.history:
        print(
            f"  {at} {one_line(status)}{f' ({one_line(owner)})' if owner else ''}{reason and f': {one_line(reason)}'}"
        )
    _print_earlier(job.lines_stored, len(job.log), "lines of the log")
    for line in job.log:
        print(f"  {one_line(line, MESSAGE)}")
    for error in job.errors:
        print()
        print_error(error)
