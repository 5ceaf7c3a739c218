"""Which of the keys that records share are of a wrong type, because another program wrote them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from limpyd.model import RedisModel
from redis.exceptions import RedisError

from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.redis.calls import is_of_wrong_type
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import MESSAGE, one_line

_OF_QUEUE = {"delayed": "zset", "_running": "zset", "success": "list", "errors": "list"}


def remedy_of(
    error: BaseException | None, connection: Any, job_classes: Iterable[type[RedisModel]], queues: Iterable[str]
) -> str:
    """Return which keys are wrong, and what to do, to be put behind an error; nothing if it is about something else."""
    if not is_of_wrong_type(error):
        return ""
    expected = {f"{queue}:{name}": kind for queue in queues for name, kind in _OF_QUEUE.items()}
    for model in job_classes:
        expected |= _keys_of(layout_of(model).description)
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


def _keys_of(description: Any) -> dict[str, str]:
    """Return the keys that any job of a class may be written to, with their types."""
    name, indexes = description["name"], description["indexes"]
    values = {"status": STATUSES.values(), "queued": "01"}
    sets = [prefix + value for field in values for prefix in indexes.get(field, ()) for value in values[field]]
    ranges = [key for keys in description["ranges"].values() for key in keys]
    return {**dict.fromkeys([f"{name}:collection", *sets], "set"), **dict.fromkeys(ranges, "zset")}
