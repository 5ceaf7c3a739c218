"""Whatever is pasted leads to where it is: jobs by what they have, places by their names, and on through all jobs."""

from __future__ import annotations

from typing import Any

import pytest
from limpyd import fields

from limpyd_jobs import Job
from limpyd_jobs.search import walk
from limpyd_jobs.views import find_anything, look_through

pytestmark = pytest.mark.usefixtures("redis_client")


class Letter(Job):
    namespace = "finding"
    queue_name = "letters"
    to = fields.InstanceHashField(indexable=True)
    note = fields.InstanceHashField()
    account = fields.InstanceHashField()

    def run(self, queue: Any) -> None: ...


def test_an_ident_an_address_and_a_line_of_a_log_lead_to_the_job() -> None:
    job = Letter.add_job("letter:1", to="ann@example.com")
    for text in (
        job.ident,
        "letter:1",
        "ann@example.com",
        f"12:00 [{job.ident}] ValueError: no stamp",
        f"to <{job.to.hget()}>, sent",
    ):
        assert [each.jobs[0].ident for each in find_anything(text).jobs] == [job.ident], text
    assert find_anything("bob@example.com").jobs == []
    assert find_anything("  ").places == []


def test_a_name_leads_to_the_queue_the_class_the_cause_and_the_audit() -> None:
    with Letter.add_job("one").claim(owner="web1:12") as claim:
        claim.fail(KeyError("no stamp"))
    Letter.add_job("two").cancel()
    kinds = {(each.kind, each.name.rpartition(".")[2]) for each in find_anything("letter").places}
    assert {("queue", "letters"), ("class", "Letter")} <= kinds
    [cause] = [each for each in find_anything("KeyError").places if each.kind == "cause"]
    assert find_anything(cause.name).places == [cause]
    assert ("status", "error") in {(each.kind, each.name) for each in find_anything("error").places}
    assert find_anything("KeyError: 'no stamp of bob'").places[0] == cause


def test_fields_without_an_index_are_looked_through_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "PER_STEP", 4)
    for number in range(10):
        Letter.add_job(f"{number}", note=f"for order {number}", account="order 3")
    after, jobs, looked = None, [], []
    while True:
        found = look_through("ORDER 3", after, within=0, is_hidden=lambda name: name == "account")
        jobs += [(each.identifier, field) for each, field in zip(found.jobs, found.fields, strict=True)]
        looked.append(found.looked)
        if not found.following:
            break
        after = found.following
    assert jobs == [("3", "note")]
    assert looked[0] == 4
    assert looked == sorted(looked)
    assert looked[-1] == found.size == 10
    with pytest.raises(ValueError, match="is not where a page ended"):
        look_through("x", "nonsense")
