"""Counting errors by their cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from limpyd_jobs.dates import utcnow
from limpyd_jobs.search.found import Count
from limpyd_jobs.search.message_patterns import MAX_PATTERN, is_variable, pattern_of, shown_pattern
from limpyd_jobs.texts import one_line
from limpyd_jobs.transitions.many import Grouped

# How many causes are kept at most, how many messages of all of them, and of each cause how many classes, queues and
# versions.
MAX_GROUPS, MAX_MESSAGES, MAX_VALUES = 10_000, 100_000, 50

EXAMPLES = 3  # of a message, at most

HOURS = 24  # of the trend

# Returns what to tell instead of a message.
Mask = Callable[[str], str]

OTHERS = "(others)"  # stands for the values that are not kept


class ErrorMessage(NamedTuple):
    """A message of the errors of one cause.

    Attributes
    ----------
    pattern: str
        What the messages have in common: see `limpyd_jobs.search.message_patterns`.
    number: int
        How many errors have such a message.
    examples: list of str
        Some of the messages as they are, the newest first: at most 3, each in a line of at most 300 characters.
    """

    pattern: str
    number: int
    examples: list[str]

    def __str__(self) -> str:
        if self.number == 1 and self.examples:
            return self.examples[0]
        if is_variable(self.pattern) and self.examples:
            return f"{self.pattern}, for example {', '.join(self.examples)}".lstrip(", ")
        return shown_pattern(self.pattern, self.examples)


class ErrorGroup(NamedTuple):
    """The errors of one cause.

    Attributes
    ----------
    fingerprint: str
        The fingerprint of all of them; the type, if they have no fingerprint, as errors of version 2.
    type: str
    raised_in: str
        The place in the application: module, function and the text of the line. Empty if no code of the application
        raised it.
    message: str
        The most frequent of the messages, in words.
    number: int
        How many errors there are.
    first_seen, last_seen: str
        Dates in UTC.
    last: str
        The pk of the last error.
    model: str
        What the keys of the model of the last error begin with.
    job_classes, queues, app_versions: dict of str to int
        How many errors there are by the class of the job, by the queue, and by the version of the application if it
        says one; of 50 of each, and of all others as ``(others)``.
    messages: list of ErrorMessage
        The messages, the most frequent first, as many as were asked for.
    message_count: Count
        How many messages there are; a lower bound, if there are more than 100,000 of all causes.
    trend: list of int
        How many errors there were in each of the last 24 hours of the clock, the present one last.
    """

    fingerprint: str
    type: str
    raised_in: str
    message: str
    number: int
    first_seen: str
    last_seen: str
    last: str
    model: str
    job_classes: dict[str, int]
    queues: dict[str, int]
    app_versions: dict[str, int]
    messages: list[ErrorMessage]
    message_count: Count
    trend: list[int]

    @property
    def function(self) -> str:
        """The function that raised it, without the module and the line."""
        return self.raised_in.partition(", in ")[2].partition(":")[0]

    @property
    def example(self) -> str:
        """One of the most frequent messages, as it was."""
        return (self.messages[0].examples or [self.messages[0].pattern])[0] if self.messages else self.message


class ErrorGroups(NamedTuple):
    """Errors by their cause, the most frequent first.

    Attributes
    ----------
    groups: list of ErrorGroup
    others: int
        How many errors are in no group.
    is_exact: bool
        False if there was no time to look at all errors.
    looked, size: int
        At how many errors it looked, the newest first, and at how many there are to look.
    """

    groups: list[ErrorGroup]
    others: int
    is_exact: bool
    looked: int
    size: int


class Grouping:
    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._beyond = 0
        self._room = MAX_MESSAGES
        now = utcnow()
        self._hours = [f"{now - timedelta(hours=ago):%Y-%m-%d %H}" for ago in reversed(range(HOURS))]  # as dates begin

    def add(self, model: str, step: Grouped) -> None:
        """Add the errors that a step found among those of a model."""
        for fingerprint, found in step.groups.items():
            if fingerprint in self._groups or len(self._groups) < MAX_GROUPS:
                group = self._groups.setdefault(fingerprint, _Group(fingerprint))
                group.add(model, found, self._hours)
                self._room -= group.add_messages(model, found, self._room)
            else:
                self._beyond += found["count"]

    def examples(self, most: int, messages: int) -> set[str]:
        """Return the errors whose messages are to be told with the causes with the most errors."""
        return {example for group in self._most_frequent()[:most] for example in group.examples(messages)}

    def told(self, most: int, messages: int, texts: Mapping[str, str], mask: Mask) -> tuple[list[ErrorGroup], int]:
        """Return the causes with the most errors, some messages of each, and how many errors have other causes. The
        texts are the messages of the examples; `mask` returns what to tell instead of each."""
        groups = self._most_frequent()
        others = self._beyond + sum(each.number for each in groups[most:])
        return [group.told(messages, texts, mask, self._hours) for group in groups[:most]], others

    def _most_frequent(self) -> list[_Group]:
        return sorted(self._groups.values(), key=lambda group: (-group.number, group.fingerprint))


class _Message:
    def __init__(self) -> None:
        self.number = 0
        self.examples: list[str] = []

    def add(self, model: str, found: Mapping[str, Any]) -> None:
        self.number += found["count"]
        self.examples = [*self.examples, *(f"{model}:{pk}" for pk in found["pks"])][:EXAMPLES]


class _Group:
    def __init__(self, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self.number = 0
        self.model = self.last = self.type = self.raised_in = self.first_seen = self.last_seen = ""
        self._by = {name: Counter[str]() for name in ("job_class", "queue", "app_version")}
        self._by_hour = Counter[str]()
        self._messages: dict[str, _Message] = {}
        self._has_all_messages = True

    def add(self, model: str, found: Mapping[str, Any], hours: Sequence[str]) -> None:
        """Add the errors of this group that a step found among those of a model. Some hours are counted."""
        is_first = not self.number
        self.number += found["count"]
        if is_first or found["last_seen"] > self.last_seen:
            self.type, self.last_seen, self.last = found["type"], found["last_seen"], found["last"]
            self.model, self.raised_in = model, found.get("raised_in", "")
        if is_first or found["first_seen"] < self.first_seen:
            self.first_seen = found["first_seen"]
        for name, numbers in self._by.items():
            for value, number in found[name].items():
                numbers[value if value in numbers or len(numbers) < MAX_VALUES else OTHERS] += number

        self._by_hour.update({hour: found["hour"][hour] for hour in found["hour"].keys() & {*hours}})

    def add_messages(self, model: str, found: Mapping[str, Any], room: int) -> int:
        """Add the messages of these errors; return how many of them are new. There is only room for some new ones."""
        before = len(self._messages)
        texts = ((pattern_of(text), each) for text, each in found["texts"].items())
        for pattern, each in (*found["patterns"].items(), *texts):
            if pattern in self._messages or len(self._messages) - before < room:
                self._messages.setdefault(pattern, _Message()).add(model, each)
            else:
                self._has_all_messages = False
        return len(self._messages) - before

    def examples(self, messages: int) -> Iterable[str]:
        """Return the errors whose messages are examples of the most frequent ones."""
        return [example for _, message in self._most_frequent(messages) for example in message.examples]

    def _most_frequent(self, messages: int) -> list[tuple[str, _Message]]:
        return sorted(self._messages.items(), key=lambda item: (-item[1].number, item[0]))[:messages]

    def told(self, messages: int, texts: Mapping[str, str], mask: Mask, hours: Sequence[str]) -> ErrorGroup:
        """Return the group, given the messages of some errors by their pk."""
        shown = [_told(pattern, each, texts, mask) for pattern, each in self._most_frequent(messages)]
        classes, queues, versions = (dict(numbers.most_common()) for numbers in self._by.values())
        return ErrorGroup(
            fingerprint=self.fingerprint,
            type=self.type,
            raised_in=self.raised_in,
            message=f"{shown[0]}" if shown else "",
            number=self.number,
            first_seen=self.first_seen,
            last_seen=self.last_seen,
            last=self.last,
            model=self.model,
            job_classes=classes,
            queues=queues,
            app_versions=versions,
            messages=shown,
            message_count=Count(len(self._messages), self._has_all_messages),
            trend=[self._by_hour[hour] for hour in hours],
        )


def _told(pattern: str, message: _Message, texts: Mapping[str, str], mask: Mask) -> ErrorMessage:
    stored = [texts.get(example, "") for example in message.examples]
    shown = [mask(text) for text in stored]
    hidden = [masked for masked, text in zip(shown, stored, strict=True) if masked != text]
    pattern = mask(pattern_of(hidden[0]) if hidden else pattern)
    found = dict.fromkeys(" ".join(text.split()) for text in shown)
    return ErrorMessage(pattern, message.number, [one_line(text, MAX_PATTERN) for text in found if text])
