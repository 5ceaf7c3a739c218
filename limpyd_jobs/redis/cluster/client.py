"""Clients of a slot of a cluster: they send again what was refused because the slot moved."""

from __future__ import annotations

from collections.abc import Callable
from time import sleep
from typing import Any

from limpyd.contrib.database import _Pipeline
from redis.client import Pipeline
from redis.exceptions import ResponseError, WatchError

from limpyd_jobs.redis.cluster.refusals import Patience, refusal_of, resent

_BY_PATTERN = ("BY option of SORT denied", "GET option of SORT denied")


def persevering(pool: Any, send: Callable[[], Any]) -> Any:
    """Call what sends one command, or one transaction, until it is not refused."""
    patience = None
    while True:
        try:
            return send()
        except ResponseError as error:
            if not refusal_of(error):
                if any(told in str(error) for told in _BY_PATTERN):
                    raise _explained(error) from error
                raise
            patience = patience or Patience(pool)
            sleep(patience.pause(error))


def _explained(error: ResponseError) -> ResponseError:
    return ResponseError(
        f"{error}: before Redis 8, a cluster does not sort by a field, nor read fields while it sorts: sort in Python, "
        "by sorted(), or read with Model.read_many()"
    )


class ClusterCommands:
    """What a client of redis-py does otherwise for a slot of a cluster."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send a command; return its reply."""
        pool: Any = self.connection_pool  # type: ignore[attr-defined]
        return persevering(pool, lambda: super(ClusterCommands, self).execute_command(*args, **options))  # type: ignore[misc]

    def pipeline(self, transaction: bool = True, shard_hint: Any = None) -> Any:
        """Return a pipeline of this client."""
        return ClusterPipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)  # type: ignore[attr-defined]


class _Resending:
    """What pipelines do otherwise."""

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        pipeline: Any = self
        if pipeline.transaction or pipeline.explicit_transaction:
            return self._execute_whole(raise_on_error)
        commands = list(pipeline.command_stack)
        replies = resent(
            pipeline.connection_pool,
            [words for words, _ in commands],
            super().execute(raise_on_error=False),  # type: ignore[misc]
            self._sending(commands),
        )
        if raise_on_error:
            pipeline.raise_first_error(commands, replies)
        return replies

    def _sending(self, commands: list[Any]) -> Callable[[list[Any]], list[Any]]:
        options = {id(words): given for words, given in commands}

        def send(some: list[Any]) -> list[Any]:
            pipeline: Any = self
            pipeline.command_stack = [(words, options[id(words)]) for words in some]
            return list(super(_Resending, self).execute(raise_on_error=False))  # type: ignore[misc]

        return send

    def _execute_whole(self, raise_on_error: bool) -> list[Any]:
        pipeline: Any = self
        commands, explicit, watching = list(pipeline.command_stack), pipeline.explicit_transaction, pipeline.watching

        def send() -> Any:
            pipeline.command_stack, pipeline.explicit_transaction = list(commands), explicit
            try:
                return super(_Resending, self).execute(raise_on_error)  # type: ignore[misc]
            except ResponseError as error:
                if watching and refusal_of(error):
                    pipeline.connection_pool.follow(refusal_of(error))
                    raise WatchError("The slot of the watched keys moved") from error
                raise

        return list(persevering(pipeline.connection_pool, send))

    def annotate_exception(self, exception: Any, number: int, command: Any) -> None:
        exception.refusal = refusal_of(exception)  # before its text begins with that of the command
        super().annotate_exception(exception, number, command)  # type: ignore[misc]

    def immediate_execute_command(self, *args: Any, **options: Any) -> Any:
        pipeline: Any = self
        is_watching = pipeline.watching

        def send() -> Any:
            try:
                return super(_Resending, self).immediate_execute_command(*args, **options)  # type: ignore[misc]
            except ResponseError as error:
                if refusal_of(error):
                    pipeline.reset()
                    if is_watching:
                        pipeline.connection_pool.follow(refusal_of(error))
                        raise WatchError("The slot of the watched keys moved") from error
                raise

        return persevering(pipeline.connection_pool, send)


class ClusterPipeline(_Resending, Pipeline):
    """A pipeline of redis-py for a slot of a cluster."""


class DatabasePipeline(_Resending, _Pipeline):  # type: ignore[misc]
    """The pipeline of limpyd, which commands of models go into, for a slot of a cluster."""
