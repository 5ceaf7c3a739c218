"""Resources: what the code of jobs needs beside its arguments, such as a pool of connections. A process opens one when
a job first needs it, after it was forked, and closes it with its worker; or each job has one of its own."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from contextvars import Context
from functools import wraps
from threading import Lock
from typing import Any, Generic, TypeVar, overload
from weakref import WeakKeyDictionary

from limpyd_jobs.classes.awaitable import in_thread
from limpyd_jobs.classes.roots import roots
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.functions import is_async
from limpyd_jobs.models.functions.giving import GivenParameter, ResourceBase, at_end, resource_in
from limpyd_jobs.models.functions.parameters import Annotations
from limpyd_jobs.models.functions.refusing import path_of_function
from limpyd_jobs.redis.forks import this_process
from limpyd_jobs.texts import MESSAGE, one_line

Value = TypeVar("Value")

log = logging.getLogger("limpyd-jobs.resources")


class _Overridden(Generic[Value], ResourceBase):
    """A resource, and what stands in its place in a test."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.is_async = inspect.isasyncgenfunction(function)
        if not (self.is_async or inspect.isgeneratorfunction(function)):
            raise ConfigurationException(
                f"{path_of_function(function)} is no resource: write a function that yields it once, and closes it then"
            )
        if inspect.signature(function).parameters:
            raise ConfigurationException(f"{path_of_function(function)} is a resource, and so takes no parameters")
        self._name = path_of_function(function)
        self._make: Callable[[], Any] = asynccontextmanager(function) if self.is_async else contextmanager(function)
        self._instead: list[Value] = []

    @contextmanager
    def override(self, value: Value) -> Iterator[None]:
        """Let jobs be given another value, in a test: ``with pool.override(FakePool()):``."""
        self._instead.append(value)
        try:
            yield
        finally:
            self._instead.pop()

    def __repr__(self) -> str:
        return f"<resource {self._name}>"


class JobResource(_Overridden[Value]):
    """A resource that each job has for itself, made by `job_resource`."""

    def enter(self, stack: ExitStack) -> Value:
        """Open it for a job, until the stack is left."""
        opened: Value = self._instead[-1] if self._instead else stack.enter_context(self._make())
        return opened

    async def aenter(self, stack: AsyncExitStack) -> Value:
        """Do so for a coroutine."""
        if self._instead:
            return self._instead[-1]
        opened: AbstractContextManager[Value] | AbstractAsyncContextManager[Value] = self._make()
        if isinstance(opened, AbstractAsyncContextManager):
            return await stack.enter_async_context(opened)
        return stack.enter_context(opened)


class WorkerResource(_Overridden[Value]):
    """A resource that all jobs of a process share, made by `worker_resource`."""

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__(function)
        self._lock = Lock()
        self._opened: tuple[int, Any] = (0, None)  # the process, and the value
        self._on_loops: WeakKeyDictionary[Any, asyncio.Task[Any]] = WeakKeyDictionary()

    def get(self) -> Value:
        """Return it, opened if need be. It stays open until the worker of this process ends."""
        if self._instead:
            return self._instead[-1]
        pid, opened = self._opened
        if pid == this_process.pid:
            found: Value = opened
            return found
        if self.is_async:
            raise ConfigurationException(f"{self!r} is for coroutines: await {self._name.rpartition('.')[2]}.aget()")
        with self._lock:
            if self._opened[0] != this_process.pid:
                context = self._make()
                self._opened = this_process.pid, context.__enter__()
                at_end.call(lambda: self._close(context))
            return self._opened[1]  # type: ignore[no-any-return]

    async def aget(self) -> Value:
        """Return it, under asyncio. An asynchronous one is that of the running event loop."""
        if self._instead:
            return self._instead[-1]
        if not self.is_async:
            return self.get() if self._opened[0] == this_process.pid else await in_thread(self.get)
        loop = asyncio.get_running_loop()
        if loop not in self._on_loops:
            ready = loop.create_future()
            self._on_loops[loop] = loop.create_task(self._hold(ready), context=Context())
            self._on_loops[loop].ready = ready  # type: ignore[attr-defined]
        return await asyncio.shield(self._on_loops[loop].ready)  # type: ignore[attr-defined,no-any-return]

    async def _hold(self, ready: asyncio.Future[Value]) -> None:
        """Open it, and close it once the event loop ends its tasks: both in one task, as many libraries need."""
        try:
            async with self._make() as opened:
                ready.set_result(opened)
                with suppress(asyncio.CancelledError):
                    await asyncio.get_running_loop().create_future()
        except Exception as error:
            self._on_loops.pop(asyncio.get_running_loop(), None)
            if ready.done():
                self._note(error)
            else:
                ready.set_exception(error)

    def _close(self, context: AbstractContextManager[Value]) -> None:
        self._opened = (0, None)
        try:
            context.__exit__(None, None, None)
        except Exception as error:
            self._note(error)

    def _note(self, error: Exception) -> None:
        log.error("%s could not be closed: %s", self._name, one_line(error, MESSAGE))

    def enter(self, stack: ExitStack) -> Value:
        """Return it for a job."""
        return self.get()

    async def aenter(self, stack: AsyncExitStack) -> Value:
        """Return it for a coroutine."""
        return await self.aget()


@overload
def worker_resource(function: Callable[[], AsyncIterator[Value]], /) -> WorkerResource[Value]: ...


@overload
def worker_resource(function: Callable[[], Iterator[Value]], /) -> WorkerResource[Value]: ...


def worker_resource(function: Any, /) -> Any:
    """Make a generator function a resource that all jobs of a process share, such as a pool of connections.

    >>> @worker_resource
    ... def pool() -> Iterator[Pool]:
    ...     with Pool("postgresql:///shop") as opened:
    ...         yield opened
    >>> @job(queue="mails")
    ... def send_mail(to: str, pool: Annotated[Pool, Resource(pool)] = GIVEN) -> None: ...

    It is opened when a job first needs it, so in each process of a worker for itself, and closed when the worker ends.
    An async generator function is one of coroutines: it is opened and closed on the event loop of the worker.

    Raises
    ------
    ConfigurationException
        If it is no generator function, or has parameters.
    """
    return WorkerResource(function)


@overload
def job_resource(function: Callable[[], AsyncIterator[Value]], /) -> JobResource[Value]: ...


@overload
def job_resource(function: Callable[[], Iterator[Value]], /) -> JobResource[Value]: ...


def job_resource(function: Any, /) -> Any:
    """Make a generator function a resource that each job opens for itself, such as a transaction.

    It is opened before the code of the job, and closed after it: what the code raises is raised where it yields. For
    more see `worker_resource`.
    """
    return JobResource(function)


def with_resources(function: Callable[..., Any], given: Sequence[GivenParameter]) -> Callable[..., Any]:
    """Return a function that does the same, and gives it its resources by name."""
    resources: list[tuple[str, Any]] = [(each.name, each.resource) for each in given if each.resource is not None]
    if not resources:
        return function
    if is_async(function):

        @wraps(function)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            raised: BaseException
            async with AsyncExitStack() as stack:
                try:
                    opened = {name: await resource.aenter(stack) for name, resource in resources}
                    return await function(*args, **{**kwargs, **opened})
                except BaseException as error:
                    raised = error
                    raise
            raise _swallowed(function, raised)

        return call_async
    for _, resource in resources:
        if resource.is_async:
            raise ConfigurationException(f"{path_of_function(function)} needs {resource!r}, so it has to be async")

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        raised: BaseException
        with ExitStack() as stack:
            try:
                opened = {name: resource.enter(stack) for name, resource in resources}
                return function(*args, **{**kwargs, **opened})
            except BaseException as error:
                raised = error
                raise
        raise _swallowed(function, raised)

    return call


def _swallowed(function: Any, raised: BaseException) -> BaseException:
    """Return what the code of a job raised, and a resource of it swallowed: it is how the job ends. Else a job that
    waits, or is canceled, would be a success."""
    what = "%s: one of its resources swallowed %s, with which the job ends all the same: let it raise that again"
    log.warning(what, path_of_function(function), one_line(repr(raised), MESSAGE))
    return raised


def prepare_run(job_class: Any, run: Any) -> None:
    """Let the method `run` of a class of jobs be given its resources by name; leave any other one alone."""
    if not inspect.isfunction(run):
        return
    annotations = Annotations(run)
    given = []
    for name in [*inspect.signature(run).parameters][2:]:
        if name in run.__annotations__:
            try:
                resource = resource_in(annotations[name])
            except ConfigurationException:
                if "Resource" in str(run.__annotations__[name]):
                    raise
                continue  # a name for type checkers only, for example
            if resource is not None:
                given.append(GivenParameter(name, None, resource))
    if given:
        job_class.run = with_resources(run, given)


roots.prepare_run = prepare_run
