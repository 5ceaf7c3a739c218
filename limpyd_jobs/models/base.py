"""What all models of this library have in common."""

from __future__ import annotations

from typing import Any

from limpyd.contrib.collection import ExtendedCollectionManager
from limpyd.contrib.database import PipelineDatabase
from limpyd_extensions import related

from limpyd_jobs.store.atomic_fields import AtomicModel
from limpyd_jobs.store.database import JobsDatabase
from limpyd_jobs.store.lazy_fields import LazyModel
from limpyd_jobs.store.new_fields import check_fields


class BaseJobsModel(related.RelatedModel, AtomicModel, LazyModel):
    """The base of all models of this library. Its database is that of all its subclasses, unless they have another."""

    __module__ = "limpyd_jobs.models"  # what is stored of a class is its path

    database = JobsDatabase()
    collection_manager = ExtendedCollectionManager
    namespace = "jobs"
    cacheable = False
    abstract = True

    @classmethod
    def use_database(cls, database: PipelineDatabase) -> list[type[BaseJobsModel]]:
        """Move the class, and its subclasses that are on the same database, to another one; return all of them.

        limpyd's own version fails if some of them have relations to other models and some have none.
        """
        relations = getattr(cls.database, "_relations", {})
        moved: list[type[BaseJobsModel]] = super(related.RelatedModel, cls).use_database(database)
        names = {model._name for model in moved if not model.abstract}
        target = vars(database).setdefault("_relations", {})
        for related_name, entries in relations.items():
            for relation in [entry for entry in entries if entry[0] in names]:
                entries.remove(relation)
                target.setdefault(related_name, []).append(relation)
        return moved

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
