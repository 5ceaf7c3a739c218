"""``limpyd-jobs limits``: what limits keep jobs waiting, and other numbers for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from limpyd_jobs.arguments import read_seconds
from limpyd_jobs.commandline.options import for_verbs, time_span
from limpyd_jobs.commands.shared.options import COMMON_OPTIONS, JSON, JSONL, UNAUDITED
from limpyd_jobs.commands.shared.printing import print_fields
from limpyd_jobs.commands.shared.verbs import Verb, VerbCommand, job_class_of
from limpyd_jobs.dates import span
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.models import Job
from limpyd_jobs.query import LimitKey, rest_limit, resume_limit, set_limit
from limpyd_jobs.texts import one_line
from limpyd_jobs.views import LimitRow, limit_rows, rows_of

COLUMNS = ("limit", "class", "taken", "allowed", "rate", "parked", "waited", "state", "set")
MOST_NAMED = 5  # keys that still rest
NUMBERS = ("concurrency", "rate", "burst", "share")


class Limits(VerbCommand):
    """Exit status: 0; 1 if a limit is not in use; 2 if the command line is wrong."""

    refusals = (*VerbCommand.refusals, ConfigurationException)
    summary = "Show which limits keep jobs waiting, and set other numbers for them"
    words = """[list|show|set|pause|resume|rest] [WORDS...] [options]

  list [CLASS]                       the keys of limits that are in use, the worst first: no job may
                                     begin, then whose first job has waited longest
  show KEY                           one of them, such as customer=acme: who holds its slots
  set CLASS LIMIT[=VALUE] NUMBERS    other numbers than the class says, such as concurrency=10 rate=5/s burst=2
                                     share=3; concurrency= for what the class says
  pause CLASS LIMIT[=VALUE]          no job of it begins, until resume
  resume CLASS LIMIT[=VALUE]         they begin again
  rest CLASS LIMIT[=VALUE] TIME      no job of it begins for so long: 90 (seconds), 5m, 1h

Without a word, it lists. What is set holds from the next claim on, and outlasts a deploy. Jobs that run go on."""
    examples = (
        "limpyd-jobs limits",
        "limpyd-jobs limits set myapp.jobs.Ask customer=acme concurrency=10",
        "limpyd-jobs limits pause myapp.jobs.Ask customer=acme",
    )
    option_list = (*COMMON_OPTIONS, *for_verbs("set pause resume rest", UNAUDITED), JSON, JSONL)

    def verbs(self) -> Mapping[str, Verb]:
        return {
            "list": self._list,
            "show": self._show,
            "set": self._set,
            "pause": lambda words: self._change(words, rest_limit, "is paused: no job of it begins until resume"),
            "resume": self._resume,
            "rest": self._rest,
        }

    def _list(self, words: Sequence[str]) -> None:
        if len(words) > 1:
            self.parser.error(f"unexpected argument: {words[1]!r}; list takes one class")
        found = rows_of(limit_rows(), [job_class_of(words[0]).get_model_repr()]) if words else limit_rows()
        self.print_list([*map(_as_json, found)], COLUMNS, map(_row, found), spare=("waited", "rate", "set"))

    def _show(self, words: Sequence[str]) -> int:
        if len(words) != 1:
            self.parser.error("say which key of a limit, as list shows it: customer=acme")
        found = [row for row in limit_rows() if words[0] in (row.key.label, row.masked.label)]
        if not found:
            key = one_line(words[0])
            self.note(f"no job holds a slot of {key}, or waits for it: limpyd-jobs limits lists what is in use")
            return 1
        if not self.print_as_json([*map(_as_json, found)]):
            for row in found:
                fields = zip(COLUMNS, _row(row), strict=True)
                holders = "; ".join(row.key.holders) or "none"
                print_fields([*((name, str(value)) for name, value in fields), ("held by", holders)])
        return 0

    def _set(self, words: Sequence[str]) -> int:
        job_class, limit, value, rest = self._meant(words)
        numbers: dict[str, Any] = {}
        for word in rest:
            name, sign, number = word.partition("=")
            if not sign or name not in NUMBERS:
                self.parser.error(f"{one_line(word)!r} is not one of {', '.join(f'{name}=NUMBER' for name in NUMBERS)}")
            numbers[name] = number or None
        if not numbers:
            self.parser.error("say what to set, such as concurrency=10")
        return self._print(set_limit(job_class, limit, value, **numbers, **self.how_audited))

    def _rest(self, words: Sequence[str]) -> int:
        job_class, limit, value, rest = self._meant(words)
        if len(rest) != 1:
            self.parser.error("say for how long, such as 90 (seconds) or 5m")
        seconds = read_seconds(rest[0])
        seconds = time_span(rest[0]) if seconds is None else seconds
        if not 0 <= seconds < 1e9:
            raise ValueError(f"{one_line(rest[0])!r} is no time to rest")
        now_set = rest_limit(job_class, limit, value, seconds, **self.how_audited)
        return self._print(now_set, f"{_key(limit, value)} rests for {span(seconds)}: no job of it begins before")

    def _resume(self, words: Sequence[str]) -> int:
        job_class, limit, value, rest = self._meant(words)
        if rest:
            self.parser.error(f"unexpected argument: {rest[0]!r}")
        now_set = resume_limit(job_class, limit, value, **self.how_audited)
        what = limit if value is None else _key(limit, value)
        rows = [row for row in rows_of(limit_rows(), [job_class.get_model_repr()]) if row.key.rests_for]
        resting = [row.masked for row in rows if row.key.name == limit and _is_of(row.key, value)]
        if not resting:
            return self._print(now_set, f"{_key(limit, value)} is resumed: its jobs begin again")
        keys = ", ".join(f"{key.label} ({key.state})" for key in resting[:MOST_NAMED])
        more = f" and {len(resting) - MOST_NAMED} more" if len(resting) > MOST_NAMED else ""
        return self._print(now_set, f"{what} is resumed, but no job begins yet of {keys}{more}: resume these, too")

    def _change(self, words: Sequence[str], change: Callable[..., Mapping[str, str]], said: str) -> int:
        job_class, limit, value, rest = self._meant(words)
        if rest:
            self.parser.error(f"unexpected argument: {rest[0]!r}")
        return self._print(change(job_class, limit, value, **self.how_audited), f"{_key(limit, value)} {said}")

    def _meant(self, words: Sequence[str]) -> tuple[type[Job], str, str | None, Sequence[str]]:
        if len(words) < 2:
            self.parser.error("a class and a limit are needed, such as myapp.jobs.Ask customer=acme")
        limit, sign, value = words[1].partition("=")
        return job_class_of(words[0]), limit, value if sign else None, words[2:]

    def _print(self, now_set: Mapping[str, str], said: str = "") -> int:
        if not self.print_as_json(dict(now_set)):
            numbers = " ".join(f"{name}={value}" for name, value in now_set.items())
            print(said or numbers or "as the class says")
        return 0


def _key(limit: str, value: str | None) -> str:
    return f"all of {limit}" if value is None else f"{limit}={one_line(value)}"


def _is_of(key: LimitKey, value: str | None) -> bool:
    return value is None or key.value in (None, value)


def _as_json(row: LimitRow) -> dict[str, Any]:
    return {**row.masked._asdict(), "classes": row.classes}


def _row(row: LimitRow) -> tuple[Any, ...]:
    key = row.masked
    waited = "" if key.waited is None else span(key.waited)
    allowed = "" if key.allowed is None else key.allowed
    now_set = " ".join(f"{name}={value}" for name, value in key.set.items())
    classes = ", ".join(row.classes) or key.owner
    return key.label, classes, key.taken, allowed, key.rate or "", key.parked, waited, key.state, now_set
