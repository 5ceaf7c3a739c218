"""The collections of jobs. They are collections of limpyd, with verbs for all jobs in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from limpyd.contrib.collection import ExtendedCollectionManager
from limpyd.indexes import EqualIndex

from limpyd_jobs.idents import read_pk
from limpyd_jobs.records.layout import layout_of

if TYPE_CHECKING:
    from limpyd_jobs.search.actions import Tally
    from limpyd_jobs.search.jobs import JobFilter


class JobCollection(ExtendedCollectionManager):
    """The jobs of a class that fit. The verbs are those of `JobFilter`.

    The step that changes a job looks again at the fields that the collection asks for. Other filters, such as ranges
    and intersections, count as they are when the verb begins.

    >>> SendMail.collection(status=STATUSES.ERROR, to="ann@example.com").requeue_all()
    Tally(done=3, skipped=0, refused=0, reasons={})
    """

    def requeue_all(self, *args: Any, **options: Any) -> Tally:
        """Put the jobs that are in error back in a queue."""
        return self._filter().requeue_all(*args, **options)

    def cancel_all(self, **options: Any) -> Tally:
        """Cancel the jobs that wait, are delayed or run."""
        return self._filter().cancel_all(**options)

    def delete_all(self, **options: Any) -> Tally:
        """Delete the jobs that do not run."""
        return self._filter().delete_all(**options)

    def move_all(self, *args: Any, **options: Any) -> Tally:
        """Move the jobs that wait or are delayed."""
        return self._filter().move_all(*args, **options)

    def delay_all(self, *args: Any, **options: Any) -> Tally:
        """Delay the jobs that wait or are delayed."""
        return self._filter().delay_all(*args, **options)

    def promote_all(self, **options: Any) -> Tally:
        """Let the jobs that are delayed wait."""
        return self._filter().promote_all(**options)

    def _filter(self) -> JobFilter:
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
