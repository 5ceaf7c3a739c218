"""What all models of this library have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Self

from limpyd.contrib.collection import ExtendedCollectionManager
from limpyd.contrib.database import PipelineDatabase

from limpyd_jobs.classes.binding import bound
from limpyd_jobs.classes.roots import roots
from limpyd_jobs.fields.atomic_fields import AtomicModel
from limpyd_jobs.fields.new_fields import check_fields
from limpyd_jobs.models.following.changes import Changes
from limpyd_jobs.records import records
from limpyd_jobs.records.lazy_fields import LazyModel, is_plain
from limpyd_jobs.records.limpyd_types import RelatedModel
from limpyd_jobs.redis.cluster.names import plain_names
from limpyd_jobs.redis.database import JobsDatabase, tolerant

if TYPE_CHECKING:
    from limpyd_jobs.models.following.awaited_changes import AwaitedChanges


class BaseJobsModel(RelatedModel, AtomicModel, LazyModel):
    """The base of all models of this library. All its subclasses are on its database, unless they have another one.

    Attributes
    ----------
    notify_changes: bool
        Whether other processes are notified of the changes of its records: see `changes`.
    """

    __module__ = "limpyd_jobs.models"  # what is stored of a class is its path

    database = JobsDatabase()
    collection_manager = ExtendedCollectionManager
    namespace = "jobs"
    cacheable = False
    abstract = True
    notify_changes = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args or kwargs or not is_plain(type(self)):
            super().__init__(*args, **kwargs)
        else:  # all that the classes in between would do, in a third of the time
            LazyModel.__init__(self)
            self.__dict__["related_collections"] = []

    @classmethod
    def use_database(cls, database: PipelineDatabase) -> list[type[BaseJobsModel]]:
        """Move the class, and its subclasses that are on the same database, to another database; return all of them.

        limpyd's own version fails if only some of them have relations to other models.
        """
        with plain_names(cls.database, database):
            return cls._moved_to(database)

    @classmethod
    def _moved_to(cls, database: PipelineDatabase) -> list[type[BaseJobsModel]]:
        relations = getattr(cls.database, "_relations", {})
        moved: list[type[BaseJobsModel]] = super(RelatedModel, cls).use_database(database)
        names = {model._name for model in moved if not model.abstract}
        target = database.__dict__.setdefault("_relations", {})
        for related_name, entries in relations.items():
            for relation in [entry for entry in entries if entry[0] in names]:
                entries.remove(relation)
                target.setdefault(related_name, []).append(relation)
        return moved

    @classmethod
    def get_connection(cls) -> Any:
        """Return the client of the database, or the pipeline that is open.

        It reads text that is not UTF-8 as surrogate escapes. So does the client of a plain database of limpyd.
        """
        database = cls.database
        connection = database.connection
        return connection if isinstance(database, JobsDatabase) else tolerant(connection, database.connection_settings)

    @classmethod
    def bound_to(cls, database: JobsDatabase, namespace: str | None = None) -> type[Self]:
        """Return this model on another database, without moving it: the class of its records there.

        It is a subclass with the same path, so the idents of its jobs are like those of this class. A bound job class
        has the bound `queue_model`, if both were on the same database: in its own namespace, or in the given one. The
        same arguments give the same class. A worker runs jobs of the class itself: its process moves the class to the
        database, by `use_database`.

        Parameters
        ----------
        database: JobsDatabase
        namespace: str
            The beginning of the keys of the model and of its queues there; None to keep their namespaces.

        Raises
        ------
        TypeError
            If the database is not a `JobsDatabase`.
        ValueError
            If the namespace is empty.
        ConfigurationException
            If the class is abstract, has relations to other models, or another one has its name on that database.
        """
        return bound(cls, database, namespace)

    @classmethod
    def changes(cls, timeout: float | None = None, since: str | None = None) -> Changes:
        """Return an iterator over the changes from now on: `JobChange` for jobs, `Change` for other records.

        A job changes if its status changes. Another record changes if a field of its hash changes. The class has to say
        `notify_changes = True`, in all processes. Each change is written in the step that makes it, in the order of the
        steps. The last 10,000 or so are kept, for a listener that lost the connection to Redis. Processes of version 2
        notify of nothing.

        >>> for change in Photo.changes():
        ...     print(change.pk, change.status_before, change.status)

        Parameters
        ----------
        timeout: float
            After how many seconds without a change the iteration ends; None for never.
        since: str
            The `id` of a change, to go on after it; ``"0"`` for all changes that are kept.

        Raises
        ------
        ConfigurationException
            If the class does not notify of its changes.
        TypeError, ValueError
            If an argument is not one of the above.
        """
        return Changes([cls], timeout, since)

    @classmethod
    def achanges(cls, timeout: float | None = None, since: str | None = None) -> AwaitedChanges:
        """Return an asynchronous iterator over the same changes: from the moment on at which it is entered by ``async
        with``, or the first one is asked for.

        >>> async with Photo.achanges() as changes:
        ...     async for change in changes:
        ...         print(change.pk, change.status_before, change.status)

        For the parameters and exceptions see `changes`.
        """
        from limpyd_jobs.models.following.awaited_changes import AwaitedChanges  # not at the start of each process

        return AwaitedChanges([cls], timeout, since)

    @classmethod
    def read_many(cls, pks: Iterable[str], *names: str) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield the pk and the hash fields of records, 200 in one round trip. Records that are gone are left out.

        Parameters
        ----------
        pks: iterable of str
            Such as a collection, whose order is kept.
        *names: str
            The fields to read; without names, all fields.
        """
        return records.read_many(cls, pks, names)

    @classmethod
    def delete_many(cls, pks: Iterable[str]) -> int:
        """Delete records, 200 in one round trip if all their fields are plain hash fields; return their number."""
        return records.delete_many(cls, pks)

    def set_fields(self, **fields: Any) -> None:
        """Set several fields, each through its own ``proxy_set``.

        Raises
        ------
        AttributeError
            If the model has no such field.
        ValueError
            If the value of an indexed field is over 64 kB.
        """
        check_fields(type(self), fields)
        for name, value in fields.items():
            self.get_field(name).proxy_set(value)


roots.base = BaseJobsModel
