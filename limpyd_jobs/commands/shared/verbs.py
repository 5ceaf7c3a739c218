"""Commands whose first word is a verb, and that ask before they change many things."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from redis.exceptions import RedisError

from limpyd_jobs.classes.imports import not_imported
from limpyd_jobs.commandline.programs import as_typed
from limpyd_jobs.commands.shared.command import FLAGS, Command
from limpyd_jobs.commands.shared.printing import ProgressLine, print_fields, shown_progress
from limpyd_jobs.exceptions import NotAudited, as_written
from limpyd_jobs.models import Job, job_classes
from limpyd_jobs.query import Tally
from limpyd_jobs.redis.calls import given
from limpyd_jobs.search.classes import asking_once
from limpyd_jobs.search.walk import OnStep
from limpyd_jobs.texts import MESSAGE, count_of, is_meant, one_line
from limpyd_jobs.views.documents import document
from limpyd_jobs.views.following import Following
from limpyd_jobs.views.verbs import Change

Verb = Callable[[Sequence[str]], int | None]
Hints = Callable[[Tally], Iterable[str]]


def job_class_of(path: str) -> type[Job]:
    """Return the job class of a path, or raise `ValueError` with the reason, and what to do about it."""
    try:
        return job_classes.resolve(path)
    except Exception as error:  # whatever its module raises
        raise ValueError(not_imported(path, error)) from None


class VerbCommand(Command):
    """A command with verbs. The exceptions in `refusals` are errors of the command line."""

    refusals: tuple[type[Exception], ...] = (LookupError, TypeError, ValueError)

    def verbs(self) -> Mapping[str, Verb]:
        """Return what each verb does with the words after it. The first one, the default, only shows something."""
        raise NotImplementedError

    def run(self) -> int:
        verbs = self.verbs()
        verb, *words = self.given or [next(iter(verbs))]
        if verb not in verbs:
            forgotten = "show" if {*"=<>"}.isdisjoint(verb) else "list"  # what takes a name, or a filter
            hint = is_meant(verb, verbs) or (f": is {forgotten} {verb} meant?" if forgotten in verbs else "")
            self.parser.error(f"{verb!r} is not one of {', '.join(verbs)}{hint}")
        for option in self.option_list:
            if option.dest in self.given_options and verb not in (getattr(option, "verbs", None) or verbs):
                self.parser.error(f"{verb} does not support {option}")
        try:
            with asking_once():
                return verbs[verb](words) or 0
        except NotAudited:
            raise
        except self.refusals as error:
            if self.place and not self.shards and isinstance(error, LookupError):
                raise  # another shard may have it
            self.parser.error(one_line(as_written(error, FLAGS), MESSAGE))

    def change_many(self, change: Change, hints: Hints = lambda _: (), what: str = "job") -> int:
        """Count what would be changed, ask, change it, and print the outcomes. With --yes, it is not counted
        first. `hints` returns what else there is to know of what was found."""
        done, is_counted = f"{change.verb.removesuffix('e')}ed", self.options.dry_run or not self.options.yes
        if is_counted:
            would = self._look(what, change.count)
            self.note(*hints(would))
            if self.options.dry_run:
                return self.print_tally(done, would, what)
            if would.done and not self.is_sure(f"{change.verb} {count_of(would.done, what)}{_until(would)}?"):
                return 1
        with self._noting_if_cut():
            if change.is_followed:
                return self._follow(change)
            tally = self._look(what, partial(change.do, **self.how_audited))
        if not is_counted:
            self.note(*hints(tally))
        return self.print_tally(done, tally, what)

    def _look(self, what: str, act: Callable[[OnStep | None], Tally]) -> Tally:
        with shown_progress(f"looked at {{:,}} of {{:,}} {what}s") as progress:
            return act(progress)

    def _follow(self, change: Change) -> int:
        """Do it, say how many ended how meanwhile, and return the exit status."""
        line = ProgressLine()
        try:
            following = Following(
                lambda looked, size, told: line(f"looked at {looked:,} of {size:,} jobs: {told}"),
                self.options.stop_if_failing,
                self._rate_of(change),
            )
            self.note(f"limpyd-jobs audit shows it, and the dashboard at /requeues/{following.token}")
            tally = change.follow(following, **self.how_audited)
        finally:
            line.end()
        found = following.outcomes
        if not self.print_as_json({**document(tally), **found._asdict(), "stopped": following.why_stopped or None}):
            self.print_tally("requeued", tally)
            print(f"{found}")
        if following.why_stopped:
            self.note(f"{following.why_stopped}. The others are in error still")
        return 1 if tally.refused or following.why_stopped else 0

    def _rate_of(self, change: Change) -> float | None:
        """Return how many jobs a second are put back at most."""
        if self.options.rate:
            return float(self.options.rate)
        return change.count().done / self.options.spread if self.options.spread else None

    @contextmanager
    def _noting_if_cut(self) -> Iterator[None]:
        """Say what to do if Ctrl-C, or a failure of Redis, ends this block before all is done."""
        try:
            yield
        except (KeyboardInterrupt, RedisError):
            self.note(
                "not all is done; what was done stays done: see limpyd-jobs audit. Type the line again for the rest"
            )
            raise

    def print_tally(self, done: str, tally: Tally, what: str = "job") -> int:
        """Print the outcomes of many jobs, given what was done, such as ``deleted``; return the exit status."""
        if not self.print_as_json(tally):
            reasons = [(f"{number:,}", as_typed(reason)) for reason, number in tally.reasons.items()]
            told = f"{self.would_be(done)}{_until(tally)}"
            print_fields([(f"{what}s", ""), (f"{tally.done:,}", told), *reasons], MESSAGE)
        return 1 if tally.refused else 0

    @property
    def pace(self) -> dict[str, Any]:
        """How jobs are spread, as the options ask for it."""
        if self.options.spread and self.options.rate:
            self.parser.error("--spread and --rate do not go together")
        if self.options.stop_if_failing is not None:
            if getattr(self.options, "delayed_for", None) or getattr(self.options, "delayed_until", None):
                self.parser.error("--stop-if-failing does not go together with --for and --until")
            return {"told": True}
        return given(spread=self.options.spread, rate=self.options.rate)


def _until(tally: Tally) -> str:
    return f", the last one due at {tally.until:%Y-%m-%d %H:%M:%S} (UTC)" if tally.until else ""
