"""One look at the jobs that meet some conditions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from limpyd.model import RedisModel

from limpyd_jobs.idents import EXACT_DIGITS, Ident, read_pk
from limpyd_jobs.records.known_classes import KnownClass, one_of_each
from limpyd_jobs.redis.calls import Commands, Steps
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.classes import (
    KnownModels,
    classes_of,
    connection_to,
    error_models_of,
    queue_models_of,
    reading_models,
    replies_to,
    standing_of,
)
from limpyd_jobs.search.conditions import ANY, Condition, check_fields
from limpyd_jobs.search.errors import ErrorFilter
from limpyd_jobs.search.fingerprints import is_fingerprint
from limpyd_jobs.search.walk import OnStep, Source, Walk
from limpyd_jobs.statuses import STATUSES

# Names that can be asked for, but are not fields of a job.
OTHER_NAMES = frozenset(
    {"class", "error", "fingerprint", "last_app_version", "last_fingerprint", "owner", "pk", "queue"}
)

# What is asked of the errors of a job, and of its last error alone.
OF_ERRORS, OF_LAST_ERROR = ("error", "fingerprint", "last_fingerprint"), "last_fingerprint"
OF_LAST_VERSION = "last_app_version"

# The indexes by which the errors of a job are found.
_LOOKED_AT = {"job_pk", "job_model_repr", "type", "_fingerprint"}

# Up to this number of errors is read first, to look at no jobs but theirs.
FEW_ERRORS = 5_000

# The lists of a queue, by the status of the jobs that they have. Canceled jobs are in no list, nor are those that
# processes of version 2 run.
_LISTS = {
    STATUSES.WAITING: "waiting",
    STATUSES.DELAYED: "delayed",
    STATUSES.SUCCESS: "success",
    STATUSES.ERROR: "errors",
    STATUSES.RUNNING: "_running",
}
_PARKED = "_parked"  # jobs that wait for a limit
_SORTED_SETS = (":delayed", ":_running", f":{_PARKED}")
_IN_NO_LIST = (STATUSES.RUNNING, STATUSES.CANCELED)

# How many entries of lists are read at once, and of how many characters at most all of them may be.
ENTRIES_PER_STEP, MAX_CHARACTERS = 2_000, 4_000_000

# Indexed fields of the library that a word alone does not mean: for these there are conditions.
NOT_MEANT = frozenset({"status", "queued", "priority", "tries", "cancel_on_error"})

# How many members of a set are read at once.
PER_SCAN = 1_000

# The pks of some jobs, by the path of the class.
PksByPath = Mapping[str, Iterable[int]]


class OnlyJobs(NamedTuple):
    """The only jobs that are meant. If they are those of the lists of a queue: how many entries were not read."""

    pks: PksByPath
    left_out: int = 0


def hides_none(name: str) -> bool:
    """Whether a word alone may not mean a field: it may mean each."""
    return False


class Meaning(NamedTuple):
    """The conditions of a class instead of those with words alone, and the pks of the only jobs that are meant; None if
    the conditions say all."""

    conditions: Sequence[Condition]
    pks: Sequence[int] | None


class Search(Walk):
    """One look at the jobs that meet some conditions."""

    def __init__(
        self,
        database: JobsDatabase,
        connection: Any,
        error_model: type[RedisModel] | None,
        timeout: float | None = None,
        progress: OnStep | None = None,
        is_hidden: Callable[[str], bool] = hides_none,
    ) -> None:
        super().__init__(timeout, progress)
        self._database, self._error_model, self._is_hidden = database, error_model, is_hidden
        self._connection = connection
        self._paths: defaultdict[str, list[str]] = defaultdict(list)  # of a class, by the beginning of its keys
        self._models: KnownModels | None = None  # until it begins

    def begin(self, conditions: Sequence[Condition], by: str | None, only: OnlyJobs | None) -> Steps[None]:
        """Find where to look: in classes that have the field `by`, or at some jobs only."""
        self.left_out = only.left_out if only else 0
        sources = yield from self._sources_of(conditions, by, only.pks if only else None)
        yield from self.measure(self._connection, sources)

    def _sources_of(
        self, conditions: Sequence[Condition], by: str | None, only: PksByPath | None
    ) -> Steps[list[Source]]:
        models = self._models = yield from reading_models(self._database)
        classes, queues = models.classes, models.queue_models
        for each in classes.values():
            self._paths[each.name].append(each.path)
        asked = [each for each in conditions if each.field != "class"]
        for condition in conditions:
            if condition.field == "class":
                classes = {path: each for path, each in classes.items() if condition.is_met_by_class(path)}
        known = [*one_of_each(classes).values()]
        names = {each.field for each in asked}.union([by] if by else []) - OTHER_NAMES - {ANY}
        if known:
            fields = OTHER_NAMES.union(*[each.fields for each in known])
            check_fields("None of these classes has a field", names, fields)
        able = [each for each in known if names <= each.fields]
        few = (yield from self._jobs_of_few_errors(asked)) if only is None else only

        meant: Mapping[str, Meaning] = {each.name: Meaning(asked, None) for each in able}
        if any(each.field == ANY for each in asked):
            classes_with_paths = [(each, self._paths[each.name]) for each in able]
            meant = yield from meanings_of(self._connection, classes_with_paths, asked, self._is_hidden)

        def source_of(each: KnownClass, meaning: Meaning) -> Source:
            paths, those = self._paths[each.name], meaning.pks
            if few is not None:
                pks = {pk for path in paths for pk in few.get(path, ())}
                those = sorted(pks if those is None else pks & {*those})
            tests = self._tests(each, meaning.conditions)
            return Source(self._connection, each, meaning.conditions, tests, those, standing_of(queues, paths))

        return [source_of(each, meant[each.name]) for each in able if each.name in meant]

    def _jobs_of_few_errors(self, conditions: Sequence[Condition]) -> Steps[PksByPath | None]:
        """Return the pks of the only jobs that can be meant, by the path of the class; None if that is not known."""
        for condition in conditions:
            if condition.field in OF_ERRORS and condition.is_equality:
                of_errors = partial(ErrorFilter, error_model=self._error_model, database=self._database)
                asked: ErrorFilter = yield partial(of_errors, f"{condition}".removeprefix("last_"))
                few = yield from asked.jobs(FEW_ERRORS)
                if few is not None:
                    return few
        return None

    def _tests(self, known: KnownClass, conditions: Sequence[Condition]) -> list[Mapping[str, Any]]:
        return [
            self._error_test(known, each)
            if each.field in (*OF_ERRORS, OF_LAST_VERSION)
            else each.as_test(is_date=each.field in known.dates)
            for each in conditions
        ]

    def errors_of(self, known: KnownClass) -> list[dict[str, str]]:
        """Return where scripts find the errors of the jobs of a class, for each model of errors and each path."""
        return [where for where, _ in self._errors_of(known)]

    def _errors_of(self, known: KnownClass) -> list[tuple[dict[str, str], Mapping[str, str]]]:
        models = error_models_of(self._database, self._error_model, self._models)
        found = [(each.name, each.indexes) for each in models if each.indexes.keys() >= _LOOKED_AT]
        return [
            (
                {"of_job": indexes["job_pk"], "of_class": f"{indexes['job_model_repr']}{path}", "errors": name},
                indexes,
            )
            for name, indexes in found
            for path in self._paths[known.name]
        ]

    def _error_test(self, known: KnownClass, condition: Condition) -> Mapping[str, Any]:
        if condition.field == OF_LAST_VERSION:
            how = {"test": "last version", "value": condition.value, "is_negated": condition.is_negated}
            return {**how, "models": self.errors_of(known)}
        has_fingerprint = condition.field != "error" and is_fingerprint(condition.value)
        field = "_fingerprint" if has_fingerprint else "type"
        models = [
            {**where, "of_kind": f"{indexes[field]}{condition.value}"} for where, indexes in self._errors_of(known)
        ]
        kind = "last error" if condition.field == OF_LAST_ERROR else "error"
        test = {"models": models, "test": kind, "value": condition.value, "is_negated": condition.is_negated}
        if condition.field != "error" and not has_fingerprint:  # errors without one: by their type
            return {**test, "without": "_fingerprint"}
        return test


def listed_jobs(
    database: JobsDatabase, conditions: Sequence[Condition], most: int, newest_first: bool
) -> OnlyJobs | None:
    """Return the jobs that the lists of a queue have, and, because they are in no list, those of all queues that run or
    are canceled, if they are few. Of long lists, read one end only: what was added last, or what was added first.
    Return None if no condition says which queue, or if too many jobs that are in no list are asked for."""
    name = next((each.value for each in conditions if each.field == "queue" and each.is_equality), None)
    if name is None:
        return None
    letter = next((each.value for each in conditions if each.field == "status" and each.is_equality), None)
    letters = [*STATUSES.values()] if letter is None else [letter]
    connection = connection_to(database)
    places = [_LISTS[each] for each in letters if each in _LISTS] + ([_PARKED] if STATUSES.WAITING in letters else [])
    lists = [f"{queue}:{place}" for queue in _queues_named(database, name) for place in places]
    entries, left_out = _entries_of(connection, lists, most, newest_first)
    unlisted = [each for each in letters if each in _IN_NO_LIST]
    sets, are_all = _sets_of(connection, database, unlisted, max(most - len(entries), most // 10))
    if letter in _IN_NO_LIST and not are_all:
        return None
    pks = defaultdict[str, set[str]](set)
    for key, members in zip(sets, replies_to(connection, (("SMEMBERS", key) for key in sets)), strict=True):
        pks[sets[key]].update(members or ())
    for entry in entries:
        path, _, pk = entry.rpartition(":")
        pks[path].add(pk)
    found = {path: {number for number in map(read_pk, some) if number is not None} for path, some in pks.items()}
    return OnlyJobs(found, left_out)


def _queues_named(database: JobsDatabase, name: str) -> list[str]:
    """Return what the keys of the queues of a name begin with, of all models."""
    models = queue_models_of(database)
    indexes = [f"{model.indexes.get('name', f'{model.name}:name:')}{name}" for model in models]
    pks = replies_to(connection_to(database), (("SRANDMEMBER", key, ENTRIES_PER_STEP) for key in indexes))
    return [f"{model.name}:{pk}" for model, some in zip(models, pks, strict=True) for pk in some or ()]


def _sets_of(connection: Any, database: JobsDatabase, letters: Sequence[str], most: int) -> tuple[dict[str, str], bool]:
    """Return the sets of the jobs with some statuses, and the path of their class: the smallest, up to `most` jobs; and
    whether these are all sets."""
    paths = {
        f"{known.indexes['status']}{each}": path
        for path, known in classes_of(database).items()
        for each in letters
        if "status" in known.indexes
    }
    sizes = replies_to(connection, (("SCARD", key) for key in paths))
    fitting: dict[str, str] = {}
    for size, key in sorted((size or 0, key) for size, key in zip(sizes, paths, strict=True)):
        most -= size
        if most >= 0:
            fitting[key] = paths[key]
    return fitting, len(fitting) == len(paths)


def _is_sorted_set(key: str) -> bool:
    return key.endswith(_SORTED_SETS)


def _entries_of(connection: Any, keys: Sequence[str], most: int, newest_first: bool) -> tuple[list[str], int]:
    """Return up to `most` entries of some lists, and how many are left out. Each list may have the same part of `most`,
    and what shorter lists leave of theirs."""
    sizes = replies_to(connection, (("ZCARD" if _is_sorted_set(key) else "LLEN", key) for key in keys))
    lists = sorted((size, key) for size, key in zip(sizes, keys, strict=True) if size)
    found: list[str] = []
    asked = characters = 0
    for number, (size, key) in enumerate(lists):
        part = min(size, (most - asked) // (len(lists) - number))
        for first in range(0, part, ENTRIES_PER_STEP):
            last = min(first + ENTRIES_PER_STEP, part) - 1
            if characters <= MAX_CHARACTERS:
                (some,) = replies_to(connection, [_reading(key, first, last, newest_first)])
                found += some or ()
                asked += last + 1 - first
                characters += sum(map(len, some or ()))
    return found, sum(size for size, _ in lists) - asked


def _reading(key: str, first: int, last: int, newest_first: bool) -> tuple[str | int, ...]:
    """Return the command that reads some entries of a list, from its end or its beginning; of a sorted set, those that
    are due first."""
    if _is_sorted_set(key):
        return ("ZRANGE", key, first, last)
    return ("LRANGE", key, -last - 1, -first - 1) if newest_first else ("LRANGE", key, first, last)


def meanings_of(
    connection: Any,
    classes: Sequence[tuple[KnownClass, Sequence[str]]],
    conditions: Sequence[Condition],
    is_hidden: Callable[[str], bool],
) -> Steps[dict[str, Meaning]]:
    """Return what the conditions mean for each class, with its paths, by the beginning of its keys; without classes
    that have no such jobs."""
    words = [each.value for each in conditions if each.field == ANY]
    others = [each for each in conditions if each.field != ANY]
    found = {known.name: Meaning(others, None) for known, _ in classes}
    for word in words:
        places = [(known, each) for known, _ in classes if known.name in found for each in _fields_of(known, is_hidden)]
        sizes = yield Commands(connection, [("SCARD", f"{known.indexes[name]}{word}") for known, name in places])
        have = [place for place, size in zip(places, sizes, strict=True) if isinstance(size, int) and size]
        for known, paths in classes:
            if known.name in found:
                fields = [name for each, name in have if each is known]
                narrowed = yield from _narrowed(connection, found.pop(known.name), known, word, fields, [*paths])
                found |= {known.name: narrowed} if narrowed else {}
    return found


def _fields_of(known: KnownClass, is_hidden: Callable[[str], bool]) -> Iterator[str]:
    names = known.indexes.keys() - known.dates - NOT_MEANT
    return (name for name in sorted(names) if not name.startswith("_") and not is_hidden(name))


def _narrowed(
    connection: Any, before: Meaning, known: KnownClass, word: str, fields: Sequence[str], paths: Sequence[str]
) -> Steps[Meaning | None]:
    """Return the meaning with one more word, which some indexed fields have as a value; None if it finds nothing."""
    pk = _pk_of(word, paths)
    if pk is None and len(fields) == 1:
        return before._replace(conditions=[*before.conditions, Condition(fields[0], "=", word)])
    pks = {pk} if pk is not None else set[int]()
    for name in fields:
        pks |= yield from _members(connection, f"{known.indexes[name]}{word}")
    if before.pks is not None:
        pks &= {*before.pks}
    return Meaning(before.conditions, sorted(pks)) if pks else None


def _pk_of(word: str, paths: Sequence[str]) -> int | None:
    """Return the pk that a word names in a class: the whole ident, or the name of the class with the pk behind it, as
    ``SendMail:12``."""
    path, _, text = word.rpartition(":")
    names = {*paths, *(each.rpartition(".")[2] for each in paths)}
    is_ident = path in names and bool(Ident.parse(word) or "." not in path)
    return read_pk(text) if is_ident and text and len(text) <= EXACT_DIGITS else None


def _members(connection: Any, key: str) -> Steps[set[int]]:
    cursor, found = 0, set[int]()
    while True:
        (reply,) = yield Commands(connection, [("SSCAN", key, cursor, "COUNT", PER_SCAN)])
        if isinstance(reply, Exception):
            raise reply
        cursor, some = reply
        found.update(number for number in map(read_pk, some) if number is not None)
        if not int(cursor):
            return found
