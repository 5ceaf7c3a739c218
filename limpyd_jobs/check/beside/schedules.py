"""The schedules: whether they stand in the sorted set by their due time, and whether they can be enqueued."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timezone

from limpyd_jobs.check import scripts
from limpyd_jobs.check.catalogue import Catalogue, Model, Symptom
from limpyd_jobs.check.reader import Reader
from limpyd_jobs.check.records import BATCH
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.records.records import due_key
from limpyd_jobs.redis.calls import chunks
from limpyd_jobs.schedules.misfires import due_times
from limpyd_jobs.schedules.plan import Plan
from limpyd_jobs.texts import printable


class Schedules:
    """Looks at all schedules, and again if something looked wrong: there are few."""

    def __init__(self, reader: Reader, catalogue: Catalogue) -> None:
        self._reader = reader
        self._catalogue = catalogue
        self.is_suspicious = False

    def discover(self) -> None:
        for model in self._catalogue.schedules:
            for _, stored in self._hashes(model):
                if "job_model_repr" in stored:
                    self._catalogue.job_class(stored["job_model_repr"])

    def look(self) -> Iterator[int]:
        found = len(list(self.look_again(repair=False)))
        self.is_suspicious = found > 0
        yield found

    def look_again(self, repair: bool) -> Iterator[Symptom]:
        for model in self._catalogue.schedules:
            yield from self._places(model, repair)
            yield from self._obstacles(model)

    def _places(self, model: Model, repair: bool) -> Iterator[Symptom]:
        due = due_key(model)
        pks = {pk for chunk in self._members(model) for pk in chunk}
        pks.update(pk for chunk in self._reader.scores(due) for pk, _ in chunk)
        for batch in [*chunks(sorted(pks), BATCH)] or [[]]:
            for pk, kind, detail in scripts.repair_schedules(self._reader.connection, model, batch, repair):
                yield model, pk or due, kind, (detail,)

    def _obstacles(self, model: Model) -> Iterator[Symptom]:
        """Yield the schedules whose jobs no worker can add."""
        for pk, stored in self._hashes(model):
            obstacle = stored and self._obstacle(stored)
            if obstacle:
                is_known = stored.get("job_model_repr", "") not in self._catalogue.unknown
                kind = "not to be enqueued" if is_known else "class of a schedule not known"
                yield model, pk, kind, (stored.get("name", ""), obstacle)

    def _hashes(self, model: Model) -> Iterator[tuple[str, Mapping[str, str]]]:
        for pks in self._members(model):
            hashes = self._reader.all(("HGETALL", f"{model._name}:{pk}:hash") for pk in pks)
            yield from ((pk, found) for pk, found in zip(pks, hashes, strict=True) if isinstance(found, Mapping))

    def _members(self, model: Model) -> Iterator[list[str]]:
        return self._reader.members(f"{model._name}:collection")

    def _obstacle(self, stored: Mapping[str, str]) -> str:
        """Return why a schedule cannot be enqueued; empty if it can."""
        path = stored.get("job_model_repr", "")
        job_class = self._catalogue.job_class(path)
        if job_class is None and (self._catalogue.is_unread(path) or not self._catalogue.imports):
            return ""  # not known
        if job_class is None:
            return f"{path} cannot be imported: {self._catalogue.unknown[path]}"
        try:
            plan, now = Plan.read(stored, job_class), datetime.now(timezone.utc)
            plan.identifier(now)
            if plan.due:
                due_times(plan.times, plan.due, max(plan.due, now), plan.misfire_policy)
        except ConfigurationException:
            return ""  # not known without APScheduler
        except Exception as error:
            return printable(error)
        return ""
