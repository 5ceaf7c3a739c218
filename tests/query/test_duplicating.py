"""A job is run again as a new one, with the same arguments or with changes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from limpyd import fields

from limpyd_jobs import Argument, Job, NotEditable
from limpyd_jobs.query import audit_entries, duplicate_job
from limpyd_jobs.views import verbs_for

pytestmark = pytest.mark.usefixtures("redis_client")


class Invoice(Job):
    namespace = "duplicating"
    queue_name = "invoices"
    number = Argument(int)
    to = fields.InstanceHashField(indexable=True)

    def run(self, queue: Any) -> None: ...


def ended(**how: Any) -> Invoice:
    job = Invoice.add_job("invoice:1", number=7, to="ann", **how)
    with job.claim(owner="web1:12") as claim:
        claim.succeed()
    return job


def test_a_job_that_ended_is_run_again_as_a_new_one() -> None:
    job = ended(queue_name="others")
    ident = duplicate_job(job.ident)
    new = Invoice.get_from_ident(ident)
    assert ident != job.ident
    assert (new.identifier.hget(), new.arguments.number, new.to.hget()) == ("invoice:1", 7, "ann")
    assert new.explain().status == "waiting"
    assert new.tries.hget() in (None, "0")
    assert [(each.verb, each.filter, each.done) for each in audit_entries(1)] == [("duplicate", job.ident, 1)]


def test_it_may_have_other_values_and_wait() -> None:
    job = ended()
    ident = duplicate_job(job.ident, {"number": "8", "to": None}, as_text=True, delayed_for=timedelta(hours=1))
    new = Invoice.get_from_ident(ident)
    assert (new.arguments.number, new.to.hget(), new.explain().status) == (8, None, "delayed")
    with pytest.raises(ValueError, match="number"):
        duplicate_job(job.ident, {"number": "eight"}, as_text=True, identifier="other")


def test_it_is_refused_while_one_of_its_identifier_is_queued() -> None:
    job = ended()
    first = duplicate_job(job.ident)
    with pytest.raises(NotEditable, match=f"{first} has the identifier invoice:1 and is queued"):
        duplicate_job(job.ident)
    assert duplicate_job(job.ident, identifier="invoice:2") != first


def test_only_verbs_that_can_work_are_offered() -> None:
    assert "requeue" not in verbs_for("running")
    assert verbs_for("error")[0] == "requeue"
    assert verbs_for("success")[0] == verbs_for("canceled")[0] == "duplicate"
    assert {"edit", "delete"}.isdisjoint(verbs_for("waiting", is_claimed=True))
