"""What the code of a job emits while it runs, for others to follow: see `limpyd_jobs.models.following.output`."""

from __future__ import annotations

import logging
from datetime import timedelta
from threading import Lock
from typing import Any

from limpyd.model import RedisModel
from redis.exceptions import RedisError

from limpyd_jobs.arguments import check_size, own_seconds
from limpyd_jobs.exceptions import ClaimLost, JobGone
from limpyd_jobs.functions import memoized
from limpyd_jobs.models.following.changes import refusing_other_keys
from limpyd_jobs.models.following.results import storable
from limpyd_jobs.records.layout import OUTPUT_KEY
from limpyd_jobs.records.lazy_fields import held_token, pk_of
from limpyd_jobs.records.records import redis_of
from limpyd_jobs.redis.calls import Call, Steps, listed, outcome_of
from limpyd_jobs.redis.scripting import Script
from limpyd_jobs.texts import MESSAGE, OncePer, one_line

_append_output = Script("records/append_output")

# How many chunks are kept of a job, and how many bytes of them; how many bytes one has at most, as UTF-8.
MAX_CHUNKS, MAX_BYTES, MAX_CHUNK_BYTES = 1000, 1024 * 1024, 64 * 1024

# For how many seconds the output is kept after the end of the job, unless its class says otherwise.
KEPT_FOR = 3600.0

# How many chunks, and how many characters of them, one step takes.
MOST_AT_ONCE, SIZE_AT_ONCE = 100, 256 * 1024

logger = logging.getLogger("limpyd-jobs")

_may_log = OncePer(60.0)


class Emission:
    """The output of one run of a job, on its way. One call at a time sends it, so that the chunks keep their order;
    what other threads and tasks emit meanwhile, that call sends, too.

    What Redis does not take goes with the next call. The numbers tell the script which chunks it has already.
    """

    def __init__(self, token: str) -> None:
        self.token = token
        self.first = 1  # the number of the first chunk that is not sent
        self._waiting: list[str] = []
        self._lock = Lock()
        self._is_sending = False

    def add(self, texts: list[str]) -> bool:
        """Add some chunks; return whether the caller has to send them."""
        with self._lock:
            self._waiting += texts
            too_many = len(self._waiting) - MAX_CHUNKS
            if too_many > 0 and not self._is_sending:  # Redis would drop them as well
                del self._waiting[:too_many]
                self.first += too_many
            may_send, self._is_sending = not self._is_sending, True
            return may_send

    def some(self) -> list[str]:
        """Return the next chunks to send; if there are none, the caller has to send nothing more."""
        with self._lock:
            number = size = 0
            for text in self._waiting[:MOST_AT_ONCE]:
                size += len(text)
                if number and size > SIZE_AT_ONCE:
                    break
                number += 1
            self._is_sending = number > 0
            return self._waiting[:number]

    def sent(self, number: int) -> None:
        """So many chunks are stored."""
        with self._lock:
            del self._waiting[:number]
            self.first += number

    def stop(self) -> None:
        """What is left is sent by the next call."""
        with self._lock:
            self._is_sending = False


def emitted(job: Any, *values: Any) -> Steps[None]:
    """Do what `Job.emit` says."""
    emission = _emission_of(job)
    texts = [_text_of(value) for value in values]
    if not emission.add(texts):
        return
    is_done = False
    try:
        while some := emission.some():
            yield from _send(job, emission, some)
            emission.sent(len(some))
        is_done = True
    except RedisError as error:
        if _may_log():
            what = "what it emitted is not sent yet, and goes with what it emits next"
            logger.warning(f"[{one_line(job.ident)}] {what}: {one_line(error, MESSAGE)}")
    finally:
        if not is_done:
            emission.stop()


def _send(job: Any, emission: Emission, texts: list[str]) -> Steps[None]:
    request = {
        "name": type(job)._name,
        "pk": pk_of(job),
        "token": emission.token,
        "first": emission.first,
        "chunks": listed(texts),
        "kept_for": int(output_kept_for(type(job)) * 1000),
        "most": MAX_CHUNKS,
        "most_bytes": MAX_BYTES,
    }
    with refusing_other_keys("a stream", output_key(request["name"], request["pk"])):
        outcome = yield Call(redis_of(job), _append_output, request, outcome_of)
    if outcome == "gone":
        raise JobGone(job.ident)
    if outcome == "refused":
        vars(job)["_claim_lost"] = True
        raise _claim_lost(job)


def _claim_lost(job: Any) -> ClaimLost:
    return ClaimLost(f"{job.ident} has lost its claim: another run may emit its output now, this one emits nothing")


def _emission_of(job: Any) -> Emission:
    """Return the emission of this run of a job."""
    known = vars(job)
    if known.get("_claim_lost"):
        raise _claim_lost(job)
    token = held_token(job, "emit its output")
    found = known.get("_emission")
    if found is None or found.token != token:
        found = known.setdefault("_emission", Emission(token))
        if found.token != token:  # that of an earlier claim on the same object
            found = known["_emission"] = Emission(token)
    return found


def _text_of(value: Any) -> str:
    text = storable(value, what="a chunk of output")
    check_size("A chunk of output", text, MAX_CHUNK_BYTES)
    return text


def output_key(name: str, pk: str) -> str:
    """Return the key of the output of a job, given the name of its model."""
    return f"{name}:{pk}:{OUTPUT_KEY}"


@memoized
def output_kept_for(model: type[RedisModel]) -> float:
    """Return for how many seconds the output of a job is kept after its end; an hour if the application uses the
    attribute ``keep_output`` otherwise."""
    value = getattr(model, "keep_output", None)
    return own_seconds(value.total_seconds() if isinstance(value, timedelta) else value) or KEPT_FOR
