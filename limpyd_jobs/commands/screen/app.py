"""The screen of ``limpyd-jobs top``: what a key does, and what is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any, NamedTuple

from limpyd_jobs.commands.screen import pages, reading
from limpyd_jobs.commands.screen.lines import Line, Signs, cells, line, paragraphs
from limpyd_jobs.commands.screen.pages import Asked, Home, Item, OfCause, OfJob, OfQueue, Page, Row, Text, Workers
from limpyd_jobs.commands.screen.reading import Requeue, Sample, reason_of
from limpyd_jobs.commands.screen.waiting import Flows, Limits
from limpyd_jobs.query import Incident, Tally
from limpyd_jobs.texts import count_of, one_line
from limpyd_jobs.views.following import STOP_ABOVE
from limpyd_jobs.views.queues import QueueRow

# After how many seconds without an answer of Redis the screen says so.
LATE = 5.0


class Question(NamedTuple):
    """What is asked before something is done: a text, and what to do if the answer is yes. A `rate` may be typed."""

    text: Callable[[], str]
    act: Callable[[], object]
    requeue: Requeue | None = None


class View:
    """A page that is open, with what is chosen there."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.at = self.offset = 0
        self.filter = self.sort = ""
        self.data: Any = None
        self.is_reading = False


class App:
    """What is on the screen.

    Parameters
    ----------
    look: callable
        Returns a `Sample`; called in a thread.
    signs: Signs
    verbs: bool
        Whether queues may be changed: not if these are several databases.
    wake: callable
        Called by a thread that has something to be shown.
    """

    def __init__(self, look: Callable[[], Sample], signs: Signs, wake: Callable[[], object], *, verbs: bool) -> None:
        self._look, self._signs, self._wake, self._verbs = look, signs, wake, verbs
        self._results: SimpleQueue[Callable[[], None]] = SimpleQueue()  # to be called by the thread that draws
        self._views = [View(Home())]
        self._rows: list[Row] = []
        self._typed: str | None = None  # a filter that is being typed
        self._question: Question | None = None
        self._message = line("")
        self._problem = ""
        self._is_looking = False
        self._looked = 0.0
        self.sample: Sample | None = None
        self.is_over = False

    @property
    def view(self) -> View:
        return self._views[-1]

    # -- What is read, and done, in threads

    def _in_thread(self, act: Callable[[], Any], then: Callable[[Any], None], otherwise: Callable[[str], None]) -> None:
        def run() -> None:
            try:
                found = act()
            except BaseException as error:
                reason = reason_of(error)
                self._results.put(lambda: otherwise(reason))
            else:
                self._results.put(lambda: then(found))
            self._wake()

        Thread(target=run, daemon=True).start()

    def refresh(self) -> None:
        """Look at the database, and read what the page shows, unless that goes on already."""
        if not self._is_looking:
            self._is_looking = True
            self._in_thread(self._look, self._take, self._note_problem)
        view = self.view
        if view.page.read and not view.is_reading:
            view.is_reading = True
            self._in_thread(view.page.read, lambda found: self._give(view, found), lambda why: self._give(view, why))

    def take_results(self) -> None:
        """Take what threads have read or done."""
        while not self._results.empty():
            self._results.get()()

    def _take(self, sample: Sample) -> None:
        self.sample, self._is_looking, self._problem, self._looked = sample, False, "", monotonic()

    def _note_problem(self, why: str) -> None:
        self._is_looking, self._problem = False, why

    def _give(self, view: View, found: Any) -> None:
        view.data, view.is_reading = found, False

    def _say(self, text: str, style: str = "") -> None:
        self._message = line((text, style))

    # -- Keys

    def press(self, key: str) -> None:
        """Do what a key is for."""
        if self._question:
            self._answer(self._question, key)
        elif self._typed is not None:
            self._type(key)
        else:
            self._say("")
            self._keys().get(key, lambda: None)()

    def _keys(self) -> Mapping[str, Callable[[], None]]:
        return {
            **dict.fromkeys(("q", "Q"), self._end),
            **dict.fromkeys(("down", "j"), lambda: self._move(1)),
            **dict.fromkeys(("up", "k"), lambda: self._move(-1)),
            "page down": lambda: self._move(10),
            "page up": lambda: self._move(-10),
            "home": lambda: self._move(-len(self._rows)),
            "end": lambda: self._move(len(self._rows)),
            "g": lambda: self._move(-len(self._rows)),
            "G": lambda: self._move(len(self._rows)),
            **dict.fromkeys(("enter", "right"), self._open),
            **dict.fromkeys(("escape", "backspace", "left"), self._go_back),
            "/": self._begin_to_filter,
            "s": self._sort,
            "w": lambda: self._show(Workers()),
            "l": lambda: self._show(Limits()),
            "f": lambda: self._show(Flows()),
            "?": lambda: self._show(Text("keys", pages.KEYS)),
            "p": self._ask_to_pause,
            "r": self._ask_to_requeue,
            "e": self._explain,
        }

    def _end(self) -> None:
        self.is_over = True

    def _items(self) -> list[int]:
        return [at for at, row in enumerate(self._rows) if row.item]

    @property
    def chosen(self) -> Item | None:
        """The row that is chosen."""
        items = self._items()
        return self._rows[items[min(self.view.at, len(items) - 1)]].item if items else None

    def _move(self, number: int) -> None:
        items = self._items()
        if items:
            self.view.at = min(max(min(self.view.at, len(items) - 1) + number, 0), len(items) - 1)
        else:  # a page of text
            self.view.offset = min(max(self.view.offset + number, 0), max(len(self._rows) - 1, 0))

    def _show(self, page: Page) -> None:
        if type(self.view.page) is not type(page) or isinstance(page, (OfCause, OfJob, OfQueue)):
            self._views.append(View(page))
            self.refresh()

    def _open(self) -> None:
        if self.chosen and (page := pages.opened(self.chosen)):
            self._show(page)

    def _go_back(self) -> None:
        if self.view.filter:
            self.view.filter = ""
        elif len(self._views) > 1:
            self._views.pop()

    def _begin_to_filter(self) -> None:
        self._typed = self.view.filter

    def _type(self, key: str) -> None:
        typed = self._typed or ""
        if key in ("enter", "escape"):
            self.view.filter, self._typed = ("" if key == "escape" else typed), None
        else:
            self._typed = typed[:-1] if key == "backspace" else typed + key if len(key) == 1 else typed
            self.view.filter, self.view.at, self.view.offset = self._typed, 0, 0

    def _sort(self) -> None:
        sorts = self.view.page.sorts
        if sorts:
            at = sorts.index(self.view.sort) if self.view.sort in sorts else 0
            self.view.sort = sorts[(at + 1) % len(sorts)]
            self._say(f"sorted by {self.view.sort}", "weak")

    # -- Questions

    def _answer(self, question: Question, key: str) -> None:
        if key.lower() == "y":
            self._question = None
            self._say("…", "weak")
            question.act()
        elif question.requeue and (key.isdecimal() or key == "backspace"):
            rate = f"{question.requeue.rate:.0f}"
            text = rate[:-1] if key == "backspace" else f"{'' if rate == '0' else rate}{key}"[:6]
            question.requeue.rate = float(text or 0)
        elif question.requeue and key == "s":
            question.requeue.stops = not question.requeue.stops
        elif key in ("n", "N", "escape", "enter", "q"):
            self._question = None
            self._say("nothing was done", "weak")

    def _is_refused(self, command: str) -> bool:
        if not self._verbs:
            self._say(f"these are several databases: name one with --database, and type {command}", "warning")
        return not self._verbs

    def _ask_to_pause(self) -> None:
        queues, pauses = self._queues_of(self.chosen)
        if not queues:
            self._say("choose a queue, to pause it", "weak")
            return
        verb = "pause" if pauses else "resume"
        if self._is_refused(f"limpyd-jobs queues {verb}"):
            return
        names = one_line(queues[0][1]) if len(queues) == 1 else count_of(len(queues), "queue")
        word = "Pause" if pauses else "Unpause"
        self._question = Question(
            lambda: f"{word} {names}?",
            lambda: self._do(lambda: reading.change_pause(queues, pauses=pauses)),
        )

    def _queues_of(self, item: Item | None) -> tuple[list[tuple[str, str]], bool]:
        """Return the model and the name of the queues that a row is about, and whether they are to be paused."""
        if item and isinstance(item.value, Incident):
            remedy = item.value.remedy
            if remedy and remedy.queues:
                return [*remedy.queues], remedy.verb == "pause"
            rows = [self.sample.row(name) for name in item.value.queues] if self.sample else []
        else:
            name = self.view.page.name if isinstance(self.view.page, OfQueue) else ""
            row = item.value if item and isinstance(item.value, QueueRow) else self.sample and self.sample.row(name)
            rows = [row]
        found = [row for row in rows if row]
        return [(row.model, row.name) for row in found], not all(row.is_paused for row in found)

    def _ask_to_requeue(self) -> None:
        item, page = self.chosen, self.view.page
        value = item.value if item else None
        if isinstance(page, OfCause):
            requeue, what = Requeue(page.fingerprint), "of this cause"
        elif item and item.kind == "cause":
            requeue, what = Requeue(item.value.fingerprint), f"of {one_line(item.value.type)}"
        elif isinstance(value, Incident) and value.fingerprint:
            fails = ", which still fails," if value.is_failing else ""
            where = f" in {one_line(value.queue)}" if value.queue else ""
            where = f" in {count_of(len(value.queues), 'queue')}" if len(value.queues) > 1 else where
            requeue, what = Requeue(value.fingerprint, value.queues), f"of {one_line(value.type)}{where}{fails}"
        elif isinstance(value, QueueRow) or isinstance(page, OfQueue):
            name = value.name if isinstance(value, QueueRow) else page.name if isinstance(page, OfQueue) else ""
            requeue, what = Requeue(queues=[name] if name else []), f"of {one_line(name)}"
        else:
            self._say("choose a queue or a cause, to requeue its jobs", "weak")
            return
        if not self._is_refused("limpyd-jobs errors requeue"):
            self._say("counting…", "weak")
            self._in_thread(requeue.count, lambda tally: self._ask(requeue, what, tally), self._say_why)

    def _ask(self, requeue: Requeue, what: str, tally: Tally) -> None:
        number = tally.done
        if not number:
            why = next(iter(tally.reasons), "")
            self._say(f"none can be requeued: {why}" if why else f"no job {what} is in error", "weak")
            return

        def say(text: str) -> None:
            self._results.put(lambda: self._say(text, "running"))
            self._wake()

        def text() -> str:
            until = f", until over {STOP_ABOVE:.0%} fail again" if requeue.stops else ""
            return f"Requeue {count_of(number, 'job')} {what} at {requeue.rate:.0f}/s{until}?"

        def act() -> None:
            if requeue.rate:
                self._do(lambda: requeue.do(say))
            else:
                self._say("nothing was done", "weak")

        self._question = Question(text, act, requeue)

    def _do(self, act: Callable[[], str]) -> None:
        def done(text: str) -> None:
            self._say(text, "well")
            self.refresh()

        self._in_thread(act, done, self._say_why)

    def _say_why(self, why: str) -> None:
        self._say(why, "error")

    def _explain(self) -> None:
        item, page = self.chosen, self.view.page
        if item and item.kind in ("incident", "job", "cause", "worker", "page"):
            self._open()
        elif item and isinstance(item.value, QueueRow):
            incident = item.value.incident
            self._show(pages.OfIncident(incident) if incident else OfQueue(item.value.name))
        elif isinstance(page, OfQueue) and self.sample and (row := self.sample.row(page.name)) and row.incident:
            self._show(pages.OfIncident(row.incident))

    # -- Drawing

    def lines(self, width: int, height: int) -> list[tuple[Line, bool]]:
        """Return the lines of the screen, and whether each is chosen."""
        sample = self.sample
        if sample is None:
            return [(line((self._problem or "looking…", "error" if self._problem else "weak")), False)]
        view = self.view
        asked = Asked(sample, width, self._signs, view.filter, view.sort, view.data, pages.now())
        top = [*pages.head(sample, asked, sample.seen.overview.database), []]
        top[1:1] = [each for note in sample.notes for each in paragraphs(note, width, "error", 3)]
        if len(self._views) > 1:
            top[-1:] = [line((" > ".join(each.page.title or "" for each in self._views), "weak"))]
        self._rows = [*view.page.rows(asked)]
        asking = [*paragraphs(self._question.text(), width, "ask", 3)] if self._question else []
        room = max(height - len(top) - len(asking) - 1, 1)
        body = self._window(room)
        return [
            *((each, False) for each in top),
            *body,
            *[([], False)] * (room - len(body)),
            *((each, False) for each in asking),
            (self._foot(width), False),
        ]

    def _window(self, room: int) -> list[tuple[Line, bool]]:
        """Return the lines of the page that there is room for, with the one that is chosen."""
        items, view = self._items(), self.view
        view.at = min(view.at, max(len(items) - 1, 0))
        at = items[view.at] if items else None
        if at is not None:
            if not view.at:
                view.offset = 0
            view.offset = min(max(view.offset, at - room + 1), at)
        view.offset = min(view.offset, max(len(self._rows) - room, 0))
        heading = self._heading_above(view.offset) if room > 1 else None
        if heading is not None and view.offset == at:
            view.offset -= 1  # the heading takes the first line
        shown = [*enumerate(self._rows)][view.offset : view.offset + room]
        if heading is not None and heading < view.offset:
            shown[0] = heading, self._rows[heading]
        return [(row.line, number == at) for number, row in shown]

    def _heading_above(self, offset: int) -> int | None:
        """Return which row is the heading of the table in whose midst the window begins; None if it does not."""
        at = offset
        while 0 <= at < len(self._rows) and self._rows[at].item:
            at -= 1
        return at if 0 <= at < offset and self._rows[at].is_heading else None

    def _foot(self, width: int) -> Line:
        if self._question:
            requeue = self._question.requeue
            words = [("y", "yes"), ("n", "no")]
            if requeue:
                words += [("0-9", "another rate"), ("s", "do not stop" if requeue.stops else "stop if many fail again")]
            return [part for key, what in words for part in ((key, "key"), (f" {what}  ", ""))]
        if self._typed is not None:
            return line(("/", "key"), self._typed, ("▏", "weak"))
        if self._problem or (self._is_looking and monotonic() - self._looked > LATE):
            age = f"as of {monotonic() - self._looked:.0f} s ago: "
            return line((f"{age}{self._problem or 'Redis does not answer'}", "error"))
        if any(text for text, _ in self._message):
            return self._message
        words = [("Enter", "open"), ("/", "filter"), ("s", "sort"), ("p", "pause"), ("r", "requeue")]
        words += [
            ("w", "workers"),
            ("?", "keys"),
            ("q", "end"),
            ("l", "limits"),
            ("f", "flows"),
            ("e", "explain"),
            ("↑↓", "choose"),
        ]
        if self.view.filter:
            words = [(f"/{self.view.filter}", "Esc ends the filter"), *words]
        room, shown = width, set[str]()
        for key, word in sorted(words, key=lambda each: each[0] not in ("Enter", "?", "q")):
            if (size := cells(f"{key} {word}  ")) <= room:
                room -= size
                shown.add(key)
        return [part for key, word in words if key in shown for part in ((key, "key"), (f" {word}  ", "weak"))]
