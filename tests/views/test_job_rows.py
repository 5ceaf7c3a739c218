"""A row of a list says which arguments differ, what went wrong, when that was and how long it took."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from limpyd import fields

from limpyd_jobs import Job
from limpyd_jobs.query import JobFilter
from limpyd_jobs.views.jobs import job_rows, shown_time

pytestmark = pytest.mark.usefixtures("redis_client")


class Parcel(Job):
    namespace = "job-rows"
    queue_name = "parcels"
    to = fields.InstanceHashField(indexable=True)
    country = fields.InstanceHashField()
    note = fields.InstanceHashField()

    def run(self, queue: Any) -> None: ...


def test_a_row_has_what_differs_and_what_went_wrong() -> None:
    for to in ("ann", "bob", "cleo"):
        Parcel.add_job(to, to=to, country="fr", note="x" * 1000 if to == "bob" else "")
    ann, bob, _ = Parcel.collection().sort().instances()
    with ann.claim(owner="web1:12") as claim:
        claim.fail(KeyError("no stamp"))
    bob.claim(owner="web1:12")
    bob.progress(0.5, "half")
    Parcel.add_job("later", to="dora", country="fr", delayed_for=timedelta(hours=1))
    later, cleo, running, failed = job_rows(JobFilter().page().found)
    assert (failed.arguments, failed.name) == ({"to": "ann"}, f"Parcel:{ann.pk.get()}")
    assert failed.message == "KeyError: 'no stamp'"
    assert failed.seconds is not None
    assert (running.progress, running.arguments["note"]) == (0.5, "(1,000 bytes)")
    assert cleo.seconds is None
    assert later.when == later.job.added or later.when > (later.job.added or "")
    assert [each.arguments["to"] for each in (later, cleo, running)] == ["dora", "cleo", "bob"]


def test_one_job_of_a_class_shows_all_its_arguments_and_secrets_are_masked() -> None:
    Parcel.add_job("one", to="ann", country="fr")
    [row] = job_rows(JobFilter().page().found, mask=lambda _, name, value: "(masked)" if name == "to" else value)
    assert row.arguments == {"to": "(masked)", "country": "fr"}


def test_a_time_has_a_unit() -> None:
    assert [shown_time(each) for each in (0.041, 0.23, 2.04, 18)] == ["41 ms", "0.2 s", "2.0 s", "18 s"]
