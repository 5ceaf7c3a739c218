"""``limpyd-jobs errors``: errors, grouped by their cause."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from shlex import quote
from typing import Any

from limpyd_jobs.commandline.options import WorkerOption, for_verbs, seconds
from limpyd_jobs.commands.shared.options import (
    COMMON_OPTIONS,
    ERROR_MODEL,
    JSON,
    JSONL,
    LIMIT,
    PACE_OPTIONS,
    VERB_OPTIONS,
)
from limpyd_jobs.commands.shared.printing import (
    cut,
    ends_of,
    print_error,
    print_fields,
    print_fitted,
    shown_progress,
    width_of_terminal,
    wrapped,
)
from limpyd_jobs.commands.shared.verbs import Verb, VerbCommand
from limpyd_jobs.query import ErrorFilter, ErrorGroup, ErrorGroups, FoundError, JobFilter, Page
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.fingerprints import is_fingerprint
from limpyd_jobs.texts import one_line, table_lines
from limpyd_jobs.views.documents import document
from limpyd_jobs.views.hints import unknown_classes, unknown_names
from limpyd_jobs.views.merged import groups_of_all, page_of_all
from limpyd_jobs.views.verbs import Change, filter_of_failed, words_of_failed

# How many errors of a group are shown, the newest ones, and for how many seconds jobs are counted.
LAST_ERRORS, COUNT_TIMEOUT = 10, 2

# How many characters of a message tables show, and of a place; and how many messages of a cause the list shows.
SHORT, PLACE, MESSAGES = 65, 75, 3

GROUPS = ("fingerprint", "errors", "first seen (UTC)", "last seen (UTC)")
HEADING = ("at (UTC)", "type", "message", "job", "queue", "fingerprint")

# The columns that a narrow terminal has no room for, the least important first.
SPARE = ("queue", "fingerprint", "type")


class Errors(VerbCommand):
    """Exit status: 0, also for jobs that are not in error; 1 if jobs could not be requeued, or you answered no; 2 if
    the command line is wrong."""

    summary = "Show what failed, by its cause, and requeue the jobs of a cause"
    words = """[groups|list|show|requeue|delete] [FILTER...] [options]

  groups [FILTER...]     the causes, the most frequent first: how many errors, when the first and the last, where the
                         application raised them, and their messages; without a word, too
  list [FILTER...]       the errors, the newest first
  show FINGERPRINT...    a cause: where it occurs, its messages, the traceback of the last error, and the last jobs
  requeue FINGERPRINT [queue=NAME | queue__in=NAME,NAME] [class=PATH] [app_version=VERSION]
                         put the jobs that failed so back in their queues. They are counted first, and you are asked.
                         With other queues, priorities or delays: limpyd-jobs jobs requeue fingerprint=FINGERPRINT
  delete FILTER...       delete the errors, or those of one FINGERPRINT, for good; their jobs stay. They are counted
                         first, and you are asked.
                         --all means all errors

A filter is made of words. All of them must be met:
  type=KeyError, fingerprint=b26a57955b34a28f, queue=mails, class=shop.jobs.*, app_version=2026.11
  date_time>-1h        -30m, 2026-11-20T10:30 (UTC)
= != > >= < <= compare. date_time__gt=-1h is the same as date_time>-1h, and needs no quotes."""
    examples = (
        "limpyd-jobs errors",
        "limpyd-jobs errors show b26a57955b34a28f",
        "limpyd-jobs errors requeue b26a57955b34a28f --rate=50/s --stop-if-failing=20%",
    )
    merged = ("", "groups", "list")
    option_list = (
        *COMMON_OPTIONS,
        ERROR_MODEL,
        *for_verbs("groups list show", LIMIT),
        *for_verbs("list", WorkerOption("--after", help="the value that the previous page ended with")),
        *for_verbs(
            "groups list",
            WorkerOption(
                "--timeout",
                type="float",
                check=seconds,
                help="after how many seconds to stop, and tell what is known (default: look at all)",
            ),
        ),
        *for_verbs(
            "show",
            WorkerOption(
                "--full", action="store_true", help="all of a long message or traceback (default: both of its ends)"
            ),
        ),
        *for_verbs(
            "delete", WorkerOption("--all", action="store_true", help="take all errors, where a filter is needed")
        ),
        *for_verbs("requeue", *PACE_OPTIONS),
        *for_verbs("requeue delete", *VERB_OPTIONS),
        JSON,
        JSONL,
    )

    def verbs(self) -> Mapping[str, Verb]:
        return {
            "groups": self._groups,
            "list": self._list,
            "show": self._show,
            "requeue": self._requeue,
            "delete": self._delete,
        }

    def _filter(self, *words: str, **conditions: Any) -> ErrorFilter:
        return ErrorFilter(*words, error_model=self.options.error_model, **conditions)

    def _groups(self, words: Sequence[str]) -> None:
        with shown_progress("looked at {:,} of {:,} errors") as progress:
            how = (self.options.limit, self.options.timeout, None if self.shards else progress)
            found = self.look(
                lambda database=None: self._filter(*words, database=database).groups(*how),
                lambda found: groups_of_all(found.values(), self.options.limit),
            )
        if not self.print_as_json(found.groups):
            for line in _lines_of_groups(found):
                print(cut(line, width_of_terminal()))
        if not found.groups:
            self._note_unknown(words)
        self.note_others(found.others, "error", "causes")
        if not found.is_exact:
            self.note(
                f"there was no time to look at all errors: these are of the newest {found.looked:,} of {found.size:,}"
            )

    def _note_unknown(self, words: Sequence[str]) -> None:
        self.note_unknown(unknown_names, conditions=self._filter(*words).conditions)
        self.note_unknown(unknown_classes)

    def _list(self, words: Sequence[str]) -> None:
        self.refuse_after()

        def read(database: JobsDatabase | None = None) -> Page[FoundError]:
            asked = self._filter(*words, database=database)
            return asked.page(self.options.limit, self.options.after, timeout=self.options.timeout)

        page, shards = page_of_all(self.look_at_each(read), self.options.limit, lambda error: error.date_time)
        self.print_list(page.found, HEADING, map(_row_of_error, page.found), SPARE, shards)
        if not (page.found or self.options.after):
            self._note_unknown(words)
        self.note_next_page("errors", page.following, page.is_complete)

    def _show(self, words: Sequence[str]) -> None:
        if not words:
            self.parser.error("show needs a fingerprint after it: errors groups lists them")
        shown = [self._details(word) for word in words]
        self.note(*unknown_classes())
        if self.print_as_json(shown[0] if len(shown) == 1 else shown):
            return
        for each in shown:
            self._print_details(each)

    def _details(self, fingerprint: str) -> dict[str, Any]:
        asked = self._filter(fingerprint=fingerprint)
        groups = asked.groups(1, messages=self.options.limit).groups
        if not groups:
            raise _no_errors(fingerprint)
        [group] = groups
        return {
            **document(group),
            "sample": self._cut(asked.last_of(group)),
            "jobs": [error.ident for error in asked.page(LAST_ERRORS).found],
        }

    def _cut(self, whole: Mapping[str, str]) -> Mapping[str, str]:
        """Return the fields of an error, cut if they are long and not all is asked for."""
        shown = whole if self.options.full else {name: ends_of(value) for name, value in whole.items()}
        if shown != whole:
            self.note("not all of the last error is shown: --full shows it")
        return shown

    def _print_details(self, shown: Mapping[str, Any]) -> None:
        others = ("message", "messages", "sample", "jobs")
        print_fields([(name, _counted(value)) for name, value in shown.items() if name not in others])
        print()
        print_fitted([("errors", "message"), *(row for each in shown["messages"] for row in _rows_of_message(each))])
        left_out = _left_out(len(shown["messages"]), shown["message_count"], "message_count_at_least" in shown)
        if left_out:
            print(f"{left_out}. See --limit")
        print("\nthe last error:")
        print_error(shown["sample"], is_whole=bool(self.options.full))
        print(f"\n{wrapped(' '.join(['the last jobs:', *map(one_line, shown['jobs'])]))}")
        command = self.as_here(f"limpyd-jobs errors requeue {quote(one_line(shown['fingerprint']))}")
        number = self._jobs_of(shown["fingerprint"]).count(COUNT_TIMEOUT)
        print(
            wrapped(
                f"jobs in error now by it, as their last error: {number}. To put them back in their queues: {command}",
                command,
            )
        )

    def _jobs_of(self, fingerprint: str, *words: str) -> JobFilter:
        return filter_of_failed(fingerprint, *words, error_model=self.options.error_model)

    def _requeue(self, words: Sequence[str]) -> int:
        if not words or "=" in words[0]:
            self.parser.error("requeue needs one fingerprint after it: errors groups lists them")
        fingerprint, *conditions = words
        of_jobs, unlike = words_of_failed(conditions)
        if unlike:
            self.parser.error(f"jobs cannot be requeued by {' '.join(unlike)} of their errors")
        if not self._filter(*conditions, fingerprint=fingerprint).count().number:
            raise _no_errors(fingerprint, conditions)
        self.note(*unknown_classes())
        return self.change_many(Change("requeue", [self._jobs_of(fingerprint, *of_jobs)], **self.pace))

    def _delete(self, words: Sequence[str]) -> int:
        if bool(words) == bool(self.options.all):
            self.parser.error("say which errors to delete: give a filter, or --all for all errors")
        words = [f"fingerprint={word}" if [word] == words and is_fingerprint(word) else word for word in words]
        asked = self._filter(*words)
        change = Change("delete", [asked])
        return self.change_many(change, lambda tally: () if tally.done else unknown_names(asked.conditions), "error")


def _no_errors(fingerprint: str, conditions: Sequence[str] = ()) -> LookupError:
    beside = f" and {one_line(' '.join(conditions))}" if conditions else ""
    return LookupError(f"there is no error with the fingerprint {one_line(fingerprint)}{beside}")


def _lines_of_groups(found: ErrorGroups) -> Iterator[str]:
    """Yield a table of causes, below each of which there are its place and its messages."""
    others = [("(others)", f"{found.others:,}", "", "")] if found.others else []
    heading, *lines = table_lines([GROUPS, *map(_row_of_group, found.groups), *others])
    yield heading
    for group, line in zip_longest(found.groups, lines):
        yield line
        if group:
            yield from _lines_below(group)


def _lines_below(group: ErrorGroup) -> Iterator[str]:
    place = f" in {group.raised_in}" if group.raised_in else ""
    yield f"    {cut(one_line(group.type + place), PLACE)}"
    shown = group.messages[:MESSAGES]
    for message in shown:
        yield f"    {message.number:8,}  {cut(one_line(message), SHORT)}"
    left_out = _left_out(len(shown), group.message_count.number, not group.message_count.is_exact)
    if left_out:
        yield f"{'':14}{left_out}: errors show {one_line(group.fingerprint)}"


def _left_out(shown: int, number: int, is_lower_bound: bool) -> str:
    """Say how many messages are shown; nothing if all are."""
    if shown == number and not is_lower_bound:
        return ""
    return f"{shown} of {'at least ' if is_lower_bound else ''}{number:,} messages"


def _rows_of_message(message: Mapping[str, Any]) -> Iterator[Sequence[object]]:
    yield (f"{message['count']:,}", cut(message["message"], SHORT))
    for example in message["examples"]:
        if example != message["message"]:
            yield ("", f"  as in: {cut(example, SHORT)}")


def _row_of_group(group: ErrorGroup) -> Sequence[object]:
    return (group.fingerprint, f"{group.number:,}", _to_the_second(group.first_seen), _to_the_second(group.last_seen))


def _row_of_error(error: FoundError) -> Sequence[object]:
    told = (error.type, cut(error.message, SHORT), error.ident, error.queue, error.fingerprint)
    return (_to_the_second(error.date_time), *told)


def _to_the_second(date: str) -> str:
    return date.partition(".")[0]


def _counted(value: Any) -> object:
    """Return a value as the table shows it. A mapping of numbers is shown like ``mails (4), pages (2)``."""
    if isinstance(value, dict):
        return ", ".join(f"{each} ({number:,})" for each, number in value.items())
    if isinstance(value, list):
        return " ".join(f"{number:,}" for number in value)
    return value
