"""Looking after flows: what others left to do, flows that were not made to their end, and ends that none noticed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from time import time
from typing import Any

from redis.exceptions import ResponseError

from limpyd_jobs import transitions
from limpyd_jobs.models import Queue, job_classes
from limpyd_jobs.records import flows
from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.redis.calls import go_on_with, is_of_wrong_type, passing_over_wrong_types, send
from limpyd_jobs.redis.cluster.tags import at
from limpyd_jobs.texts import one_line
from limpyd_jobs.transitions import MAKING_SECONDS
from limpyd_jobs.workers.context import Context

# How often all flows are looked at, by one of all workers; seconds.
TEND_EVERY = 300

# How many flows of a kind are looked after in one run.
MOST = 1000


class FlowKeeper:
    """Looks after the flows of a database, if there are any: who looks for lapsed leases asks for it."""

    name = "tend_flows"
    interval = inf

    def __init__(self, queue_model: type[Queue]) -> None:
        self._queue_model = queue_model
        self._is_asked = False

    def begin(self) -> None:
        """There are flows to look after."""
        self._is_asked = True

    def run(self, context: Context) -> float:
        if self._is_asked:
            self._is_asked = False
            self._look(context)
        return inf

    def _look(self, context: Context) -> None:
        client = self._queue_model.get_connection()
        pipe = client.pipeline(transaction=False)
        pipe.zrange(at(client, flows.TODO), 0, MOST - 1)
        pipe.zrangebyscore(at(client, flows.BUILDING), "-inf", time() - MAKING_SECONDS, start=0, num=MOST)
        pipe.set(at(client, flows.TENDED), "1", nx=True, ex=TEND_EVERY)
        unfinished, silent, is_turn = pipe.execute(raise_on_error=False)
        go_on_with(client, _readable(unfinished))
        for flow in _readable(silent):
            with _others_go_on(context, flow):
                self._drop(context, client, flow)
        if _readable(is_turn):
            with passing_over_wrong_types():
                self._refresh_classes(client)
            self.tend(context, client)

    @staticmethod
    def _drop(context: Context, client: Any, flow: str) -> None:
        while send(transitions.drop_flow(client, flow, MAKING_SECONDS)):
            pass
        context.log(f"The flow {one_line(flow)} was not made to its end, and is dropped")

    @staticmethod
    def _refresh_classes(client: Any) -> None:
        """Write the models of the classes in flows anew, if this process knows them otherwise."""
        key = at(client, flows.CLASSES)
        stored = client.hgetall(key)
        for model in job_classes.all():
            if model._name in stored:
                with suppress(Exception):  # no script can work with it
                    json = layout_of(model).json
                    if stored[model._name] != json:
                        client.hset(key, model._name, json)

    @staticmethod
    def tend(context: Context, client: Any) -> None:
        """Look for ends of jobs that their flows do not know of."""
        first = 0
        while some := client.zrange(at(client, flows.LIVE), first, first + MOST - 1):
            FlowKeeper._tend_some(context, client, some)
            first += MOST

    @staticmethod
    def _tend_some(context: Context, client: Any, some: Iterable[str]) -> None:
        for flow in some:
            with _others_go_on(context, flow):
                FlowKeeper._tend_one(context, client, flow)

    @staticmethod
    def _tend_one(context: Context, client: Any, flow: str) -> None:
        cursor, found = "0", 0
        while True:
            cursor, numbers = send(transitions.tend_flow(client, flow, cursor))
            found += len(numbers)
            if cursor == "0":
                break
        if found:
            context.log(f"{found} jobs of the flow {one_line(flow)} had ended without its notice")


def _readable(reply: Any) -> Any:
    """Return a reply; an empty one if the key is of a wrong type, as another program wrote it. Raise other errors."""
    if is_of_wrong_type(reply):
        return ()
    if isinstance(reply, Exception):
        raise reply
    return reply


@contextmanager
def _others_go_on(context: Context, flow: str) -> Iterator[None]:
    """Let a flow whose keys another program wrote to keep no other flow from being looked after."""
    try:
        yield
    except ResponseError as error:
        if not is_of_wrong_type(error):
            raise
        context.log(
            f"The flow {one_line(flow)} cannot be looked after, as another program wrote to its keys: "
            f"{one_line(error)}",
            "warning",
        )
