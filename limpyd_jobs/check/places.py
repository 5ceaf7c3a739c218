"""Comparing where jobs stand with what their hashes say."""

from __future__ import annotations

import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from limpyd_jobs.check import scripts
from limpyd_jobs.check.catalogue import Catalogue, Model, Symptom
from limpyd_jobs.check.problems import LEAVE, Choices
from limpyd_jobs.check.queues import Queues
from limpyd_jobs.check.reader import Reader
from limpyd_jobs.check.records import BATCH
from limpyd_jobs.dates import datetime_to_score, parse_datetime
from limpyd_jobs.idents import Ident, read_pk
from limpyd_jobs.records.known_classes import names_by_path
from limpyd_jobs.records.records import attached
from limpyd_jobs.redis.calls import chunks
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import one_line
from limpyd_jobs.transitions import is_presumed

PLACES = {
    STATUSES.WAITING: ("waiting", "_parked"),
    STATUSES.DELAYED: ("delayed",),
    STATUSES.RUNNING: ("_running",),
}

# The fields that must not change between the two looks at a job, in the order of lua/check/repair_placement.lua.
SEEN = ("status", "queued", "_claim_token", "start", "end", "_last_claim", "_rescues", "delayed_until")

T = TypeVar("T")
Pk = int | str  # numbers take less room


class Places:
    """Looks at all places of jobs, after all jobs were read, and again at those that were not where they belong.

    It keeps some numbers for each queued job, about 250 bytes in all.
    """

    def __init__(self, reader: Reader, catalogue: Catalogue, queues: Queues, choices: Choices) -> None:
        self._reader = reader
        self._catalogue = catalogue
        self._queues = queues
        self._choices = choices
        self._expected: defaultdict[tuple[str, str], set[Pk]] = defaultdict(set)  # by the path and the status
        self._identifiers: set[int] = set()
        self._rivals: set[tuple[str, str]] = set()  # paths and identifiers of several jobs
        self._seen: defaultdict[str, set[Pk]] = defaultdict(set)  # by the path
        self._suspects: dict[str, str] = {}  # the values of the hash, by the ident
        self._orphans: set[str] = set()
        self._garbage: set[str] = set()
        self._moved: set[str] = set()  # idents of jobs that stand in a queue by a former path of their class
        self._names = names_by_path(reader.connection)
        self.unresolved: Counter[str] = Counter()
        self._presumed = 0

    # The first look

    def expect(self, model: Model, live: list[list[str]]) -> None:
        """Note where jobs should be: pks, statuses, identifiers, and whether something is already wrong."""
        for pk, status, identifier, is_odd in live:
            path = model.get_model_repr()
            if status in PLACES:
                self._expected[path, status].add(_compact(pk))
                self._note_identifier(path, identifier)
            if is_odd:
                self._suspects[f"{path}:{pk}"] = ""

    def _note_identifier(self, path: str, identifier: str) -> None:
        number = hash((path, identifier))
        if number in self._identifiers:
            self._rivals.add((path, identifier))
        self._identifiers.add(number)

    def discover(self) -> None:
        for _, _, idents, _ in self._walk(PLACES, self._queues.all):
            for path in {ident.path for ident in map(Ident.parse, idents) if ident}:
                self._catalogue.job_class(path)

    def look(self) -> Iterator[int]:
        """Look at all places; yield now and then how many entries there were."""
        self._queues.read()
        number = 0
        for key, status, idents, scores in self._walk(PLACES):
            self._look_at(key, status, idents, scores)
            number += len(idents)
            yield number
        self._sum_up()

    def _walk(
        self, statuses: Iterable[str], queues: Iterable[str] = ()
    ) -> Iterator[tuple[str, str, list[str], list[float]]]:
        """Yield, in chunks, the entries of the sound queues: the key, the status that belongs there, idents, scores."""
        for queue in queues or self._queues.sound:
            for status, place in ((each, place) for each in statuses for place in PLACES[each]):
                key = f"{queue}:{place}"
                if place == "waiting":
                    for idents in self._reader.entries(key):
                        yield key, status, idents, []
                else:
                    for pairs in self._reader.scores(key):
                        yield key, status, [ident for ident, _ in pairs], [score for _, score in pairs]

    def _look_at(self, key: str, status: str, idents: list[str], scores: list[float]) -> None:
        to_compare: list[tuple[Model, str, float]] = []
        for ident, score in zip(idents, scores or [0.0] * len(idents), strict=True):
            parsed = Ident.parse(ident)
            model = self._catalogue.job_class(parsed.path) if parsed else None
            if parsed is None:
                self._garbage.add(ident)
            elif model is None:
                if not self._catalogue.is_unread(parsed.path):
                    self.unresolved[parsed.path] += 1
                self._note_moved(parsed)
            else:
                path, pk = model.get_model_repr(), _compact(parsed.pk)
                if pk in self._seen[path]:
                    self._suspects[f"{path}:{pk}"] = ""
                elif status != STATUSES.WAITING or pk not in self._expected[path, status]:
                    to_compare.append((model, parsed.pk, score))
                self._seen[path].add(pk)
        self._compare(status, to_compare)

    def _note_moved(self, ident: Ident) -> None:
        """Note a job that stands in a queue by a former path of its class: it must not be put there twice."""
        name = self._names.get(ident.path)
        for path, model in self._catalogue.jobs.items():
            if model._name == name:
                self._seen[path].add(_compact(ident.pk))
                self._moved.add(f"{path}:{ident.pk}")

    def _compare(self, status: str, jobs: list[tuple[Model, str, float]]) -> None:
        """Look at the hashes of the delayed, running and new jobs that stand in a place."""
        fields = ("status", "delayed_until", "_claim_token")
        replies = self._reader.all(("HMGET", f"{model._name}:{pk}:hash", *fields) for model, pk, _ in jobs)
        now = time.time()
        for (model, pk, score), reply in zip(jobs, replies, strict=True):
            stored, delayed_until, token = reply if isinstance(reply, list) else (None, None, None)
            is_right = stored == status or (status == STATUSES.RUNNING and bool(token))
            if status == STATUSES.DELAYED:
                is_right = is_right and is_date_of(score, delayed_until)
            elif is_right and status == STATUSES.RUNNING and is_presumed(token):
                is_right = score <= now + self._choices.lease
                self._presumed += is_right and score > now
            if not is_right:
                self._suspects[f"{model.get_model_repr()}:{pk}"] = ""

    def _sum_up(self) -> None:
        """Suspect the jobs that were expected in a place, but not seen in any."""
        for (path, status), pks in self._expected.items():
            missing = {f"{path}:{pk}" for pk in pks - self._seen[path]}
            if status == STATUSES.WAITING:
                self._orphans |= missing - self._suspects.keys()
            self._suspects.update(dict.fromkeys(missing, ""))
        for path, identifier in self._rivals:
            queued = self._catalogue.jobs[path].collection(identifier=identifier, queued="1")
            self._suspects.update(dict.fromkeys((f"{path}:{pk}" for pk in queued), ""))
        for ident in self._moved:
            self._suspects.pop(ident, None)
        for kept in (self._expected, self._identifiers, self._seen):
            kept.clear()
        self._suspects = dict(zip(self._suspects, self._read(self._suspects, SEEN, "\0".join), strict=True))

    def warnings(self) -> Iterator[str]:
        """Yield how many jobs are only presumed to run, and are left alone."""
        if self._presumed:
            jobs = "1 job is" if self._presumed == 1 else f"{self._presumed:,} jobs are"
            yield (
                f"{jobs} RUNNING without the claim of a worker, and left alone for now: a worker of version 2 may run "
                "such jobs, or have left them. Once none lives: limpyd-jobs check --repair --lease=0"
            )

    # The second look

    @property
    def is_suspicious(self) -> bool:
        return bool(self._suspects or self._garbage or self.unresolved)

    def look_again(self, repair: bool) -> Iterator[Symptom]:
        """Yield the problems that are still there, and repair them if asked to."""
        self._queues.read()
        self._forget_found_orphans()
        if self.unresolved:
            yield from self._look_at_unresolved(self._choices.unresolved if repair else LEAVE)
        for ident in self._garbage:
            yield from self._repair_placement(None, ident, repair)
        # An orphan goes to the beginning of its list, so the last one is put back first.
        idents = sorted(self._suspects, key=_rank, reverse=True)
        dates = self._read(idents, ("delayed_until",), "".join)
        for ident, delayed_until in zip(idents, dates, strict=True):
            model = self._catalogue.jobs[Ident.of(ident).path]
            moment = parse_datetime(delayed_until)
            yield from self._repair_placement(
                model,
                ident,
                repair,
                in_no_list=ident in self._orphans,
                delayed_until=delayed_until,
                due=f"{datetime_to_score(moment):.6f}" if moment else "",
                seen=self._suspects[ident],
                unknown_status=self._choices.unknown_status,
            )

    def _look_at_unresolved(self, choice: str) -> Iterator[Symptom]:
        """Yield how many jobs there are of each class that cannot be resolved, and treat them as was chosen."""
        loose, running = Counter[str](), Counter[str]()
        for key, idents in self._unresolved_by_place():
            base, _, place = key.rpartition(":")
            for batch in chunks(idents, BATCH):
                taken = scripts.unresolved(self._reader.connection, base, place, batch, choice)
                loose.update(Ident.of(ident).path for ident in taken)
                if place in PLACES[STATUSES.RUNNING]:
                    running.update(Ident.of(ident).path for ident in batch if ident not in taken)
        kinds = ("unknown class", loose), ("unknown class runs", running)
        for kind, numbers in kinds if self._catalogue.imports else ():
            for path, number in numbers.items():
                yield None, path, kind, (number, self._catalogue.unknown[path])

    def _unresolved_by_place(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the key of each place, with its jobs whose class cannot be resolved."""
        found: defaultdict[str, dict[str, None]] = defaultdict(dict)
        for key, _, idents, _ in self._walk(PLACES):
            found[key].update(dict.fromkeys(filter(self._catalogue.may_be_given_up, idents)))
        for key, unresolved in found.items():
            yield key, list(unresolved)

    def _forget_found_orphans(self) -> None:
        """Forget jobs that stand in a list again: they are not orphans, a worker had taken them."""
        for _, _, idents, _ in self._walk([STATUSES.WAITING] if self._orphans else []):
            for ident in self._orphans.intersection(idents):
                self._orphans.discard(ident)
                del self._suspects[ident]

    def _repair_placement(self, model: Model | None, ident: str, repair: bool, **options: Any) -> Iterator[Symptom]:
        problems = scripts.repair_placement(
            self._reader.connection,
            model,
            ident,
            self._queues.sound,
            lease=self._choices.lease,
            token=f"check:{uuid.uuid4().hex}",
            repair=repair,
            **options,
        )
        letter = (options.get("seen") or "").partition("\0")[0]
        status = STATUSES.by_value(letter, repr(one_line(letter)) if letter else "unknown")
        if not (problems and all(is_repairable for _, _, is_repairable in problems)):
            self._queues.unplaced.add(ident)
        for problem, place, is_repairable in problems:
            if problem == "unknown status" and repair and self._choices.unknown_status == "delete" and model:
                attached(model, Ident.of(ident).pk).delete()
            yield model, ident, problem, (place, status, is_repairable)

    def _read(self, idents: Iterable[str], fields: tuple[str, ...], convert: Callable[[list[str]], T]) -> Iterator[T]:
        """Yield the values of some fields of jobs, '' without a value."""
        jobs = self._catalogue.jobs
        commands = (("HMGET", f"{jobs[path]._name}:{pk}:hash", *fields) for path, pk in map(Ident.of, idents))
        for reply in self._reader.all(commands):
            values = reply if isinstance(reply, list) else [None] * len(fields)
            yield convert([value or "" for value in values])


def is_date_of(score: float, text: str | None) -> bool:
    """Whether a score in a sorted set is the score of a date, given as text."""
    moment = parse_datetime(text)
    return moment is not None and abs(score - datetime_to_score(moment)) < 0.0001


def _compact(pk: str) -> Pk:
    number = read_pk(pk)
    return pk if number is None else number


def _rank(ident: str) -> tuple[str, int, str]:
    path, pk = Ident.of(ident)
    return path, len(pk), pk
