"""The job classes of a database, and its models of queues and errors: what a process has to know of each to read its
records without importing it.

Each is written in the same step as the first record of it that a process makes, claims or moves; and once more after a
minute, for a database that was emptied meanwhile.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from operator import itemgetter
from time import monotonic
from typing import Any, NamedTuple

from limpyd.model import RedisModel

from limpyd_jobs.classes.binding import origin_of
from limpyd_jobs.classes.job_classes import path_of
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.functions import memoized
from limpyd_jobs.limiting.limit import Limit, limits_of_class
from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.redis.calls import Call, Steps, finish, listed
from limpyd_jobs.redis.scripting import Script

# A hash: the JSON of a `KnownClass`, of a job class by its path, or, if it is bound to another namespace, by its path
# and the beginning of its keys; of a model by its kind and the beginning of its keys.
KEY = "limpyd-jobs:classes"

QUEUES, ERRORS = "queues", "errors"  # the kinds of models

# After how many seconds a process writes a class again.
WRITTEN_FOR = 60.0

# How many names a class has at most: a script can read only so many fields of a job at once.
MAX_TEXTS = 4000

# How many classes and models are read, and how many bytes one has, at most.
MAX_CLASSES, LONGEST = 5_000, 500_000

_read_classes = Script("records/read_classes")

# Parts of the names of fields that are secret, and what stands for their values. `tokens` and `token_count` are counts,
# as of what a language model reads, unless the word before says which secrets they are; a `tokenizer` is none either.
SECRET = re.compile(
    r"passw|passphrase|pwd|secret|token(?!s|i[sz]|[_-]?(?:count|limit|budget|usage|rate))"
    r"|(?:access|api|auth|bearer|csrf|device|login|oauth|push|refresh|reset|security)[_-]?tokens"
    r"|api[_-]?key|private[_-]?key|access[_-]?key|credential|authori[sz]ation|cookie"
    r"|session[_-]?id|card[_-]?number|cvv|cvc|iban|ssn",
    re.IGNORECASE,
)
HIDDEN = "(masked)"

UNREADABLE = (AttributeError, KeyError, RecursionError, TypeError, ValueError)


class KnownClass(NamedTuple):
    """What other processes have to know of a job class, or of a model of queues or errors.

    It has the class path, the beginning of the keys, and the fields of the hash; by field, the beginning of the keys of
    an index of equality, and the sorted set of a range; and which fields hold dates in the form of `isoformat`. Of a
    job class, it also has the fields that are not in the hash, such as lists: `keys`; and the names that are secret, as
    its ``masked_fields`` say: `masked`; and its `limits`.
    """

    path: str
    name: str
    fields: frozenset[str]
    indexes: Mapping[str, str]
    ranges: Mapping[str, str]
    dates: frozenset[str]
    keys: frozenset[str] = frozenset()
    masked: frozenset[str] = frozenset()
    limits: tuple[Limit, ...] = ()

    @classmethod
    def of(cls, job_class: type[RedisModel]) -> KnownClass:
        """Return what others have to know of a class. If no script can work with it: `ConfigurationException`."""
        layout = layout_of(job_class)
        indexes, ranges, dates = (layout.description[name] for name in ("indexes", "ranges", "dates"))
        fitting = {
            name: [key for key in keys if (key in dates) == (name in layout.dates)] for name, keys in ranges.items()
        }
        return cls(
            layout.description["path"] or path_of(job_class),
            layout.description["name"],
            layout.plain | layout.special,
            {name: keys[0] for name, keys in indexes.items() if keys},
            {name: keys[0] for name, keys in fitting.items() if keys},
            frozenset(layout.dates),
            frozenset(layout.description["keys"] if layout.description["path"] else ()),
            masked_fields_of(job_class),
            limits_of_class(job_class),
        )

    @classmethod
    def parse(cls, text: str) -> KnownClass:
        """Read a text of `as_json`; for other texts, raise one of `UNREADABLE`."""
        path, name, names, indexes, ranges, dates, *rest = json.loads(text)
        keys, masked, limits = [*rest, [], [], []][:3]
        texts = (path, name, *names, *indexes.values(), *ranges.values(), *dates, *keys, *masked)
        if len(texts) > MAX_TEXTS:
            raise ValueError("no class has so many fields")
        for each in texts:
            each.encode()  # scripts take only UTF-8
        sets = (frozenset(dates), frozenset(keys), frozenset(masked))
        return cls(path, name, frozenset(names), indexes, ranges, *sets, tuple(map(Limit.of_given, limits)))

    def as_json(self) -> str:
        """Return the class as it is stored."""
        limits = [[limit.given for limit in self.limits]] if self.limits else []
        masked = [sorted(self.masked)] if self.masked or limits else []
        keys = [sorted(self.keys)] if self.keys or masked else []
        fields = (sorted(self.fields), self.indexes, self.ranges, sorted(self.dates), *keys, *masked, *limits)
        return json.dumps([self.path, self.name, *fields], separators=(",", ":"))


def unwritten(
    job_classes: tuple[type[RedisModel], ...] = (),
    queue_model: type[RedisModel] | None = None,
    error_model: type[RedisModel] | None = None,
    *,
    if_used: bool = False,
) -> str:
    """Return the classes and models that this process has to write, as scripts take them; empty if it has done so
    lately. They are on one database. With `if_used`, scripts write only job classes that have jobs."""
    models = job_classes, queue_model, error_model
    try:  # each job that is added comes here, so nothing is called but the clock
        database = (job_classes[0] if job_classes else queue_model or error_model).database  # type: ignore[union-attr]
        if database.__dict__["_written_classes"][models] > monotonic():
            return ""
    except KeyError:
        pass
    rows = [
        (_field_of_class(job_class, known), known.as_json(), *([f"{known.name}:collection"] if if_used else []))
        for job_class in job_classes
        for known in _all_of([job_class])
    ]
    for kind, model in ((QUEUES, queue_model), (ERRORS, error_model)):
        rows += [(_field_of(kind, known.name), known.as_json()) for known in _all_of([model])]
    return listed(rows)


def was_written(
    job_classes: tuple[type[RedisModel], ...] = (),
    queue_model: type[RedisModel] | None = None,
    error_model: type[RedisModel] | None = None,
) -> None:
    """Note that these are written in their database now."""
    model: Any = job_classes[0] if job_classes else queue_model or error_model
    times: dict[Any, float] = vars(model.database).setdefault("_written_classes", {})
    times[job_classes, queue_model, error_model] = monotonic() + WRITTEN_FOR


def _field_of_class(job_class: type[RedisModel], known: KnownClass) -> str:
    is_elsewhere = origin_of(job_class)._name != known.name
    return _field_of(known.path, known.name) if is_elsewhere else known.path


def _field_of(kind: str, name: str) -> str:
    return f"{kind} {name}"


class Written(NamedTuple):
    """What processes wrote of classes and models, by field; how many are not read, because there are too many, or they
    are too long; and the beginnings of keys that this user of Redis may not read, of these, and of those that the
    caller named."""

    texts: Mapping[str, str]
    left_out: int
    unread: frozenset[str]

    def without_unread(self, known: Mapping[str, KnownClass]) -> dict[str, KnownClass]:
        """Return those whose records may be read."""
        return {key: each for key, each in known.items() if each.name not in self.unread}


def known_classes(connection: Any, imported: Iterable[type[RedisModel]] = ()) -> dict[str, KnownClass]:
    """Return the job classes of a database, by path: the readable ones that are written there, and the given ones,
    which this process knows better. If jobs of a class are in several namespaces, those in its own one count. The given
    classes come last."""
    return classes_in(read_written(connection), imported)


def classes_in(written: Written, imported: Iterable[type[RedisModel]] = ()) -> dict[str, KnownClass]:
    """Return the job classes among what is written, as `known_classes` does."""
    ranked = [
        (2 if field == known.path else 0, known)
        for field, known in sorted(_stored(written.texts), key=itemgetter(0))
        if field in (known.path, _field_of(known.path, known.name))
    ]
    ranked += [(3 if origin_of(each) is each else 1, known) for each in imported if (known := _known(each))]
    found: dict[str, KnownClass] = {}
    for _, known in sorted(ranked, key=itemgetter(0)):
        found.pop(known.path, None)  # so that the last one comes last
        found[known.path] = known
    return found


def one_of_each(classes: Mapping[str, KnownClass]) -> dict[str, KnownClass]:
    """Return job classes by path, one for each beginning of keys: the last one of `known_classes`. A class that moved
    to another module is known by both paths, but has each job once."""
    return {known.path: known for known in {known.name: known for known in classes.values()}.values()}


def masked_fields_of(job_class: Any) -> frozenset[str]:
    """Return the names that a job class calls secret. Anything else of that name is the application's own."""
    names = getattr(job_class, "masked_fields", ())
    is_list = isinstance(names, (tuple, list, set, frozenset))
    return frozenset(name for name in names if isinstance(name, str)) if is_list else frozenset()


def is_secret_in(job_class: Any, name: str) -> bool:
    """Return whether a field is secret: by its name, or as its class says so."""
    return bool(SECRET.search(name)) or name in masked_fields_of(job_class)


class MaskedFields(NamedTuple):
    """The names that job classes of a database call secret, by the path of each class that is known; and whether these
    are all classes: only so many are read."""

    by_path: Mapping[str, frozenset[str]]
    is_whole: bool


def masked_in(written: Written, imported: Iterable[type[RedisModel]] = ()) -> MaskedFields:
    """Return the names that are secret in the records of job classes, by path: what any process that wrote a class
    says, and this one. A class that moved to another module has one set of records, so one set of secrets."""
    known = [*filter(None, map(_parsed, written.texts.values())), *_all_of(imported)]
    by_name: defaultdict[str, set[str]] = defaultdict(set)
    for each in known:
        by_name[each.name] |= each.masked
    by_path: defaultdict[str, set[str]] = defaultdict(set)
    for each in known:
        by_path[each.path] |= by_name[each.name]
    return MaskedFields({path: frozenset(names) for path, names in by_path.items()}, not written.left_out)


def paths_by_name(written: Written) -> dict[str, str]:
    """Return the paths of the job classes that are written in a database, by the beginning of their keys."""
    return {
        known.name: known.path
        for field, known in _stored(written.texts)
        if field in (known.path, _field_of(known.path, known.name))
    }


def names_by_path(connection: Any) -> dict[str, str]:
    """Return the beginnings of the keys of the job classes that are written in a database, by their paths."""
    return {path: known.name for path, known in known_classes(connection).items()}


def models_in(written: Written, kind: str, imported: Iterable[type[RedisModel]] = ()) -> dict[str, KnownClass]:
    """Return the models of queues, or of errors, by the beginning of their keys, as `classes_in` does."""
    stored = _stored(written.texts, _field_of(kind, ""))
    found = {known.name: known for field, known in stored if field == _field_of(kind, known.name)}
    return {**found, **{known.name: known for known in _all_of(imported)}}


def _all_of(imported: Iterable[type[RedisModel] | None]) -> list[KnownClass]:
    return [known for model in imported if model and (known := _known(model))]


@memoized
def _known(model: type[RedisModel]) -> KnownClass | None:
    """Know a class once: each look at all jobs asks for all classes that are imported."""
    with suppress(ConfigurationException):  # no script can make a record of it, so there are none
        return KnownClass.of(model)
    return None


def _stored(texts: Mapping[str, str], begin: str = "") -> Iterator[tuple[str, KnownClass]]:
    """Yield the readable classes and models whose field begins so, each with its field; none if another program put
    something else there."""
    for field, text in texts.items():
        if field.startswith(begin) and (known := _parsed(text)):
            yield field, known


@lru_cache(MAX_CLASSES)
def _parsed(text: str) -> KnownClass | None:
    """Read a class once: each look at all jobs asks for all classes."""
    with suppress(*UNREADABLE):
        return KnownClass.parse(text)
    return None


def unreadable_fields(written: Written) -> set[str]:
    """Return the fields in which another program wrote something that is not a class."""
    return {*written.texts} - {field for field, _ in _stored(written.texts)}


def read_written(connection: Any, imported: Iterable[type[RedisModel]] = ()) -> Written:
    """Read what processes wrote, and find out which records of these classes, and of the given ones, may be read."""
    return finish(reading_written(connection, imported))


def reading_written(connection: Any, imported: Iterable[type[RedisModel]]) -> Steps[Written]:
    """Return the steps of `read_written`."""
    request = {"most": MAX_CLASSES, "longest": LONGEST, "names": listed({known.name for known in _all_of(imported)})}
    reply = yield Call(connection, _read_classes, request, dict, keys=[KEY])
    return Written(dict(reply["classes"]), reply["left_out"], frozenset(reply["unread"]))
