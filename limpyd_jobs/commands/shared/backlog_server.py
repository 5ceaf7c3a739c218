"""Answering autoscalers over HTTP: what has to be run, and how many workers that needs."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from contextlib import closing
from optparse import Values
from time import monotonic
from urllib.parse import parse_qs

from redis.exceptions import RedisError

from limpyd_jobs.commandline.options import queue_names, time_span
from limpyd_jobs.commandline.parser import cannot_use_redis
from limpyd_jobs.observing.responder import JSON, NOT_FOUND, Answer, Responder
from limpyd_jobs.query.backlog import Backlog
from limpyd_jobs.texts import MESSAGE, one_line

# For how many seconds an answer is given again, so that many who ask cost no more than one; and how many are kept.
FRESH, MAX_KEPT = 1.0, 100

Look = Callable[[str | None, float], Backlog]  # with the names of queues, and within how many seconds all should begin


def serve(look: Look, options: Values, note: Callable[[str], None]) -> None:
    """Print the address, and answer until SIGTERM. For the main thread."""
    answers = Answers(look, options, note)
    with closing(Responder(options.host, options.port, answers)) as responder:
        print(f"{responder.address}/backlog", flush=True)
        if not options.dry_run:
            before = signal.signal(
                signal.SIGTERM, lambda *_: responder.end()
            )  # the first process of a container ignores it
            responder.serve_until_ended()
            signal.signal(signal.SIGTERM, before)


class Answers:
    """The answers for ``/backlog``, with ``queues`` and ``within`` or those of the options, and for ``/health``."""

    def __init__(self, look: Look, options: Values, note: Callable[[str], None]) -> None:
        self._look, self._options, self._note = look, options, note
        self._kept: dict[str, tuple[float, Answer]] = {}

    def __call__(self, path: str) -> Answer:
        place, _, query = path.partition("?")
        if place == "/health":
            return Answer(200, "ok\n")
        if place != "/backlog":
            return NOT_FOUND
        self._kept = {each: kept for each, kept in self._kept.items() if monotonic() < kept[0] + FRESH}
        if query not in self._kept:
            if len(self._kept) >= MAX_KEPT:
                return Answer(503, "too many different questions\n")
            self._kept[query] = monotonic(), self._found(query)
        return self._kept[query][1]

    def _found(self, query: str) -> Answer:
        try:
            given = {name: values[-1] for name, values in parse_qs(query).items()}
            queues = queue_names(given["queues"]) if "queues" in given else self._options.queues
            within = time_span(given["within"]) if "within" in given else self._options.within
            found = self._look(queues, within)
        except RedisError as error:
            self._note(cannot_use_redis(error))
            return Answer(503, f"Redis cannot be used: {type(error).__name__}\n")
        except ValueError as error:
            return Answer(400, f"{one_line(error, MESSAGE)}\n")
        return Answer(200, json.dumps(found.as_dict()) + "\n", JSON)
