"""What a page and an act are. Each is a value; ``app.py`` makes routes of them, and nothing else knows HTTP.

A page shows something. Its handler runs in a thread, is given an `Asked`, and returns a value: a dataclass or a named
tuple, whose fields are texts, numbers, dates, lists and others of the kind. The template of the page shows it as
``it``; whoever asks for ``application/json`` is sent the same value.

>>> def show(asked: Asked) -> QueuesShown:
...     return QueuesShown(queue_states(database=asked.database))
>>> PAGE = Page("/queues", "Queues", show, "queues.html")

An act changes something. Its handler is given the form, too, and returns a `Plan`: what would be done, as a sentence; a
function that counts it, if that has to be confirmed; and a function that does it. Whoever sends the form sees the count
first, then sends it again with ``confirmed=1``. Then it is done in a thread of its own, with the name of the user in
the audit.

>>> def pause(asked: Asked, form: Form) -> Plan:
...     name = form.one("queue")
...     return Plan(f"Pause the queue {name}", lambda progress: pause_queue(…), back="/queues")
>>> ACTS = (Act("/queues/pause", Role.ACT, pause),)

Handlers raise `Refusal`, or let `ValueError`, `LookupError` and exceptions of this library pass: their texts are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl, urlencode

from limpyd_jobs.contrib.web.kept import Costly, Kept
from limpyd_jobs.contrib.web.refusals import Refusal
from limpyd_jobs.contrib.web.tasks import OnStep, Tasks, for_a_moment
from limpyd_jobs.contrib.web.users import Role, User
from limpyd_jobs.integration import one_line
from limpyd_jobs.query import Tally
from limpyd_jobs.views import Change, count_of

if TYPE_CHECKING:
    from limpyd_jobs.contrib.web.masking import Masking
    from limpyd_jobs.contrib.web.pictures.looks import Looks
    from limpyd_jobs.contrib.web.settings import Settings
    from limpyd_jobs.integration import JobsDatabase

MAX_FIELDS, MAX_MESSAGE = 2_000, 2_000

# The verbs that nothing undoes.
GRAVE = ("cancel", "delete")

# The name of a value that has all others.
KEPT = "_kept"

T = TypeVar("T")


class Form:
    """The values of a query or of a form, by name. A name may have several."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self.pairs = (*pairs,)

    @classmethod
    def parse(cls, text: str) -> Form:
        """Read what browsers send."""
        try:
            pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="surrogateescape")
            return cls(pairs)
        except ValueError:
            raise Refusal(413, f"At most {MAX_FIELDS:,} values can be sent at once") from None

    def all(self, name: str) -> list[str]:
        """Return the values of a name, without empty ones."""
        return [value for each, value in self.pairs if each == name and value]

    def get(self, name: str, default: str = "") -> str:
        """Return the last value of a name, or the default."""
        return next(iter(reversed(self.all(name))), default)

    def one(self, name: str) -> str:
        """Return the value of a name; raise `Refusal` if there is none."""
        found = self.get(name)
        if not found:
            raise Refusal(400, f"{name} is missing")
        return found

    def number(self, name: str, default: int, low: int, high: int) -> int:
        """Return a number in a range; raise `Refusal` if it is not one."""
        text = self.get(name)
        if not text:
            return default
        number = int(text) if text.isascii() and text.lstrip("-").isdigit() and len(text) < 19 else low - 1
        if not low <= number <= high:
            raise Refusal(400, f"{name} must be a number from {low:,} to {high:,}")
        return number

    def read(self, name: str, parse: Callable[[str], T]) -> T | None:
        """Return what a function reads in the value of a name; None if there is none. Raise `Refusal` if it cannot."""
        text = self.get(name)
        try:
            return parse(text) if text else None
        except ValueError as error:
            told = one_line(error, MAX_MESSAGE).removeprefix(f"{name}: ")
            says_what_it_must_be = type(error) is not ValueError
            raise Refusal(400, f"{name} must be {told}" if says_what_it_must_be else f"{name}: {told}") from None

    def without(self, *names: str) -> list[tuple[str, str]]:
        """Return the pairs of all other names."""
        return [pair for pair in self.pairs if pair[0] not in names]

    def as_kept(self) -> list[tuple[str, str]]:
        """Return the pairs that a browser sends back unchanged with ``confirmed``. It would not do so with ends of
        lines, or bytes that are not UTF-8: then all pairs are in one."""
        pairs = self.without("confirmed", "counted", "typed")
        if all(text.isprintable() for pair in pairs for text in pair):
            return pairs
        return [(KEPT, urlencode(pairs, errors="surrogateescape"))]

    @property
    def is_typed(self) -> bool:
        """Whether a number that had to be typed was typed, with or without separators."""
        digits = "".join(char for char in self.get("typed") if char.isascii() and char.isdigit())
        return digits == self.get("counted")

    def as_counted(self) -> Form:
        """Return the form of which `as_kept` returned the pairs."""
        kept = self.get(KEPT)
        return Form([*Form.parse(kept).pairs, *self.without(KEPT)]) if kept else self


class Times(NamedTuple):
    """For how many seconds something is looked for: at first, and by a page that asks again by itself."""

    first: float
    then: float


@dataclass(frozen=True)
class Asked:
    """A request, as a handler sees it.

    Attributes
    ----------
    user: User
    path: mapping of str to str
        The parameters of the path: ``{"ident": "shop.jobs.Mail:12"}`` for the page ``/jobs/{ident}``.
    query: Form
        What is behind the question mark.
    settings: Settings
    masking: Masking
        Hides secrets: each value of a field of an application has to pass it.
    tasks: Tasks
        The acts that are being done, and the last ones.
    kept: Kept
        What took long to find out.
    looks: Looks
        Looks at all of the database.
    polls: bool
        Whether the server holds a thread for each stream, as under WSGI, so that pages have to poll.
    costly: Costly
    is_again: bool
        Whether a page asks again by itself.
    """

    user: User
    path: Mapping[str, str]
    query: Form
    settings: Settings
    masking: Masking
    tasks: Tasks
    kept: Kept
    looks: Looks
    polls: bool = False
    costly: Costly = field(default_factory=Costly)
    is_again: bool = False

    def find(self, key: Hashable, look: Callable[[], T]) -> T:
        """Find something out that may take long: a page that asks again by itself may show what was found before."""
        return self.costly((self.database, key), look, is_new=not self.is_again)

    def find_soon(self, key: Hashable, look: Callable[[float], T], times: Times, is_whole: Callable[[T], bool]) -> T:
        """Find something out in a short time, for who waits for the page. If that is not enough, the page that asks
        again by itself has more time; what it found is shown to all as long as it is kept."""
        if self.is_again:
            return self.find(key, lambda: look(times.then))
        began = monotonic()
        found = look(times.first)
        if is_whole(found):
            self.costly.keep((self.database, key), found, monotonic() - began)
            return found
        known: T | None = self.costly.known((self.database, key))
        return found if known is None else known

    @property
    def database(self) -> JobsDatabase | None:
        """The database to ask; None for that of `BaseJobsModel`."""
        return self.settings.database

    def may(self, role: Role) -> bool:
        """Return whether the user may do what needs a role: nothing but look, if the dashboard is read-only."""
        return self.user.may(role) and (role <= Role.VIEW or not self.settings.read_only)

    def check(self, role: Role) -> None:
        """Raise `Refusal` if the user may not do what needs a role."""
        if role > Role.VIEW and self.settings.read_only:
            raise Refusal(403, "This dashboard is read-only")
        if not self.user.may(role):
            raise Refusal(403, f"{self.user.name} has the role {self.user.role}; this needs the role {role.word}")


@dataclass(frozen=True)
class Raw:
    """What a handler returns that is sent as it is: text of a kind, such as ``text/plain``."""

    content: bytes
    kind: str


@dataclass(frozen=True)
class Plan:
    """What an act would do.

    Attributes
    ----------
    title: str
        A short sentence in the imperative: ``Requeue the jobs of the queue mails``.
    do: callable
        Does it. It is given a function to call after each step with the numbers looked at and to look at, and returns a
        `Tally`, or a sentence that says what was done.
    count: callable
        Counts with a dry run what would be done, which the user has to confirm; None if there is nothing to confirm.
    danger: str
        A sentence about what cannot be undone.
    back: str
        The address of the page to go on with, as `address` makes it.
    is_short: bool
        Whether it is done in a moment: then it does not wait for acts that take long.
    verb, what: str
        What the button says, with the number between: ``Delete`` and ``job``. Without a verb, it says the title.
    is_grave: bool
        Whether it cannot be undone: the button is red, and a large number has to be typed.
    follows: str
        The name of a requeue that is followed, whose page shows how far it is; else empty.
    asks_to_stop: bool
        Whether the user is asked above which part of failures it has to stop by itself.
    stays: str
        A sentence about what is not touched.
    parts: callable
        Counts the same records by their queues, as far as there is time.
    """

    title: str
    do: Callable[[OnStep], Tally | str]
    count: Callable[[], Tally | str] | None = None
    danger: str = ""
    back: str = "/"
    is_short: bool = False
    verb: str = ""
    what: str = "job"
    is_grave: bool = False
    follows: str = ""
    asks_to_stop: bool = False
    stays: str = ""
    parts: Callable[[], Mapping[str, int]] | None = None

    @classmethod
    def of(cls, title: str, change: Change, danger: str = "", back: str = "/", what: str = "job") -> Plan:
        """Return the plan of a verb on many records, which are counted for a moment."""
        verb, is_grave = change.verb.capitalize(), change.verb in GRAVE
        return cls(title, change.do, lambda: change.count(for_a_moment()), danger, back, False, verb, what, is_grave)

    def button(self, would: Tally | str) -> str:
        """Return what the button says that does it, given what was counted."""
        if isinstance(would, str) or not self.verb:
            return self.title
        least = "" if would.is_exact else "at least "
        return f"{self.verb} {least}{count_of(would.done, self.what)}"


@dataclass(frozen=True)
class Act:
    """A change that a form asks for, by POST to its path. The role is checked before `prepare` is called."""

    path: str
    role: Role
    prepare: Callable[[Asked, Form], Plan]


@dataclass(frozen=True)
class Page:
    """Something to look at.

    Attributes
    ----------
    path: str
        As Starlette takes it: ``/queues``, ``/jobs/{ident:path}``.
    title: str
        Of the browser's window.
    show: callable
        The handler.
    template: str
        The name of a file in ``templates/``; empty if the handler returns `Raw`.
    label: str
        In the navigation; empty to leave it out there.
    icon: str
        The name of a symbol in ``icons.html``, over the label.
    key: str
        The letter that leads to it, after ``g``.
    role: Role
    acts: sequence of Act
        What its forms ask for.
    lane: str
        What it looks at, if that may take seconds: the pages of a lane together use a part of the threads only.
    empty: callable
        Returns what the page shows beside the reason why nothing can be looked for, as a filter is wrong. None if there
        is no page then.
    """

    path: str
    title: str
    show: Callable[[Asked], Any]
    template: str = ""
    label: str = ""
    icon: str = ""
    key: str = ""
    role: Role = Role.VIEW
    acts: Sequence[Act] = field(default=())
    lane: str = ""
    empty: Callable[[Asked], Any] | None = None
