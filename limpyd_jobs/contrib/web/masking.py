"""Hiding secrets: values of fields whose name says so, or that a job class, or the settings, name."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

from limpyd_jobs.contrib.web.refusals import Refusal
from limpyd_jobs.integration import imported_job_class

HIDDEN = "(masked)"

# Parts of names.
SECRET = re.compile(
    r"passw|passphrase|pwd|secret|token|api[_-]?key|private[_-]?key|access[_-]?key|credential|authori[sz]ation|cookie"
    r"|session[_-]?id|card[_-]?number|cvv|cvc|iban|ssn",
    re.IGNORECASE,
)

# What may have names in it: JSON, also in a text of JSON.
_STRUCTURE, _STRING = re.compile(r"[\s\ufeff]*[\[{]"), re.compile(r'[\s\ufeff]*"')

OF_QUEUES = ("queue", "queue_name")  # fields with the name of a queue

# How a condition of a filter begins: with the name of a field, and a comparison. A value is behind it.
_CONDITION = re.compile(r"(?:^|(?<=\s))(\w+?)(?:__[a-z]+)?[=!<>]+")


class Masking:
    """Says which fields are secret.

    Parameters
    ----------
    names: iterable of str
        Names of fields, or, with the path of their class in front, as ``shop.jobs.Pay.account``.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)

    def _names_of(self, path: str) -> set[str]:
        """Return the names that are secret in the values of a class."""
        own = getattr(imported_job_class(path), "masked_fields", ()) if path else ()
        return {*own, *(name.removeprefix(f"{path}.") for name in self._names)}

    def is_secret(self, name: str, path: str = "") -> bool:
        """Return whether a field is secret: of a class, if its path is given."""
        if SECRET.search(name) or self._names & {name, f"{path}.{name}"}:
            return True
        return bool(path) and name in getattr(imported_job_class(path), "masked_fields", ())

    def fields(self, fields: Mapping[str, str], path: str = "") -> dict[str, str]:
        """Return the fields of a job, or of an error of it, with the values of secret ones replaced."""
        return {
            name: HIDDEN if self.is_secret(name, path) else self.text(value, path) for name, value in fields.items()
        }

    def identifier(self, identifier: str | None, ident: str) -> str | None:
        """Return the identifier of a job, given its ident; replaced if it is secret."""
        path = ident.rpartition(":")[0]
        return None if identifier is None else self.fields({"identifier": identifier}, path)["identifier"]

    def text(self, text: str, path: str = "") -> str:
        """Return a text; if it is JSON with names, as arguments and results may be, without the secrets in it.

        What looks so and cannot be read is hidden as a whole if the name of a secret is anywhere in it.
        """
        is_structure = bool(_STRUCTURE.match(text))
        if not (is_structure or _STRING.match(text)):
            return text
        try:
            read = json.loads(text, object_pairs_hook=_each_once)
            masked = self.value(read, path)
        except (ValueError, RecursionError):
            return HIDDEN if is_structure and _names_a_secret(text, self._names_of(path)) else text
        return text if masked == read else json.dumps(masked, ensure_ascii=False)

    def value(self, value: Any, path: str) -> Any:
        """Return a value of JSON, such as a list of texts, without the secrets in it."""
        if isinstance(value, dict):
            return {
                name: HIDDEN if self.is_secret(name, path) else self.value(each, path) for name, each in value.items()
            }
        if isinstance(value, str):
            return self.text(value, path)
        return [self.value(each, path) for each in value] if isinstance(value, list) else value

    def counts(self, counts: Mapping[str, int], paths: Sequence[str]) -> dict[str, int]:
        """Return how many records have each value of a field, without the secrets in the values."""
        masked: Counter[str] = Counter()
        for value, number in counts.items():
            masked[self.text_of(value, paths)] += number
        return dict(masked)

    def text_of(self, text: str, paths: Iterable[str]) -> str:
        """Return a text of jobs of some classes without the secrets of any of them."""
        return reduce(self.text, ("", *paths), text)

    def error(self, error: Mapping[str, str], path: str) -> dict[str, str]:
        """Return the fields of an error of a job. Its message stands in the traceback, too."""
        masked, message = self.fields(error, path), error.get("message", "")
        if "traceback" in masked and message and masked["message"] != message:
            masked["traceback"] = masked["traceback"].replace(message, masked["message"])
        return masked

    def filters(self, texts: Iterable[str], paths: Iterable[str]) -> list[str]:
        """Return filters, as they stand in the audit, without the secrets that they asked for, and what is behind: a
        value may have spaces in it."""
        names = self._names_of_all(paths)
        return [_filter(text, names) for text in texts]

    def _names_of_all(self, paths: Iterable[str]) -> set[str]:
        return set().union(*(self._names_of(path) for path in ("", *paths)))

    def check_values(self, asked: Iterable[tuple[str, str]], paths: Iterable[str]) -> None:
        """Refuse to compare a field with JSON in which a secret is named: the answers would tell, bit by bit, what it
        is. The names of queues are shown as they are."""
        names = self._names_of_all(paths)
        if any(_asks_for_a_secret(value, names) for field, value in asked if field not in OF_QUEUES):
            raise Refusal(403, "JSON in which the name of a secret stands is masked: jobs cannot be searched by it")

    def check(self, names: Iterable[str], paths: Iterable[str]) -> None:
        """Refuse to search or to count by secret fields: the answer would tell what they hold."""
        for name in names:
            if any(self.is_secret(name, path) for path in ("", *paths)):
                raise Refusal(403, f"{name} is masked: jobs cannot be searched or counted by it")


def _names_a_secret(text: str, names: Iterable[str]) -> bool:
    """Return whether the name of a secret is anywhere in a text, or may be, as an escape of JSON."""
    return bool(SECRET.search(text)) or "\\u" in text or any(name in text for name in names)


def _asks_for_a_secret(value: str, names: Iterable[str]) -> bool:
    """Return whether a text to compare with is the beginning of JSON in which a secret is named."""
    return bool(_STRUCTURE.match(value) or _STRING.match(value)) and _names_a_secret(value, names)


def _filter(text: str, names: set[str]) -> str:
    for condition in _CONDITION.finditer(text):
        field, value = condition[1], text[condition.end() :]
        if SECRET.search(field) or field in names or _asks_for_a_secret(value, names):
            return text[: condition.end()] + HIDDEN
    return text


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; refuse one that has a name twice, of which the first value would not be looked at."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice")
    return found
