"""Shards: which of several databases has a job, and adding jobs to them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar
from zlib import crc32

from limpyd.model import RedisModel
from redis.exceptions import RedisError, ResponseError

from limpyd_jobs.classes.binding import is_same_database
from limpyd_jobs.classes.job_classes import job_class_of
from limpyd_jobs.exceptions import ConfigurationException, LimpydJobsException
from limpyd_jobs.models.adding import STEP_SIZE
from limpyd_jobs.models.identifying import LEFT_OUT, identifier_of_new
from limpyd_jobs.redis.calls import is_of_wrong_type
from limpyd_jobs.redis.cluster.tags import at
from limpyd_jobs.redis.database import JobsDatabase, client_like, database_name
from limpyd_jobs.search.classes import connection_to, on
from limpyd_jobs.shards.filter import Seen, ShardsFilter
from limpyd_jobs.texts import MESSAGE, one_line
from limpyd_jobs.threads import in_own_thread

if TYPE_CHECKING:
    from limpyd_jobs.flows import Flow

T = TypeVar("T")

# Each shard keeps here which one it is, of how many.
KEY = "limpyd-jobs:shard"

MAX_SHARDS = 1_000

# How many seconds a shard that failed has to answer a first question, so that one that hangs is not waited for again.
ANSWER_TIMEOUT = 1.0

_OF_CLUSTER = re.compile(r"(rediss?\+cluster://[^/?\s]+/[^/?\s]+)(?:\?(\S*))?")


class Shards:
    """Several databases that have the jobs of one application together: each job is in one of them.

    The CRC-32 of its identifier, modulo their number, says in which one. So a job that is queued is not added again, as
    in one database. The number and the order stay for ever: with its first job, each database keeps which one it is,
    and then refuses to be another one.

    >>> shards = Shards.of_cluster("redis-1,redis-2", "shop", number=8)
    >>> shards.add_job(Photo, "photo:7")

    Parameters
    ----------
    databases: sequence of JobsDatabase
        2 to 1,000 of them.

    Attributes
    ----------
    databases: tuple of JobsDatabase

    Raises
    ------
    TypeError
        If one is not a `JobsDatabase`.
    ConfigurationException
        If there are too few or too many, or two are the same.
    """

    def __init__(self, databases: Iterable[JobsDatabase]) -> None:
        self.databases = tuple(databases)
        self._failed: set[int] = set()  # those whose Redis could not be used when all were asked
        self._are_known: set[int] = set()  # those that are known to be what they are given as
        for database in self.databases:
            if not isinstance(database, JobsDatabase):
                kind = type(database).__name__  # the value may be a URL with a password
                raise TypeError(f"A shard is a JobsDatabase, such as JobsDatabase(url=…), not a {kind}")
        if not 2 <= len(self.databases) <= MAX_SHARDS:
            raise ConfigurationException(_not_so_many(len(self.databases)))
        named: dict[str, list[JobsDatabase]] = {}
        for number, database in enumerate(self.databases):
            same = named.setdefault(self.name_of(number), [])
            if any(is_same_database(database, other) for other in same):
                raise ConfigurationException(f"Two shards are the same database: {self.name_of(number)}")
            same.append(database)

    @classmethod
    def of_cluster(cls, hosts: str, name: str, number: int, *, tls: bool = False, **settings: Any) -> Shards:
        """Return shards on a Redis Cluster: the databases ``name-0``, ``name-1``, and so on.

        Parameters
        ----------
        hosts: str
            Some servers of the cluster, with user and password if needed: ``user:password@redis-1,redis-2:6380``.
        name: str
            With which the tags of the databases begin.
        number: int
            How many shards. Start with two to four for each server that may come: they cannot become more, but they can
            move to more servers.
        tls: bool
        **settings
            Those of `JobsDatabase`, for all of them.
        """
        if isinstance(number, bool) or not isinstance(number, int):
            raise TypeError(f"The number of shards must be a whole number, not {number!r}")
        scheme = "rediss+cluster" if tls else "redis+cluster"
        if not 2 <= number <= MAX_SHARDS:
            raise ConfigurationException(_not_so_many(number))
        return cls(JobsDatabase(url=f"{scheme}://{hosts}/{name}-{each}", **settings) for each in range(number))

    @classmethod
    def of_text(cls, text: str) -> Shards:
        """Return the shards that a command line names: ``redis+cluster://redis-1,redis-2/shop?shards=8``, maybe with
        other options of such a URL, or the URLs of all databases, with spaces in between.

        Raises
        ------
        ConfigurationException
            If a URL is none, or see above.
        """
        found = _OF_CLUSTER.fullmatch(text.strip())
        if found:
            beginning, options = found[1], (found[2] or "").split("&")
            others = [each for each in options if not each.startswith("shards=")]
            number = _number_of(each.removeprefix("shards=") for each in options if each not in others)
            end = f"?{'&'.join(others)}" if others else ""
            return cls(JobsDatabase(url=f"{beginning}-{each}{end}") for each in range(number))
        urls = text.split()
        if any("://" not in url and "@" in url for url in urls):
            raise ConfigurationException("a space in a user or a password must be written as %20")
        if len(urls) == 1 and text.count("://") > 1:
            raise ConfigurationException("there must be spaces between the URLs, and nothing else")
        return cls(JobsDatabase(url=url) for url in urls)

    def __repr__(self) -> str:
        return f"<{len(self)} shards, from {self.name_of(0)} to {self.name_of(len(self) - 1)}>"

    def __len__(self) -> int:
        return len(self.databases)

    def name_of(self, number: int) -> str:
        """Return the name of a database, without passwords."""
        return database_name(self.databases[number].connection_settings)

    # -- Where jobs are

    def place_of(self, identifier: str) -> int:
        """Return the number of the shard that has the jobs of an identifier."""
        return crc32(f"{identifier}".encode("utf-8", "surrogateescape")) % len(self.databases)

    def on(self, model: type[T], number: int) -> type[T]:
        """Return a model, such as a job class, as it is in one of the shards.

        Raises
        ------
        ConfigurationException
            If there is no such shard, or the database is another one, or one of another number of shards; or see
            `BaseJobsModel.bound_to`.
        """
        self.check(number)
        found: type[T] = on(_model_of(model), self.databases[number])
        return found

    def check(self, number: int, *, is_to_be: bool = False) -> None:
        """Refuse a database that is another shard than it is given as; one that is none yet becomes that one if it
        `is_to_be`.

        Raises
        ------
        ConfigurationException
            If there is no such shard; if it is another one, or one of another number of shards.
        """
        if number not in range(len(self.databases)):
            raise ConfigurationException(f"There is no shard {number!r}: there are 0 to {len(self.databases) - 1}")
        if number in self._are_known:
            return
        expected, connection = f"{number} of {len(self.databases)}", connection_to(self.databases[number])
        key = at(connection, KEY)
        try:
            if is_to_be:
                connection.setnx(key, expected)
            found = connection.get(key)
        except ResponseError as error:
            if not is_of_wrong_type(error):
                raise
            raise ResponseError(f"the key {key} is not a text: another program wrote it, so delete it") from error
        if found is None:
            return
        if found != expected:
            raise ConfigurationException(
                f"{self.name_of(number)} is given as shard {expected}, but it is shard {one_line(found, 40)}: give all "
                "shards, in the order in which they were first used"
            )
        self._are_known.add(number)

    # -- Adding

    def add_job(self, job_class: Any, identifier: str = LEFT_OUT, *args: Any, **how: Any) -> Any:
        """Add a job to its shard, as `Job.add_job` does, and return it.

        Parameters
        ----------
        job_class: type of Job, or a function that is a job
        identifier, *args, **how
            Those of its ``add_job``.
        """
        identifier = identifier_of_new(_model_of(job_class), identifier, how)
        cls = self._to_add(job_class, self.place_of(identifier))
        return cls.add_job(identifier, *args, **how)

    async def aadd_job(self, job_class: Any, identifier: str = LEFT_OUT, *args: Any, **how: Any) -> Any:
        """Do as `add_job`, under asyncio."""
        identifier = identifier_of_new(_model_of(job_class), identifier, how)
        cls = await self._ato_add(job_class, self.place_of(identifier))
        return await cls.aadd_job(identifier, *args, **how)

    def _to_add(self, job_class: Any, number: int) -> Any:
        self.check(number, is_to_be=True)
        return self.on(job_class, number)

    async def _ato_add(self, job_class: Any, number: int) -> Any:
        if number not in self._are_known:
            await in_own_thread(self.check, number, is_to_be=True)
        return self._to_add(job_class, number)

    def add_jobs(self, job_class: Any, jobs: Iterable[str | Mapping[str, Any]], *args: Any, **how: Any) -> list[Any]:
        """Add many jobs, each to its shard, as `Job.add_jobs` does; return them in the order of the given ones.

        All shards are asked at once, in steps of up to 250 jobs for each. If one of them fails, what the others added
        stays.

        Parameters
        ----------
        job_class: type of Job, or a function that is a job
        jobs, *args, **how
            Those of its ``add_jobs``, but ``progress``.
        """

        def add(number: int, some: list[dict[str, Any]]) -> list[Any]:
            return list(self._to_add(job_class, number).add_jobs(some, *args, **how))

        added = list[Any]()
        with self._threads() as threads:
            for rows, places in self._divided(job_class, jobs, how):
                steps = [threads.submit(add, *each) for each in rows.items()]
                added += _sorted_as(places, rows, [step.result() for step in steps])
        return added

    async def aadd_jobs(
        self, job_class: Any, jobs: Iterable[str | Mapping[str, Any]], *args: Any, **how: Any
    ) -> list[Any]:
        """Do as `add_jobs`, under asyncio."""

        async def add(number: int, some: list[dict[str, Any]]) -> list[Any]:
            cls = await self._ato_add(job_class, number)
            return list(await cls.aadd_jobs(some, *args, **how))

        added = list[Any]()
        for rows, places in self._divided(job_class, jobs, how):
            added += _sorted_as(places, rows, await asyncio.gather(*(add(*each) for each in rows.items())))
        return added

    def _divided(
        self, job_class: Any, jobs: Iterable[str | Mapping[str, Any]], how: Mapping[str, Any]
    ) -> Iterator[tuple[dict[int, list[dict[str, Any]]], list[int]]]:
        """Yield the jobs in steps: those of each shard, and the shards of all in their order."""
        if isinstance(jobs, (str, bytes, Mapping)):
            raise TypeError(f"Give a list of jobs, as [{jobs!r}], not {jobs!r}")
        given = iter(jobs)
        while some := list(islice(given, STEP_SIZE * len(self.databases))):
            rows: dict[int, list[dict[str, Any]]] = {}
            places = list[int]()
            for row in (self._row(job_class, job, how) for job in some):
                places.append(self.place_of(row["identifier"]))
                rows.setdefault(places[-1], []).append(row)
            yield rows, places

    @staticmethod
    def _row(job_class: Any, job: str | Mapping[str, Any], common: Mapping[str, Any]) -> dict[str, Any]:
        row = dict(job) if isinstance(job, Mapping) else {"identifier": job}
        given = row.get("identifier", LEFT_OUT)
        return {**row, "identifier": identifier_of_new(_model_of(job_class), given, {**common, **row})}

    # -- Flows

    def flow(self, name: str, **options: Any) -> Flow:
        """Return a flow to be made, in the shard of its name. All its jobs are there, whatever their identifiers are.

        >>> with shards.flow("album:7") as flow:
        ...     flow.add(Album.prepare(), after=[flow.add(Photo.prepare(number=number)) for number in range(9)])

        Parameters
        ----------
        name: str
        **options
            Those of `limpyd_jobs.Flow`, but `database`.
        """
        from limpyd_jobs.flows import Flow  # not at the start of each process

        number = self.place_of(name)
        self.check(number, is_to_be=True)
        return Flow(name, database=self.databases[number], **options)

    def find_flow(self, name: str) -> Flow:
        """Return a flow that is made, by its name, or its id: see `limpyd_jobs.Flow.find`.

        One that a job spawned is in the shard of that job: if the shard of the name has none, all are asked.
        """
        from limpyd_jobs.flows import Flow  # not at the start of each process

        def found_in(database: JobsDatabase) -> Flow | None:
            try:
                return Flow.find(name, database)
            except LimpydJobsException as error:
                missing.append(error)
                return None

        missing = list[LimpydJobsException]()
        number = self.place_of(name)
        self.check(number)
        if flow := found_in(self.databases[number]):
            return flow
        seen = self.each(found_in)
        for flow in filter(None, seen.value.values()):
            return flow
        if seen.unseen:
            unseen = "; ".join(seen.unseen.values())
            raise LimpydJobsException(f"{missing[0]}, in the shards that answer. Not seen: {unseen}")
        raise missing[0]

    # -- Asking all of them

    def filter(self, *words: Any, **conditions: Any) -> ShardsFilter:
        """Return the jobs of all shards that meet some conditions: those of `limpyd_jobs.query.JobFilter`.

        >>> shards.filter(Photo, status="error").requeue_all()
        """
        return ShardsFilter(self.each, len(self.databases), words, conditions)

    def each(self, ask: Callable[[JobsDatabase], T], lacking: tuple[type[Exception], ...] = ()) -> Seen:
        """Call a function with the database of each shard, in threads, all at once.

        >>> shards.each(lambda database: overview(database).totals).value[0].waiting

        Parameters
        ----------
        ask: callable
        lacking: tuple of exception classes
            A shard for which one of these is raised has nothing of what is asked for, so no value. If all of those that
            answer have none, the first of them is raised.

        Returns
        -------
        Seen
            ``value``: what it returned, by the number of the shard; ``unseen``: why not, of the shards whose Redis
            cannot be used.

        Raises
        ------
        Exception
            Any other than those of redis-py that the function raises.
        """
        found, unseen, missing = dict[int, T](), dict[int, str](), list[Exception]()

        def asked(number: int) -> T:
            if number in self._failed:
                check_answers(self.databases[number])
                self._failed.discard(number)
            self.check(number)
            return ask(self.databases[number])

        with self._threads() as threads:
            for number, answer in enumerate([threads.submit(asked, each) for each in range(len(self.databases))]):
                try:
                    found[number] = answer.result()
                except RedisError as error:
                    self._failed.add(number)
                    unseen[number] = f"{self.name_of(number)}: {one_line(error, MESSAGE)}"
                except lacking as error:
                    missing.append(error)
        if missing and not found:
            raise missing[0]
        return Seen(found, unseen)

    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(len(self.databases), thread_name_prefix="limpyd-jobs-shards")


def _sorted_as(places: Iterable[int], numbers: Iterable[int], added: Iterable[Iterable[Any]]) -> list[Any]:
    """Return what each shard added, in the order in which all were given."""
    found = dict(zip(numbers, map(iter, added), strict=True))
    return [next(found[number]) for number in places]


def _model_of(given: Any) -> Any:
    found = job_class_of(given)
    if not (isinstance(found, type) and issubclass(found, RedisModel)):
        raise TypeError(f"The job class comes first, or a function that is a job, not {given!r}")
    return found


def _number_of(texts: Iterable[str]) -> int:
    """Read the number of shards that a URL of a cluster tells, once."""
    found = [*texts]
    if len(found) != 1:
        raise ConfigurationException(
            "the URL of a cluster must tell the number of shards, as redis+cluster://…/shop?shards=8"
        )
    if not re.fullmatch("[0-9]{1,9}", found[0]) or not 2 <= int(found[0]) <= MAX_SHARDS:
        raise ConfigurationException(_not_so_many(one_line(found[0], 40)))
    return int(found[0])


def _not_so_many(number: int | str) -> str:
    return f"There must be 2 to {MAX_SHARDS:,} shards, not {number}"


def check_answers(database: JobsDatabase) -> None:
    """Raise `RedisError` if the Redis of a shard does not answer soon, by a connection of its own."""
    timeouts: Any = {"socket_timeout": ANSWER_TIMEOUT, "socket_connect_timeout": ANSWER_TIMEOUT}
    client = client_like(database.connect(), timeouts)
    if client:
        with closing(client):
            client.ping()
