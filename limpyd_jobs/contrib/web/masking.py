"""Hiding secrets: values of fields whose name says so, or that a job class, or the settings, name.

Each part of a text is masked before it is composed or cut. What was cut before it came here cannot be read: of that,
all is hidden that may hold a secret.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from functools import cached_property
from typing import Any, TypeVar

from limpyd_jobs.contrib.web.refusals import Refusal
from limpyd_jobs.integration import HIDDEN as HIDDEN
from limpyd_jobs.integration import SECRET, imported_job_class, masked_fields_of
from limpyd_jobs.query import ErrorFilter, JobFilter, MaskedFields, ScheduleState

AnyFilter = TypeVar("AnyFilter", JobFilter, ErrorFilter)

# Stands for a traceback in which the message of the error, which is masked, is not found as a whole.
HIDDEN_TRACEBACK = "(masked, because the message of the error is, and this text does not have it as it is stored)"

# What may have names in it: JSON, also in a text of JSON, or as Python shows a text, as KeyError does; behind spaces
# and the like, which may be escaped.
_BLANK = r"(?:[\s\ufeff]|\\[nrt]|\\x[0-9a-f]{2}|\\u[0-9a-f]{4})*"
_STRUCTURE, _STRING = re.compile(rf"{_BLANK}(?:b?')?[\[{{]"), re.compile(rf'{_BLANK}"')

# What a text has in it, or at its end, from which a part is left out.
_CUT = re.compile(r"… [\d.,]+ (?:MB|kB|bytes) left out …|… \([\d,.]+ (?:characters|MB|kB|bytes)\)$")

OF_QUEUES = ("queue", "queue_name")  # fields with the name of a queue

# Fields of errors with what the code of a job says.
OF_ERRORS = ("identifier", "message", "traceback")

# Fields in which another one stands, perhaps in the midst of them.
MADE_OF = {"traceback": "message", "progress_state": "progress", "last_app_version": "app_version"}

# How a condition of a filter begins: with the name of a field, and a comparison. A value is behind it.
_CONDITION = re.compile(r"(?:^|(?<=\s))(\w+?)(?:__[a-z]+)?[=!<>]+")


class Mask:
    """Hides the secrets in values of one class, or of any.

    Parameters
    ----------
    names: set of str
        Of fields, beside those whose names say that they are secret.
    """

    def __init__(self, names: Set[str]) -> None:
        self._names = names

    def is_secret(self, name: str) -> bool:
        """Return whether a field is secret, also by the name by which the library stores it: ``_cursor``."""
        return bool(SECRET.search(name)) or not self._names.isdisjoint((name, name.removeprefix("_")))

    def field(self, name: str, value: str) -> str:
        """Return the value of a field; replaced if the field is secret."""
        return HIDDEN if self.is_secret(name) else self.text(value)

    def fields(self, fields: Mapping[str, str]) -> dict[str, str]:
        """Return the fields of a job, or of an error of it, with the values of secret ones replaced."""
        return {name: self.field(name, value) for name, value in fields.items()}

    def text(self, text: str) -> str:
        """Return a text; if it is JSON with names, as arguments and results may be, without the secrets in it.

        What looks so and cannot be read is hidden as a whole if the name of a secret is anywhere in it, or may be in
        the part that was left out.
        """
        is_structure = bool(_STRUCTURE.match(text))
        if not (is_structure or _STRING.match(text)):
            return text
        try:
            read = json.loads(text, object_pairs_hook=_each_once)
            masked = self.value(read)
        except (ValueError, RecursionError):
            may_hold = _CUT.search(text) or (is_structure and self._names_a_secret(text))
            return HIDDEN if may_hold else text
        return text if masked == read else json.dumps(masked, ensure_ascii=False)

    def value(self, value: Any) -> Any:
        """Return a value of JSON, such as a list of texts, without the secrets in it."""
        if isinstance(value, dict):
            return {name: HIDDEN if self.is_secret(name) else self.value(each) for name, each in value.items()}
        if isinstance(value, str):
            return self.text(value)
        return [self.value(each) for each in value] if isinstance(value, list) else value

    def error(self, error: Mapping[str, str]) -> dict[str, str]:
        """Return the fields of an error of a job. Its message stands in other fields, too."""
        masked, message = self.fields(error), error.get("message", "")
        shown = masked.get("message", "")
        if shown == message and not message.endswith("too long to be read here)"):
            return masked
        if "message_pattern" in masked:
            masked["message_pattern"] = HIDDEN
        if masked.get("traceback", HIDDEN) != HIDDEN:
            is_whole = message in error["traceback"] and not _CUT.search(error["traceback"])
            masked["traceback"] = error["traceback"].replace(message, shown) if is_whole else HIDDEN_TRACEBACK
        return masked

    def schedule(self, state: ScheduleState) -> ScheduleState:
        """Return a schedule without the secrets in the fields of its jobs."""
        identifier = None if state.identifier is None else self.field("identifier", state.identifier)
        return state._replace(identifier=identifier, job_fields=self.text(state.job_fields or ""))

    def counts(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Return how many records have each value of a field, without the secrets in the values."""
        masked: Counter[str] = Counter()
        for value, number in counts.items():
            masked[self.text(value)] += number
        return dict(masked)

    def filter(self, text: str) -> str:
        """Return a filter, as it stands in the audit, without the secret that it asked for, and what is behind: a value
        may have spaces in it."""
        last = self._last_secret_name(text)
        for condition in _CONDITION.finditer(text):
            end = condition.end()
            if self.is_secret(condition[1]) or (last >= end and _is_json(text, end)):
                return text[:end] + HIDDEN
        return text

    def asks_for_a_secret(self, name: str, value: str) -> bool:
        """Return whether a text to compare a field with is the beginning of JSON in which a secret is named. A
        traceback has JSON in its midst."""
        return (name == "traceback" or _is_json(value)) and self._names_a_secret(value)

    def _names_a_secret(self, text: str) -> bool:
        """Return whether the name of a secret is anywhere in a text, or may be, as an escape of JSON."""
        return bool(SECRET.search(text)) or "\\u" in text or any(name in text for name in self._names)

    def _last_secret_name(self, text: str) -> int:
        """Return where the last name of a secret begins in a text; -1 if there is none. It is looked for once, however
        many conditions a filter has."""
        by_pattern = (found.start() for found in SECRET.finditer(text))
        return max(*by_pattern, *(text.rfind(name) for name in ("\\u", *self._names)), -1, -1)


class MaskOfAll(Mask):
    """Hides the values of all fields, and all that JSON has by name."""

    def is_secret(self, name: str) -> bool:
        return True

    def _names_a_secret(self, text: str) -> bool:
        return True


class Masking:
    """Says which fields are secret, of which class. It is made for each request, as processes make classes known.

    If there are too many classes to read them all, each field may be secret in one of the others.

    Parameters
    ----------
    names: iterable of str
        Names of fields, or, with the path of their class in front, as ``shop.jobs.Pay.account``.
    read: callable
        Returns the names that job classes of the database call secret.
    """

    def __init__(self, names: Iterable[str], read: Callable[[], MaskedFields]) -> None:
        self._names = frozenset(names)
        self._read = read

    @cached_property
    def _of_classes(self) -> MaskedFields:
        return self._read()

    @cached_property
    def any(self) -> Mask:
        """Hides what is secret in any class: for texts of jobs of several classes, or of one that is not known."""
        return self._any_known if self._of_classes.is_whole else MaskOfAll(self._names)

    @cached_property
    def _any_known(self) -> Mask:
        last = {name.rpartition(".")[2] for name in self._names}
        return Mask(self._names.union(last, *self._of_classes.by_path.values()))

    def of(self, path: str) -> Mask:
        """Hides what is secret in a class; in any, if it is not known."""
        imported, stored = imported_job_class(path) if path else None, self._of_classes.by_path.get(path)
        if imported is None and stored is None:
            return self.any
        given = (name.removeprefix(f"{path}.") for name in self._names)
        return Mask(self._names.union(given, masked_fields_of(imported), stored or ()))

    def message(self, text: str) -> str:
        """Return the message of an error of any class; replaced if it is secret."""
        return self.any.field("message", text)

    def identifier(self, identifier: str | None, ident: str) -> str | None:
        """Return the identifier of a job, given its ident; replaced if it is secret."""
        return None if identifier is None else self.of(ident.rpartition(":")[0]).field("identifier", identifier)

    def checked(self, found: AnyFilter) -> AnyFilter:
        """Return a filter; refuse one that asks for what is masked, or compares a field with JSON in which a secret is
        named: the answers would tell, bit by bit, what it is. The names of queues are shown as they are."""
        self.check({each.field for each in found.conditions})
        if isinstance(found, JobFilter):
            found.is_hidden = self.hides
        others = [each for each in found.conditions if each.field not in OF_QUEUES]
        if any(self.any.asks_for_a_secret(each.field, each.value) for each in others):
            raise Refusal(403, "JSON in which the name of a secret stands is masked: jobs cannot be searched by it")
        return found

    def hides(self, name: str) -> bool:
        """Return whether a word alone may not mean a field, because that is masked."""
        return self._any_known.is_secret(name)

    def check(self, names: Iterable[str]) -> None:
        """Refuse to search or to count by secret fields: the answer would tell what they hold. Only jobs of known
        classes are looked at, but errors of all classes."""
        mask, unknown = self._any_known, () if self._of_classes.is_whole else OF_ERRORS
        for name in names:
            made_of = MADE_OF.get(name.removeprefix("_"), name)
            if name in unknown or mask.is_secret(name) or mask.is_secret(made_of):
                raise Refusal(403, f"{name} is masked: jobs cannot be searched or counted by it")


def _is_json(text: str, at: int = 0) -> bool:
    return bool(_STRUCTURE.match(text, at) or _STRING.match(text, at))


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; refuse one that has a name twice, of which the first value would not be looked at."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice")
    return found
