"""The report of the chaos test calls wrong what is wrong, and nothing else."""

from __future__ import annotations

from typing import Any

from chaos_jobs import Failing, Quick
from chaos_report import Fault, Observed, Report

LEASE = 2
A, B = (f"{Quick.get_model_repr()}:{pk}" for pk in (1, 2))
SUCCESS = {"identifier": "a", "status": "s"}


def mark(at: float, kind: str, **details: Any) -> dict[str, Any]:
    return {"name": "worker-1", "at": at, "kind": kind, **details}


def added(ident: str = A, identifier: str = "a") -> dict[str, Any]:
    return mark(0, "added", ident=ident, identifier=identifier)


def run(token: str, start: float, end: float | None, last: str = "recorded", ident: str = A) -> list[dict[str, Any]]:
    """The marks of a run by a worker of its own, which said nothing between its claim and its end."""
    told = {"token": token, "name": f"worker-{token}"}
    marks = [mark(start, "claim", **told), mark(start, "start", ident=ident, **told)]
    if end is not None:
        marks += [mark(end, "end", ident=ident, **told), mark(end, last, **told, outcome="done")]
    return marks


def report(*marks: dict[str, Any], faults: tuple[Fault, ...] = (), **records: dict[str, str]) -> Report:
    stored = {A: SUCCESS, **{Quick.get_model_repr() + f":{pk[1:]}": record for pk, record in records.items()}}
    return Report(Observed(1, 60, LEASE, 4, list(marks), list(faults), stored, [], []))


def test_a_job_that_ran_to_a_recorded_end_is_all_right() -> None:
    assert report(added(), *run("1", 1, 2)).violations == []


def test_a_job_without_a_run_is_lost_whatever_is_recorded() -> None:
    assert report(added()).lost == {A}


def test_a_job_without_a_recorded_end_is_lost() -> None:
    assert report(added(), *run("1", 1, 2), _1={"identifier": "a", "status": "w"}).lost == {A}


def test_a_job_that_is_gone_is_lost_even_if_there_is_another_one_of_its_identifier() -> None:
    assert report(added(), added(B), *run("1", 1, 2)).lost == {B}


def test_a_job_that_has_to_fail_is_lost_if_it_succeeds() -> None:
    ident = f"{Failing.get_model_repr()}:1"
    seen = Observed(1, 60, LEASE, 4, [added(ident), *run("1", 1, 2, ident=ident)], [], {ident: SUCCESS}, [], [])
    assert Report(seen).lost == {ident}


def test_a_second_run_while_the_lease_of_the_first_holds_is_wrong() -> None:
    found = report(added(), *run("1", 1, 3, "refused"), *run("2", 2, 2.5))
    assert [each.split(":")[0] for each in found.violations] == [
        "run again though the lease was renewed",
        "run twice at once though the lease was renewed",
    ]


def test_a_second_run_after_a_silence_longer_than_the_lease_is_counted_only() -> None:
    found = report(added(), *run("1", 1, 9, "refused"), *run("2", 3.1, 4))
    assert found.violations == []
    assert len(found.at_once) == 1


def test_a_worker_that_is_silent_between_its_claim_and_its_run_may_come_too_late() -> None:
    late = run("1", 9, 9.5, "refused")
    late[0]["at"] = 1
    found = report(added(), *late, *run("2", 3.1, 4))
    assert found.violations == []
    assert found.at_once == []


def test_a_claim_whose_reply_was_lost_may_be_asked_for_again_later() -> None:
    asked_again = run("1", 5, 6)
    asked_again[0]["at"] = 1
    assert report(added(), *asked_again, *run("2", 2, None)).violations == []


def test_a_claim_that_was_asked_for_again_may_come_after_another_one_that_was_asked_for_later() -> None:
    asked_again, answered_late = run("1", 9, 9.1), run("2", 7, 7.1, "refused")
    asked_again[0]["at"], answered_late[0]["at"] = 1, 2
    assert report(added(), *asked_again, *answered_late).violations == []


def test_a_claim_that_was_asked_for_again_may_come_after_a_run_that_put_the_job_back() -> None:
    asked_again, put_back = run("1", 3.5, 3.6), run("2", 2, 2.1)
    asked_again[0]["at"], put_back[-1]["outcome"] = 1, "requeued"
    assert report(added(), *asked_again, *put_back).violations == []


def test_a_run_after_a_recorded_end_is_wrong_though_both_claims_were_sent_long_before() -> None:
    asked_again, answered_late = run("1", 9, 9.1), run("2", 7, 7.1)
    asked_again[0]["at"], answered_late[0]["at"] = 1, 2
    assert report(added(), *asked_again, *answered_late).violations


def test_renewals_end_a_silence() -> None:
    found = report(added(), *run("1", 1, 9, "refused"), mark(2.5, "renewed", token="1"), *run("2", 3.1, 4))
    assert found.violations


def test_what_a_worker_records_after_it_lost_its_claim_is_wrong() -> None:
    assert report(added(), *run("1", 1, 9), *run("2", 3.1, 4)).violations


def test_a_run_after_a_recorded_end_is_wrong() -> None:
    assert report(added(), *run("1", 1, 1.5), *run("2", 9, 10)).violations


def test_two_jobs_of_an_identifier_that_was_added_once_are_wrong() -> None:
    assert report(added(), *run("1", 1, 2), _2=SUCCESS).violations
    assert not report(added(), added(B), *run("1", 1, 2), *run("2", 3, 4, ident=B), _2=SUCCESS).violations


def test_what_a_failover_forgot_may_be_run_again_and_is_counted_apart() -> None:
    runs = [*run("1", 2.5, 3), *run("2", 3.1, 4)]
    forgetful, early = (Fault(at, "primary killed", until=at + 2) for at in (3, 0))
    found = report(added(), *runs, faults=(forgetful,))
    assert found.violations == []
    assert found.forgotten == {"primary killed": 1}
    assert report(added(), *runs, faults=(early,)).violations
    assert report(added(), *runs, faults=(Fault(3, "failed over", until=5),)).violations
    assert report(added(), *runs, faults=(Fault(3, "slot moved", until=5),)).violations


def test_a_job_that_has_the_place_of_one_that_a_failover_forgot_does_not_make_up_for_it() -> None:
    killed = Fault(0.5, "primary killed", until=2)
    found = report(added(), added(identifier="b"), *run("1", 1, 2), faults=(killed,))
    assert found.lost == {A}


def test_time_without_an_acknowledged_job_is_told_for_each_fault_that_lasts() -> None:
    adds = [mark(at, "added", ident=A, identifier="a") for at in (0, 1, 4.5, 5)]
    found = report(*adds, *run("1", 1, 2), faults=(Fault(1.5, "primary killed", until=4),))
    assert "no job added, primary killed     p50 3.5 s, at most 3.5 s" in str(found)


def test_recovery_is_the_time_from_a_fault_to_the_end_of_each_job_that_it_hit() -> None:
    killed, cut = Fault(1.5, "worker killed", "worker-1"), Fault(2, "BLPOP cut", ident=B)
    marks = [*run("1", 1, None), *run("2", 4, 5), *run("3", 8, 9, ident=B)]
    found = report(added(), added(B, "b"), *marks, faults=(killed, cut), _2={"identifier": "b", "status": "s"})
    assert found.violations == []
    assert found.recovery == [3.5, 7]


def test_a_job_that_was_claimed_with_others_has_the_claim_of_all() -> None:
    marks = run("1/2", 3, 4)
    marks[0].update(token="1", at=1)
    found = report(added(), *marks)
    assert found.violations == []
    assert [run.claimed for run in found.runs] == [1]


def test_a_fault_costs_the_runs_of_all_jobs_in_hand() -> None:
    killed = Fault(1, "worker killed", "worker-1")
    seen = Observed(1, 60, LEASE, 4, [], [killed, Fault(2, "Redis killed")], {}, [], [], prefetch=10)
    assert Report(seen).bound == 10 + 4 * 10
