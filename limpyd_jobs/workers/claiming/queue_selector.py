"""The order in which a worker looks at its waiting lists, so that many jobs in one list do not stop another list."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Place(NamedTuple):
    """What the turn of a waiting list depends on: the priority of its queue, and the weight of its name."""

    priority: str
    weight: int


class QueueSelector:
    """The turns of the waiting lists of one worker: within one priority, each is served by its weight.

    Each job that comes out of a list moves the next turn of the list into the future. The greater the weight of the
    list, the smaller the move ("stride scheduling"). A list that was empty at its turn saves nothing up.
    """

    def __init__(self, places: Mapping[str, Place] | None = None) -> None:
        self._places: Mapping[str, Place] = {}  # by the key of the list. Other lists keep their place in the order
        self._next: defaultdict[str, float] = defaultdict(float)
        self._order: list[str] = []
        self.update(places or {})

    def update(self, places: Mapping[str, Place]) -> None:
        """Take other lists. New lists begin with the next list of their priority."""
        for key in places.keys() - self._places.keys():
            peers = [self._next[peer] for peer in self._peers(key, places) if peer in self._places]
            self._next[key] = min(peers, default=0)
        self._places = places

    def order(self, keys: Sequence[str]) -> list[str]:
        """Return waiting lists, given with the highest priority first, in the order of their turns."""
        groups: defaultdict[str, list[str]] = defaultdict(list)
        for key in keys:
            if key in self._places:
                groups[self._places[key].priority].append(key)
        turns = {priority: iter(sorted(group, key=self._next.__getitem__)) for priority, group in groups.items()}
        self._order = [next(turns[self._places[key].priority]) if key in self._places else key for key in keys]
        return self._order

    def served(self, key: str) -> None:
        """Note that a job came out of a list, and that the lists before it in turn were empty."""
        if key not in self._places:
            return
        moment = self._next[key]
        for peer in self._peers(key, self._places):
            self._next[peer] = max(self._next[peer], moment if self._is_before(peer, key) else 0)
        self._next[key] = moment + 1 / self._places[key].weight

    def _is_before(self, peer: str, key: str) -> bool:
        order = self._order
        return peer in order and key in order and order.index(peer) < order.index(key)

    @staticmethod
    def _peers(key: str, places: Mapping[str, Place]) -> list[str]:
        return [peer for peer, place in places.items() if peer != key and place.priority == places[key].priority]
