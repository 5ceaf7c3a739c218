"""Which of the keys that records share are of a wrong type, because another program wrote them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from limpyd.model import RedisModel
from redis.exceptions import RedisError, ResponseError

from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.redis.calls import is_of_wrong_type
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import MESSAGE, one_line

_OF_QUEUE = {"delayed": "zset", "_running": "zset", "success": "list", "errors": "list"}


def remedy_of(
    error: BaseException | None, connection: Any, job_classes: Iterable[type[RedisModel]], queues: Iterable[str]
) -> str:
    """Return which keys are wrong, and what to do, to be put behind an error; nothing if it is about something else."""
    if not is_of_wrong_type(error) or "limpyd-jobs check" in str(error):
        return ""
    expected = {f"{queue}:{name}": kind for queue in queues for name, kind in _OF_QUEUE.items()}
    for model in job_classes:
        expected |= _keys_of(model, {"status": STATUSES.values(), "queued": "01"})
    return _remedy(connection, expected)


@contextmanager
def naming_wrong_keys(connection: Any, model: type[RedisModel], values: Mapping[str, str]) -> Iterator[None]:
    """Say in an exception which keys of a record with some values are of a wrong type, and what to do."""
    try:
        yield
    except ResponseError as error:
        if not is_of_wrong_type(error):
            raise
        expected = _keys_of(model, {name: [value] for name, value in values.items()})
        what = str(error).partition(" script: ")[0]
        raise ResponseError(f"{what}{_remedy(connection, expected)}") from error


def _remedy(connection: Any, expected: Mapping[str, str]) -> str:
    pipe = connection.pipeline(transaction=False)
    for key in expected:
        pipe.type(key)
    try:
        kinds = pipe.execute()
    except RedisError:
        return ""
    pairs = zip(expected.items(), kinds, strict=True)
    wrong = [f"{one_line(key)} is a {kind}" for (key, wanted), kind in pairs if kind not in (wanted, "none")]
    if not wrong:
        return ": another program wrote a key of ours, which limpyd-jobs check names"
    return one_line(
        f": {', '.join(wrong)}, which another program wrote: limpyd-jobs check --repair puts it right", MESSAGE
    )


def _keys_of(model: type[RedisModel], values: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Return the keys that records with some values of fields are written to, with their types."""
    description = layout_of(model).description
    indexes, ranges = description["indexes"], description["ranges"]
    sets = [f"{prefix}{value}" for name, found in values.items() for prefix in indexes.get(name, ()) for value in found]
    zsets = [key for keys in ranges.values() for key in keys]
    return {**dict.fromkeys([f"{description['name']}:collection", *sets], "set"), **dict.fromkeys(zsets, "zset")}
