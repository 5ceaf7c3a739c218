"""Calls of scripts, as values, and sending them. Each is one step in Redis."""

from __future__ import annotations

import json
import logging
import re
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial, update_wrapper
from itertools import islice
from typing import Any, Generic, ParamSpec, TypeVar, cast

from limpyd.model import RedisModel
from redis import Redis
from redis.exceptions import NoScriptError, RedisError, ResponseError

from limpyd_jobs.exceptions import DatabaseMoved, NotRecorded
from limpyd_jobs.indexes import special_indexes
from limpyd_jobs.redis.cluster import tags
from limpyd_jobs.redis.connections import PinnedConnection, SharedConnection
from limpyd_jobs.redis.replication import CopyingSender
from limpyd_jobs.redis.scripting import Script
from limpyd_jobs.texts import MESSAGE, one_line

audit_log = logging.getLogger("limpyd-jobs.audit")

# Made once: `json.loads` and `json.dumps` take twice as long.
_decoder = json.JSONDecoder()
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

# What a script says if the jobs are moved: see registry.lua. Redis 7 names the script behind it.
_MOVED = re.compile(r"LIMPYD-JOBS-MOVED (.*?)(?: script: [0-9a-f]{40}.*)?\Z", re.DOTALL)

# Goes on with what is left to do of a flow: see ``flows/step_flow.lua``.
_step_flow = Script("flows/step_flow")

Sender = Redis | PinnedConnection | SharedConnection | CopyingSender

P = ParamSpec("P")
Reply = TypeVar("Reply")
Other = TypeVar("Other")
T = TypeVar("T")


@dataclass(slots=True)  # not frozen, because that takes three times as long to make
class Call(Generic[Reply]):
    """A script, its request, and how to read its reply. It does nothing by itself: see `send`.

    The request has the names of the header, `keys` and `fields` are as listed there. Of what each job needs, it is the
    list of the words instead: the values in the order of these names, then the fields. `models` are those whose special
    indexes may have to be maintained. `read` takes the reply, and returns its meaning, or raises the exception of a
    refusal. `before` is called first. `subject` is the job whose end the script records: if Redis fails, `NotRecorded`
    is raised.
    """

    sender: Sender
    script: Script
    request: Mapping[str, Any] | list[Any]
    read: Callable[[dict[str, Any]], Reply]
    models: Sequence[type[RedisModel]] = ()
    keys: Sequence[str] = ()
    before: Callable[[], object] | None = None
    subject: str = ""
    fields: Mapping[str, Any] | None = None

    def words(self) -> list[Any]:
        """Return the request as the script takes it: the values in the order of its names, ``1`` or nothing for yes or
        no, then the fields."""
        if isinstance(self.request, list):
            return self.request
        positions = self.script.positions
        words: list[Any] = [""] * len(positions)
        for name, value in self.request.items():
            words[positions[name]] = "1" if value is True else "" if value is False else value
        if self.fields:
            for pair in self.fields.items():
                words += pair
            return words
        while words and words[-1] == "":
            words.pop()
        return words

    def accept(self, text: str) -> Reply:
        """Maintain the indexes that a reply asks for, and return its meaning."""
        reply, _ = _decoder.raw_decode(text)
        if "reindex" in reply:
            for name, pk, *change in reply.pop("reindex"):
                reindexed(next(model for model in self.models if model._name == name), pk, [change])
        if "not_audited" in reply:
            values = json.loads(self.words()[self.script.positions["audit"]])
            log_not_audited(zip(values[::2], values[1::2], strict=True), reply["not_audited"])
        if "flows" in reply:
            go_on_with(self.sender, reply.pop("flows"))
        return self.read(reply)

    def but(self, **names: Any) -> Call[Reply]:
        """Return the same call with some other values, such as the pk that was reserved by this one."""
        words, positions = [*self.words()], self.script.positions
        words += [""] * (len(positions) - len(words))  # the last ones may have been left out
        for name, value in names.items():
            words[positions[name]] = value
        return replace(self, request=words, fields=None)

    def reading(self, read: Callable[[dict[str, Any]], Other]) -> Call[Other]:
        """Return the same call, but with another meaning of the reply."""
        call: Any = replace(self)
        call.read = read
        return cast("Call[Other]", call)

    def failed(self, error: RedisError) -> RedisError | NotRecorded:
        """Return what to raise if Redis failed."""
        if self.subject:
            return NotRecorded(f"How {self.subject} ended is not recorded: {error}")
        moved = _MOVED.search(str(error))
        return DatabaseMoved(one_line(moved[1], MESSAGE)) if moved else error


class Verb(Generic[P, Reply]):
    """A function that makes a `Call` and sends it at once; ``verb.call(…)`` returns the call instead."""

    def __init__(self, call: Callable[P, Call[Reply]]) -> None:
        self.call = call
        update_wrapper(self, call)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Reply:
        return send(self.call(*args, **kwargs))


def send(call: Call[Reply]) -> Reply:
    """Send a call, in one round trip; return the meaning of the reply, or raise the exception of a refusal."""
    if call.before:
        call.before()
    request = call.request
    try:
        text = run(call.script, call.sender, call.keys, request if type(request) is list else call.words())
    except RedisError as error:
        failure = call.failed(error)
        if failure is error:
            raise
        raise failure from error
    return call.accept(text)


def run(script: Script, sender: Sender, keys: Sequence[str] = (), words: Sequence[Any] = ()) -> Any:
    """Run a script, in one round trip, and return its reply: by its SHA, or completely if the server does not know
    it."""
    if tags.used:
        script, keys = script.at(sender, keys)
    execute: Any = sender.execute_command
    try:
        return execute("EVALSHA", script.sha, len(keys), *keys, *words)
    except NoScriptError:
        return execute("EVAL", script.source, len(keys), *keys, *words)


@dataclass(slots=True)
class Commands:
    """Some commands, sent in one round trip. The reply has the reply to each, or the exception."""

    connection: Redis
    commands: Sequence[Sequence[Any]]

    def __call__(self) -> list[Any]:
        pipeline: Any = self.connection.pipeline(transaction=False)
        for command in self.commands:
            pipeline.execute_command(*command)
        return list(pipeline.execute(raise_on_error=False))


def go_on_with(sender: Sender, flows: Iterable[str]) -> None:
    """Do what is left to do of some flows, in steps. If Redis fails, a worker will do so."""
    with suppress(RedisError):
        left = dict.fromkeys(flows)
        while left:
            flow = next(iter(left))
            reply: dict[str, Any] = {"more": False}
            with passing_over_wrong_types():
                reply = json.loads(run(_step_flow, sender, (), [flow]))
            left |= dict.fromkeys(reply.get("flows", ()))
            if not reply["more"]:
                del left[flow]


# What a verb of several steps yields, to be given the reply, or the exception. A function sends by itself, as the own
# way of an application does.
Request = Call[Any] | Commands | Callable[[], Any]
Steps = Generator[Request, Any, T]

# A verb whose only request is a call, or of several steps.
Requests = Call[T] | Steps[T]


def stepped(requests: Requests[T]) -> Steps[T]:
    """Return the steps of a verb, also of one with a single request."""
    if isinstance(requests, Call):
        result: T = yield requests
        return result
    return (yield from requests)


def commanded(connection: Redis, *command: Any) -> Steps[Any]:
    """Send a command; return its reply, or raise what Redis refuses."""
    (reply,) = yield Commands(connection, [command])
    if isinstance(reply, Exception):
        raise reply
    return reply


def finish(steps: Requests[T]) -> T:
    """Send the requests of a verb, which is given each reply before its next request; return its result. For asyncio,
    see `limpyd_jobs.redis.awaiting.finished`."""
    if isinstance(steps, Call):
        return send(steps)
    try:
        request = next(steps)
        while True:
            try:
                reply = send(request) if isinstance(request, Call) else request()
            except BaseException as error:
                request = steps.throw(error)
            else:
                request = steps.send(reply)
    except StopIteration as end:
        result: T = end.value
        return result


class Stream(Generic[T]):
    """What some steps put in a queue, one after the other, while they go on."""

    def __init__(self, steps: Steps[None], found: deque[T]) -> None:
        self._steps, self._found = steps, found
        self._proceed: Callable[[], Request] | None = partial(next, steps)

    def next(self) -> Steps[T | None]:
        """Return the next one; None at the end."""
        while not self._found and self._proceed:
            try:
                request = self._proceed()
            except StopIteration:
                self._proceed = None
                break
            try:
                reply = yield request
            except GeneratorExit:
                raise
            except BaseException as error:
                self._proceed = partial(self._steps.throw, error)
            else:
                self._proceed = partial(self._steps.send, reply)
        return self._found.popleft() if self._found else None


def streamed(stream: Stream[T]) -> Iterator[T]:
    """Yield what a stream brings."""
    while (each := finish(stream.next())) is not None:
        yield each


class Procedure(Generic[P, T]):
    """A function that makes steps and sends their requests at once; ``procedure.steps(…)`` returns them."""

    def __init__(self, steps: Callable[P, Requests[T]]) -> None:
        self.steps = steps
        update_wrapper(self, steps)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return finish(self.steps(*args, **kwargs))


def send_after(connection: PinnedConnection, command: Sequence[Any], call: Call[Reply]) -> tuple[Any, Reply]:
    """Send a command, and a call to run after it, in one round trip; return the reply to the command, which may be an
    error, and the meaning of the reply of the script."""
    script, keys, words = call.script, call.keys, call.words()
    if tags.used:
        script, keys = script.at(connection, keys)
    rest = [len(keys), *keys, *words]
    first, text = connection.execute_commands(command, ["EVALSHA", script.sha, *rest])
    if isinstance(text, NoScriptError):
        text = connection.execute_command("EVAL", script.source, *rest)
    if isinstance(text, RedisError):
        raise text
    return first, call.accept(text)


def send_all(connection: Redis, calls: Iterable[Call[Reply]]) -> list[Reply | Exception]:
    """Send several calls, in one round trip; return the meaning of each reply, or the exception."""
    calls, known = list(calls), set()
    pipe: Any = connection.pipeline(transaction=False)
    for call in calls:
        if call.before:
            call.before()
        script, keys = call.script, call.keys
        if tags.used:
            script, keys = script.at(connection, keys)
        first = ("EVALSHA", script.sha) if script in known else ("EVAL", script.source)
        pipe.execute_command(*first, len(keys), *keys, *call.words())
        known.add(script)
    replies: list[Reply | Exception] = []
    for call, text in zip(calls, pipe.execute(raise_on_error=False), strict=True):
        try:
            replies.append(text if isinstance(text, Exception) else call.accept(text))
        except Exception as error:
            replies.append(error)
    return replies


@contextmanager
def passing_over_wrong_types() -> Iterator[None]:
    """Go on after the block if Redis says that a key is of a wrong type: another program wrote it."""
    try:
        yield
    except ResponseError as error:
        if not is_of_wrong_type(error):
            raise


def is_of_wrong_type(error: BaseException | None) -> bool:
    """Whether Redis refused something because a key is of a wrong type."""
    return isinstance(error, ResponseError) and "WRONGTYPE" in str(error)


def reindexed(model: type[RedisModel], pk: str, changes: Iterable[Sequence[Any]]) -> None:
    """Maintain the indexes that a script cannot, after it changed a field from one value, if any, to another."""
    for name, old, new in changes:
        for index in special_indexes(model.get_field(name)):
            if isinstance(old, str):
                index.remove(pk, old)
            if isinstance(new, str):
                index.add(pk, new, check_uniqueness=False)
            index._reset_rollback_cache(pk)


def log_not_audited(values: Iterable[tuple[str, Any]], why: object) -> None:
    """Tell of something that was done, and could not be written to the audit."""
    text = " ".join(f"{name}={value}" for name, value in values)
    audit_log.warning("Not written to the audit: %s: %s", text, one_line(why, MESSAGE))


def given(**names: Any) -> dict[str, Any]:
    """Return the names of a request without empty values: to scripts, they mean the same as missing ones."""
    return {name: value for name, value in names.items() if value}


def listed(values: Iterable[Any]) -> str:
    """Return a list as scripts take it."""
    return _encoder.encode(list(values))


def outcome_of(reply: Mapping[str, Any]) -> Any:
    """Read a reply that has nothing but an outcome."""
    return reply["outcome"]


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of that size; the last one may be shorter."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk
