"""The flows: whether any was not made to its end, and whether they know what became of their jobs."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

from limpyd_jobs import transitions
from limpyd_jobs.check.catalogue import Catalogue, Symptom
from limpyd_jobs.check.reader import Reader
from limpyd_jobs.models import Job
from limpyd_jobs.records import flows
from limpyd_jobs.records.flows import FLOW, key_of, read_of_flow, read_wait
from limpyd_jobs.redis.calls import chunks, go_on_with, send
from limpyd_jobs.redis.cluster.tags import at
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.transitions import MAKING_SECONDS

# For how many seconds something may be left to do of a flow: a worker looks after it more often.
GRACE_TIME = 60

# How many nodes are looked at at once.
BATCH = 1000


class Flows:
    """Looks at all flows that have not ended, and again if something looked wrong."""

    def __init__(self, reader: Reader, catalogue: Catalogue) -> None:
        self._reader = reader
        self._catalogue = catalogue
        self._ids: set[str] = set()  # those that keys name
        self._turns: set[str] = set()  # the keys of those that run one at a time
        self.is_suspicious = False

    def note(self, key: str) -> None:
        """Note a key that belongs to no model."""
        _, begins, rest = key.partition(FLOW)
        if begins and key == at(self._reader.connection, f"{FLOW}{rest}"):
            self._ids.add(rest.partition(":")[0])
        elif key.startswith(at(self._reader.connection, flows.TURNS)):
            self._turns.add(key)

    def look(self) -> Iterator[int]:
        found = len(list(self.look_again(repair=False)))
        self.is_suspicious = found > 0
        yield found

    def look_again(self, repair: bool) -> Iterator[Symptom]:
        """Yield what is wrong with flows, and put it right if asked to."""
        client = self._reader.connection
        (time,) = self._reader.all([("TIME",)])
        for flow in self._silent(flows.BUILDING, time[0] - MAKING_SECONDS):
            while repair and send(transitions.drop_flow(client, flow, MAKING_SECONDS)):
                pass
            yield None, key_of(client, flow), "flow not made", ()
        for flow in self._silent(flows.TODO, time[0] - GRACE_TIME):
            if repair:
                go_on_with(client, [flow])
            yield None, key_of(client, flow), "flow left to do", ()
        for flow in self._silent(flows.LIVE, inf):
            (kind,) = self._reader.all([("TYPE", key_of(client, flow))])
            if kind not in ("hash", "none"):
                yield None, key_of(client, flow), "flow of a wrong type", (kind,)
                continue
            number = self._unnoticed(flow)
            if number and repair:
                self._tend(flow)
            if number:
                yield None, key_of(client, flow), "ends not noticed", (number,)
        yield from self._out_of_turn(repair)
        yield from self._left_over(repair)
        yield from self._forlorn(repair)

    def _silent(self, key: str, moment: float) -> list[str]:
        """Return the ids that were put in a sorted set before a moment."""
        return [
            flow
            for chunk in self._reader.scores(at(self._reader.connection, key))
            for flow, score in chunk
            if score <= moment
        ]

    def _unnoticed(self, flow: str) -> int:
        """Return how many jobs have ended that the flow takes for open ones."""
        client, number = self._reader.connection, 0
        for numbers in self._reader.members(key_of(client, flow, ":open")):
            for some in chunks(numbers, BATCH):
                (texts,) = self._reader.all([("HMGET", key_of(client, flow, ":nodes"), *some)])
                if not isinstance(texts, list):  # of a wrong type, as another program wrote it: all are gone
                    texts = [None] * len(some)
                jobs = [(text or "").partition(" ")[0] for text in texts]
                queued = self._reader.all(("HGET", f"{job}:hash", "queued") for job in jobs)
                number += sum(1 for each in queued if each != "1")
        return number

    def _tend(self, flow: str) -> None:
        cursor = ""
        while cursor != "0":
            cursor, _ = send(transitions.tend_flow(self._reader.connection, flow, cursor or "0"))

    def _out_of_turn(self, repair: bool) -> Iterator[Symptom]:
        """Yield the flows that are held, though none runs that they wait for; and the lists of turns without a flow."""
        client = self._reader.connection
        for flow in self._silent(flows.LIVE, inf):
            state, turn = self._of_turn(flow)
            if state != "held" or not turn:
                continue
            key = at(client, f"{flows.TURNS}{turn}")
            first, place = self._reader.all([("LINDEX", key, 0), ("LPOS", key, flow)])
            if not isinstance(place, int) or not place or self._of_turn(first)[0] not in ("held", "running"):
                if repair:
                    self._tend(flow)
                yield None, key_of(client, flow), "flow out of turn", (turn,)
        for key in sorted(self._turns):
            (ids,) = self._reader.all([("LRANGE", key, 0, -1)])
            if isinstance(ids, list) and ids and all(self._of_turn(flow)[0] in (None, "ended") for flow in ids):
                if repair:
                    client.unlink(key)
                yield None, key, "left of a flow", ()

    def _of_turn(self, flow: str) -> tuple[str | None, str | None]:
        (found,) = self._reader.all([("HMGET", key_of(self._reader.connection, flow), "state", "turn")])
        return tuple(found) if isinstance(found, list) else (None, None)

    def _left_over(self, repair: bool) -> Iterator[Symptom]:
        """Yield the keys of flows that are no more."""
        client = self._reader.connection
        parts = ("nodes", "open", "after", "failed", "results", "todo", "signals", "waiters")
        for flow in sorted(self._ids):
            keys = [key_of(client, flow, f":{part}") for part in parts]
            is_there, *are_there = self._reader.all(("EXISTS", key) for key in (key_of(client, flow), *keys))
            for key, exists in zip(keys, are_there, strict=True):
                if exists and not is_there:
                    if repair:
                        client.unlink(key)
                    yield None, key, "left of a flow", ()

    def _forlorn(self, repair: bool) -> Iterator[Symptom]:
        """Yield the jobs that wait for others of a flow that is no more. What they spawned is looked for by them."""
        client = self._reader.connection
        for model in self._catalogue.all:
            if not issubclass(model, Job):
                continue
            for pks in self._reader.members(f"{model._name}:status:{STATUSES.DELAYED}"):
                hashes = self._reader.all(
                    ("HMGET", f"{model._name}:{pk}:hash", "_flow", "_waits", "delayed_until") for pk in pks
                )
                for pk, found in zip(pks, hashes, strict=True):
                    flow, has_spawned_it = _flow_of_parked(found)
                    if not flow or client.exists(key_of(client, flow)):
                        continue
                    if repair and not has_spawned_it:
                        model.get_from_ident(f"{model.get_model_repr()}:{pk}").cancel()
                    elif repair:
                        send(transitions.wake_spawner(model, f"{model.get_model_repr()}:{pk}", flow))
                    kind = "waits for spawned jobs that are gone" if has_spawned_it else "waits for a flow that is gone"
                    yield model, pk, kind, (flow,)


def _flow_of_parked(found: Any) -> tuple[str | None, bool]:
    """Return the flow of the jobs that a job waits for, given its fields, and whether it spawned these."""
    if not isinstance(found, list):
        return None, False
    text, waits, delayed_until = found
    place, wait = read_of_flow(text, None), read_wait(waits)
    if not wait.date or wait.date != delayed_until or wait.signal:
        return None, False
    if wait.children:
        return wait.children, True
    return place.flow if place else None, False
