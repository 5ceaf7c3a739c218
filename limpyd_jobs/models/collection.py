"""The collections of jobs. They are collections of limpyd, with verbs for all jobs in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from limpyd.contrib.collection import ExtendedCollectionManager
from limpyd.indexes import EqualIndex

from limpyd_jobs.idents import read_pk
from limpyd_jobs.records.layout import layout_of


def _of_filter(name: str) -> Callable[..., Any]:
    """Return a method that calls this method of the filter of a collection."""

    def act(self: JobCollection, *args: Any, **options: Any) -> Any:
        return getattr(self._filter(), name)(*args, **options)

    act.__name__ = name
    return act


class JobCollection(ExtendedCollectionManager):
    """The jobs of a class that fit. The verbs are those of `JobFilter`.

    The step that changes a job looks again at the fields that the collection asks for. Other filters, such as ranges
    and intersections, count as they are when the verb begins.

    >>> SendMail.collection(status=STATUSES.ERROR, to="ann@example.com").requeue_all()
    Tally(done=3, skipped=0, refused=0, reasons={})
    """

    requeue_all, cancel_all, delete_all, move_all, delay_all, promote_all = map(
        _of_filter, ("requeue_all", "cancel_all", "delete_all", "move_all", "delay_all", "promote_all")
    )

    def _filter(self) -> Any:
        """The same jobs as a filter, which needs their pks unless it can ask for all itself."""
        from limpyd_jobs.search.conditions import Condition
        from limpyd_jobs.search.jobs import JobFilter  # not at the start of each process

        parts, fields = self._lazy_collection, layout_of(self.model)
        asked = [each for each in parts["sets"] if _asks_for_a_value(each) and each.index.field.name in fields.plain]
        found = JobFilter(self.model, database=self.model.database)
        found.conditions += tuple(Condition(each.index.field.name, "=", str(each.value)) for each in asked)
        if len(asked) < len(parts["sets"]) or parts["pks"] or parts["intersects"] or self._store or self.stored_key:
            numbers = map(read_pk, self.clone().primary_keys())
            found.pks = sorted(number for number in numbers if number is not None)
        return found


def _asks_for_a_value(asked: Any) -> bool:
    """Whether a filter of a collection is that a field has a value."""
    index = getattr(asked, "index", None)
    is_plain = type(index) is EqualIndex and not getattr(asked, "related_filters", None)
    return is_plain and asked.suffix in (None, "eq") and not asked.extra_field_parts
