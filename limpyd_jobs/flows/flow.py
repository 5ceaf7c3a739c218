"""What people see of a flow: making, following, canceling and requeueing it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from secrets import token_hex
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

from limpyd_jobs import transitions
from limpyd_jobs.classes.awaitable import awaited, by_steps, finished
from limpyd_jobs.classes.binding import check_database
from limpyd_jobs.exceptions import JobGone, LimpydJobsException, ResultTimeout
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.models.calls.building import (
    NodeRow,
    Plan,
    Planned,
    checked_name,
    checked_policy,
    checked_wait,
    made,
    row_of,
    usual_name,
)
from limpyd_jobs.models.calls.prepared import Prepared
from limpyd_jobs.models.following.changes import checked_timeout
from limpyd_jobs.models.following.nodes import FlowNode, check_succeeded, nodes_of, results_of
from limpyd_jobs.records import flows
from limpyd_jobs.records.flows import MAX_NODES, checked, numbers_in, readable
from limpyd_jobs.records.lazy_fields import attached
from limpyd_jobs.redis.calls import Commands, Steps, go_on_with
from limpyd_jobs.redis.cluster.tags import at
from limpyd_jobs.search.classes import connection_to
from limpyd_jobs.texts import one_line

OnError = Literal["fail", "run", "cancel"]

# How long `Flow.result` waits between two looks: at first, and at most; seconds.
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5

# The reason that is kept with the jobs of a flow that was canceled.
CANCELED = "its flow was canceled"


class NewNode:
    """A job of a flow that is being made, as `Flow.add` returns it.

    Attributes
    ----------
    number: int
        The first node of a flow is number 1.
    name: str
    job: Job or None
        The job, once the flow is made.
    """

    def __init__(
        self, flow: Flow, number: int, name: str, row: NodeRow, after: Sequence[int], policy: str, wait_at_most: str
    ) -> None:
        self.flow, self.number, self.name, self.row = flow, number, name, row
        self.after, self.policy, self.wait_at_most = after, policy, wait_at_most
        self.job: Any = None

    def __repr__(self) -> str:
        return f"<node {self.name} of {self.flow!r}>"


class FlowState(NamedTuple):
    """How far a flow is.

    Attributes
    ----------
    state: str
        ``building``, ``held``, ``running`` or ``ended``; empty if there is no such flow any more.
    open: int
        How many of its jobs have not ended.
    failed: int
        How many did not succeed.
    size: int
        How many jobs it has.
    canceled: str
        Why it was canceled, if it was.
    """

    state: str
    open: int
    failed: int
    size: int
    canceled: str


class Flow(Planned):
    """Jobs of which some begin once others have ended. Each is a job like any other one.

    >>> with Flow("report:7") as flow:
    ...     pages = [flow.add(Page.prepare(number=number)) for number in range(9)]
    ...     flow.add(Report.prepare(), after=pages, on_error="run")

    All is added in one step at the end of the block, or nothing. A flow of more than a hundred jobs is made in several
    steps, of which the last one lets its first jobs begin. If the block raises an exception, nothing is added.

    Parameters
    ----------
    name: str
        While a flow of that name runs, no other one can be made. None for a flow without a name.
    on_error: str
        What a job does if one that it comes after fails, is canceled or deleted, unless its own `on_error` says
        something else: ``"fail"`` to be canceled, too, with the reason; ``"run"`` to run all the same; ``"cancel"`` to
        cancel all that is left of the flow.
    wait_at_most: float or timedelta
        For how long a job waits for others, in seconds unless a timedelta, from when the flow is made. Then it runs
        with what there is. None for no limit.
    one_at_a_time: str
        Of the flows that are given the same text, such as ``"customer:7"``, one runs at a time, in the sequence in
        which they were made. The others are *held*: the end of one lets the next begin. Then nothing can have a
        `wait_at_most`, as that counts from when the flow is made.
    database: JobsDatabase
        Where its jobs are; by default the database of their classes.

    Attributes
    ----------
    id: str
        What tells it from all other flows.
    name: str or None
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        on_error: OnError = "fail",
        wait_at_most: float | timedelta | None = None,
        one_at_a_time: str | None = None,
        database: Any = None,
    ) -> None:
        self.id = token_hex(8)
        self.name = None if name is None else checked_name("The name of a flow", name)
        self._policy, self._wait_at_most = checked_policy(on_error), checked_wait(wait_at_most)
        self._turn = "" if one_at_a_time is None else checked_name("one_at_a_time", one_at_a_time)
        self._check_wait(self._wait_at_most)
        self._nodes: list[NewNode] = []
        self._names: set[str] = set()
        self._numbers: dict[str, int] = {}  # the last ones in names that were not given, by the name of the class
        self._is_made = False
        self._given_database, self._database = database, None

    # -- Making it

    def add(
        self,
        call: Prepared,
        *,
        after: NewNode | Iterable[NewNode] = (),
        on_error: OnError | None = None,
        name: str | None = None,
        wait_at_most: float | timedelta | None = None,
    ) -> NewNode:
        """Add a job to the flow.

        Parameters
        ----------
        call: PreparedJob or PreparedCall
            What ``prepare`` of a job class, or of a function with `@job`, returned. Its delay counts from when the flow
            is made.
        after: NewNode or iterable of NewNode
            The nodes of this flow that must have ended before.
        on_error: str
        wait_at_most: float or timedelta
            As of the flow; None for those of the flow.
        name: str
            Its name in the flow, for `Job.results`; by default the name of the class, and a number if that is taken.

        Raises
        ------
        TypeError, ValueError
            If an argument is not one of the above; if the name is taken; or if the flow has too many jobs.
        ConfigurationException
            If such a job cannot be added together with others: see :doc:`/howto/flows`; or is on another database.
        LimpydJobsException
            If the flow is made already.
        """
        if self._is_made:
            raise LimpydJobsException(f"{self!r} is made already: nothing can be added to it")
        if len(self._nodes) == MAX_NODES:
            raise ValueError(f"A flow has {MAX_NODES:,} jobs at most")
        row = row_of(call, self._given_database)
        if self._nodes:
            check_database(self._nodes[0].row.job_class, row.job_class)
        numbers = self._numbers_of(after)
        policy = self._policy if on_error is None else checked_policy(on_error)
        wait = self._wait_at_most if wait_at_most is None else checked_wait(wait_at_most)
        self._check_wait(wait)
        node = NewNode(self, len(self._nodes) + 1, self._new_name(name, row), row, numbers, policy, wait)
        self._nodes.append(node)
        self._names.add(node.name)
        return node

    def _check_wait(self, wait: str) -> None:
        if wait and self._turn:
            raise ValueError("wait_at_most counts from when a flow is made: it cannot be used with one_at_a_time")

    def _numbers_of(self, after: NewNode | Iterable[NewNode]) -> list[int]:
        are_several = isinstance(after, Iterable) and not isinstance(after, (str, Mapping, type))
        nodes: list[Any] = [*after] if are_several else [after]  # type: ignore[misc]
        for node in nodes:
            if not isinstance(node, NewNode):
                raise TypeError(f"after takes nodes, which flow.add(…) of the same flow returned, not {node!r:.200}")
            if node.flow is not self:
                raise ValueError(f"{node!r} is a node of another flow")
        return sorted({node.number for node in nodes})

    def _new_name(self, name: str | None, row: NodeRow) -> str:
        if name is None:
            return usual_name(row, self._names, self._numbers)
        if checked_name("The name of a node", name) in self._names:
            raise ValueError(f"The flow has a node of the name {name!r} already")
        return name

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.make()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await finished(Flow.make.__wrapped__(self))  # type: ignore[attr-defined]

    def plan(self) -> Plan:
        """Return what is to be made, for `Job.spawn`."""
        return Plan(self.id, self.name or "", self._nodes, turn=self._turn)

    @by_steps
    def make(self) -> Steps[None]:
        """Add all jobs of the flow; what the end of the block does.

        Raises
        ------
        LimpydJobsException
            If a flow of the name runs, a job of the identifier of one of the new ones is queued, or the flow has no
            jobs: then nothing is added.
        """
        if self._is_made:
            raise LimpydJobsException(f"{self!r} is made already")
        if not self._nodes:
            raise LimpydJobsException("The flow has no jobs: add some in the block")
        self._is_made = True
        self._database = self._nodes[0].row.job_class.database
        try:
            pks = yield from made(Flow.plan(self))
        except GeneratorExit:
            raise
        except BaseException:
            self._is_made = False
            raise
        for node, pk in zip(self._nodes, pks, strict=True):
            node.job = attached(node.row.job_class, pk)

    # -- One that is made

    @classmethod
    def find(cls, name: str, database: Any = None) -> Self:
        """Return a flow by its name, or its id.

        Parameters
        ----------
        name: str
        database: JobsDatabase
            By default the one of ``BaseJobsModel``.

        Raises
        ------
        LimpydJobsException
            If there is none, or no longer.
        """
        database = database or BaseJobsModel.database
        connection = connection_to(database)
        with readable(f"The flow {one_line(name)!r}"):
            flow = connection.get(at(connection, f"{flows.NAMES}{name}")) or name
            found_name, state = connection.hmget(flows.key_of(connection, flow), ["name", "state"])
        if state is None:
            raise LimpydJobsException(f"There is no flow {one_line(name)!r}, or no longer")
        found = cls()
        found.id, found.name, found._is_made, found._database = flow, found_name, True, database
        return found

    @property
    def _client(self) -> Any:
        if self._database is None:
            raise LimpydJobsException(f"{self!r} is not made yet")
        return connection_to(self._database)

    @by_steps
    def state(self) -> Steps[FlowState]:
        """Return how far the flow is."""
        key = partial(flows.key_of, self._client, self.id)
        commands = [("HMGET", key(), "state", "size", "canceled"), ("SCARD", key(":open")), ("HLEN", key(":failed"))]
        with readable(self):
            (state, size, canceled), number, failed = checked((yield Commands(self._client, commands)))
        return FlowState(state or "", number, failed, flows.size_in(size), canceled or "")

    astate = awaited(state)

    @by_steps
    def nodes(self) -> Steps[list[FlowNode]]:
        """Return the jobs of the flow, as they are now."""
        with readable(self):
            return (yield from nodes_of(self._client, self.id))

    anodes = awaited(nodes)

    @by_steps
    def cancel(self) -> Steps[bool]:
        """Cancel all jobs of the flow that have not ended. Jobs that run are canceled as by `Job.cancel`.

        Returns
        -------
        bool
            False if all have ended before.
        """
        with readable(self):
            outcome = yield transitions.cancel_flow(self._client, self.id, CANCELED)
        self._check_there(outcome)
        return bool(outcome == "done")

    acancel = awaited(cancel)

    @by_steps
    def requeue(self) -> Steps[None]:
        """Put the jobs of the flow that failed or were canceled back. Those after others wait for them again."""
        with readable(self):
            self._check_there((yield transitions.requeue_flow(self._client, self.id)))
        yield partial(go_on_with, self._client, [self.id])

    arequeue = awaited(requeue)

    def _check_there(self, outcome: str) -> None:
        if outcome == "gone":
            raise LimpydJobsException(f"There is no {self!r} any more")

    @by_steps
    def wait(self, timeout: float | None = None) -> Steps[bool]:
        """Wait until all jobs of the flow have ended; return whether they have.

        Parameters
        ----------
        timeout: float
            For how many seconds to wait; None for no limit, 0 not to wait.
        """
        timeout = checked_timeout(timeout)
        deadline = None if timeout is None else monotonic() + timeout
        key, pause = flows.key_of(self._client, self.id), FIRST_PAUSE
        while True:
            with readable(self):
                (state,) = checked((yield Commands(self._client, [("HGET", key, "state")])))
            if state not in ("building", "held", "running"):
                return True
            left = pause if deadline is None else deadline - monotonic()
            if left <= 0:
                return False
            yield partial(sleep, min(pause, left))
            pause = min(2 * pause, LONGEST_PAUSE)

    await_end = awaited(wait)

    @by_steps
    def result(self, timeout: float | None = None) -> Steps[Any]:
        """Wait until all jobs of the flow have ended; return what its last one returned, as JSON keeps it. If several
        come before no other one, it is a dict of what each returned, by their names.

        Results are kept for a day after the end of the flow.

        Parameters
        ----------
        timeout: float
            For how many seconds to wait; None for no limit, 0 not to wait.

        Raises
        ------
        limpyd_jobs.exceptions.JobFailed, limpyd_jobs.exceptions.JobCanceled
            If one of the last jobs failed, or was canceled.
        limpyd_jobs.exceptions.JobGone
            If one of them was deleted before it had succeeded.
        ResultTimeout
            If it has not ended in time.
        LimpydJobsException
            If the flow is not kept any more.
        """
        if not (yield from Flow.wait.__wrapped__(self, timeout)):  # type: ignore[attr-defined]
            raise ResultTimeout(f"{self!r} has not ended after {timeout} seconds")
        with readable(self):
            (final,) = checked((yield Commands(self._client, [("HGET", flows.key_of(self._client, self.id), "final")])))
            self._check_there("gone" if final is None else "done")
            numbers = numbers_in(final)
            nodes = yield from nodes_of(self._client, self.id, numbers)
            for node in nodes:
                yield partial(check_succeeded, self._database, node)
            results = yield from results_of(self._client, self.id, numbers)
        for node in nodes:
            if not node.status and node.name not in results:
                raise JobGone(node.ident)
        return next(iter(results.values()), None) if len(numbers) == 1 else results

    aresult = awaited(result)

    def __repr__(self) -> str:
        return f"<flow {one_line(self.name) if self.name else self.id}>"


def chain(*calls: Prepared, name: str | None = None, **options: Any) -> Flow:
    """Make a flow of jobs that run one after the other: each may read with `Job.results` what the one before returned.

    >>> flow = chain(Fetch.prepare(url=url), Parse.prepare(), Index.prepare())

    Parameters
    ----------
    *calls: PreparedJob or PreparedCall
    name: str
    **options
        As `Flow` takes them.
    """
    flow = Flow(name, **options)
    with flow:
        before: tuple[NewNode, ...] = ()
        for call in calls:
            before = (flow.add(call, after=before),)
    return flow
