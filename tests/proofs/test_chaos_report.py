"""The report of the chaos test calls wrong what is wrong, and nothing else."""

from __future__ import annotations

from functools import partial
from typing import Any

from chaos_jobs import Failing, Looping, Quick, Restarting
from chaos_report import HARNESS, Fault, Observed, Report

LEASE = 2
A, B = (f"{Quick.get_model_repr()}:{pk}" for pk in (1, 2))
SUCCESS = {"identifier": "a", "status": "s"}
STOPPED = Fault(2, "worker stopped", "worker-1")


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
    found = report(added(), *run("1", 1, 9, "refused"), *run("2", 3.1, 4), faults=(STOPPED,))
    assert found.violations == []
    assert len(found.at_once) == 1


def test_a_healthy_worker_that_lets_its_lease_lapse_is_wrong_if_it_had_the_time_to_renew_it() -> None:
    marks = added(), *run("1", 1, 9, "refused"), *run("2", 3.1, 4)
    assert len(report(*marks).let_lapse) == 1
    assert report(*marks).violations
    busy = mark(2.5, "hiccup", seconds=1)
    assert report(*marks, {**busy, "name": "harness"}).violations == []
    assert report(*marks, {**busy, "name": "redis"}).violations == []
    assert report(*marks, busy).violations == []
    assert report(*marks, {**busy, "name": "worker-2"}).violations
    assert report(*marks, faults=(Fault(2, "client killed"),)).violations == []


def test_a_worker_that_is_silent_between_its_claim_and_its_run_may_come_too_late() -> None:
    late = run("1", 9, 9.5, "refused")
    late[0]["at"] = 1
    found = report(added(), *late, *run("2", 3.1, 4), faults=(STOPPED,))
    assert found.violations == []
    assert found.at_once == []


def test_a_claim_whose_reply_was_lost_may_be_asked_for_again_later() -> None:
    asked_again = run("1", 5, 6)
    asked_again[0]["at"] = 1
    killed = Fault(2.5, "worker killed", "worker-2")
    assert report(added(), *asked_again, *run("2", 2, None), faults=(killed,)).violations == []


def test_a_claim_that_was_asked_for_again_may_come_after_another_one_that_was_asked_for_later() -> None:
    asked_again, answered_late = run("1", 9, 9.1), run("2", 7, 7.1, "refused")
    asked_again[0]["at"], answered_late[0]["at"] = 1, 2
    faults = Fault(8, "worker stopped", "worker-2"), Fault(8, "client killed")
    assert report(added(), *asked_again, *answered_late, faults=faults).violations == []


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


# -- What was skipped

LOOP, RESTART = f"{Looping.get_model_repr()}:1", f"{Restarting.get_model_repr()}:1"
ALL = Looping.units
HALF = len(ALL) // 2


def work(
    token: str, start: float, units: tuple[str, ...], outcome: str = "done", left_by: str = "", ident: str = LOOP
) -> list[dict[str, Any]]:
    """The marks of a run that takes a second and does some units. Without an outcome, its worker is killed."""
    told = {"ident": ident, "token": token, "name": f"worker-{token}"}
    marks = [mark(start, "claim", **told), mark(start, "start", **told)]
    marks += [mark(start + 0.5, "unit", unit=unit, **told) for unit in units]
    if outcome:
        end = mark(start + 1, "left", by=left_by, **told) if left_by else mark(start + 1, "end", **told)
        marks += [end, mark(start + 1, "recorded", outcome=outcome, **told)]
    return marks


def put_back(at: float, *, success: bool = True, restart: bool = True, ident: str = LOOP) -> dict[str, Any]:
    return mark(at, "requeue", ident=ident, success=success, restart=restart, sure=True)


def ledger(*marks: dict[str, Any], ident: str = LOOP, status: str = "s", **seen: Any) -> Report:
    records = {ident: {"identifier": "a", "status": status}}
    faults = [Fault(at, "worker killed", "worker-killed") for at in (1.9,)]
    return Report(Observed(1, 60, LEASE, 4, [added(ident), *marks], faults, records, [], [], **seen))


def test_a_job_that_did_all_of_its_work_is_all_right_also_if_several_runs_did_it() -> None:
    assert ledger(*work("1", 1, ALL)).violations == []
    assert ledger(*work("1", 1, ALL[:HALF], "released", "JobInterrupted"), *work("2", 3, ALL[HALF:])).violations == []
    assert ledger(*work("1", 1, ALL[:HALF], "requeued", "ValueError"), *work("2", 3, ALL[HALF:])).violations == []
    assert ledger(*work("killed", 1, ALL[:HALF], ""), *work("2", 5, ALL[HALF - 2 :])).violations == []


def test_a_unit_that_no_run_did_is_skipped() -> None:
    for missing in range(len(ALL)):
        found = ledger(*work("1", 1, ALL[:missing] + ALL[missing + 1 :]))
        assert len(found.skipped) == 1
        assert found.violations == [f"skipped: {found.skipped[0]}"]
        assert ALL[missing] in found.skipped[0]


def test_a_unit_that_a_later_run_left_out_is_skipped_though_the_job_was_interrupted() -> None:
    found = ledger(*work("1", 1, ALL[:HALF], "released", "JobInterrupted"), *work("2", 3, ALL[HALF + 1 :]))
    assert len(found.skipped) == 1
    assert ALL[HALF] in found.skipped[0]


def test_after_its_success_a_job_that_is_put_back_has_to_do_all_again() -> None:
    assert ledger(*work("1", 1, ALL), put_back(3), *work("2", 4, ALL)).violations == []
    found = ledger(*work("1", 1, ALL), put_back(3), *work("2", 4, ALL[HALF:]))
    assert len(found.skipped) == 1
    assert ledger(*work("1", 1, ALL), put_back(3), *work("2", 4, ())).skipped
    assert ledger(*work("1", 1, ALL[HALF:]), put_back(3), *work("2", 4, ALL)).skipped  # the first time counts, too


def test_after_an_error_a_job_goes_on_unless_it_has_to_begin_anew() -> None:
    failed, second = work("1", 1, ALL[:HALF], "error", "ValueError"), work("2", 4, ALL[HALF:])
    assert ledger(*failed, put_back(3, success=False, restart=False), *second).violations == []
    assert ledger(*failed, put_back(3, success=False), *second).skipped
    assert ledger(*failed, put_back(3, success=False), *work("2", 4, ALL)).violations == []


def test_a_class_that_restarts_after_errors_has_to_do_all_again_after_each() -> None:
    failed = work("1", 1, ALL[:HALF], "requeued", "ValueError", ident=RESTART)
    assert ledger(*failed, *work("2", 4, ALL, ident=RESTART), ident=RESTART).violations == []
    assert ledger(*failed, *work("2", 4, ALL[HALF:], ident=RESTART), ident=RESTART).skipped
    released = work("1", 1, ALL[:HALF], "released", "JobInterrupted", ident=RESTART)
    assert ledger(*released, *work("2", 4, ALL[HALF:], ident=RESTART), ident=RESTART).violations == []


def test_a_class_that_restarts_may_do_all_again_after_an_error_of_which_its_worker_did_not_hear() -> None:
    first = work("1", 1, ALL[:2], "released", "JobInterrupted", ident=RESTART)
    second = work("2", 3, ALL[2:HALF], "requeued", "ValueError", ident=RESTART)
    second[-1].update(kind="refused")
    third = work("3", 6, ALL, ident=RESTART)
    assert ledger(*first, *second, *third, ident=RESTART).repeated
    asked = mark(4, "asked", token="2", name="worker-2", verb="fail")
    assert ledger(*first, *second, asked, *third, ident=RESTART).repeated == []


def test_what_is_kept_is_not_done_again() -> None:
    for outcome, left_by in (("released", "JobInterrupted"), ("requeued", "ValueError")):
        found = ledger(*work("1", 1, ALL[:HALF], outcome, left_by), *work("2", 3, ALL[HALF - 1 :]))
        assert len(found.repeated) == 1
        assert found.violations
    interrupted_within_a_unit = work("1", 1, ALL[:HALF], "released", "GracePeriodOver")
    assert ledger(*interrupted_within_a_unit, *work("2", 3, ALL[HALF - 1 :])).violations == []


def test_a_job_that_has_not_succeeded_has_skipped_nothing_and_is_lost() -> None:
    found = ledger(*work("1", 1, ALL[:HALF], "requeued", "ValueError"), status="w")
    assert found.skipped == []
    assert found.lost == {LOOP}


def test_a_job_that_was_put_back_and_did_not_run_is_lost() -> None:
    assert ledger(*work("1", 1, ALL), put_back(3)).lost == {LOOP}


def test_a_run_after_a_success_is_wrong_unless_the_job_was_put_back() -> None:
    assert ledger(*work("1", 1, ALL), *work("2", 9, ALL)).violations
    assert ledger(*work("1", 1, ALL), put_back(8), *work("2", 9, ALL)).violations == []


# -- What does not end, and what is suspected


def test_a_run_that_goes_on_for_long_is_stuck_unless_its_worker_was_hit() -> None:
    assert len(ledger(*run("1", 1, 90, ident=LOOP)).stuck) == 1
    assert ledger(*run("1", 1, None, ident=LOOP), gone={"worker-1": 90}).stuck
    assert ledger(*run("killed", 1, None, ident=LOOP)).stuck == []
    recorded = {"token": "1", "name": "worker-1", "outcome": "requeued"}
    assert ledger(*run("1", 1, None, ident=LOOP), mark(5, "recorded", **recorded)).stuck == []


def test_a_worker_may_not_know_that_it_put_back_a_job_that_goes_on() -> None:
    runs = [*run("1", 1, 30, "refused"), *run("2", 2.5, 2.6)]
    assert report(added(), *runs).violations
    for verb in ("fail", "release"):
        asked = mark(2, "asked", token="1", name="worker-1", verb=verb)
        assert report(added(), *runs, asked).violations == []
    assert report(added(), *runs, {**asked, "at": 2.55}).violations


def test_a_job_is_a_suspect_only_after_a_worker_died_with_it() -> None:
    alone, among_others = run("2", 9, 9.5), run("1/1", 1, 1.5, "recorded")
    for each in among_others[:3]:
        each["name"] = "worker-1"
    lost = [each for each in among_others if each["kind"] in ("claim", "start")]
    ended, killed = Fault(2, "worker ended", "worker-1"), Fault(2, "worker killed", "worker-1")
    records = {A: SUCCESS}
    seen = partial(Observed, 1, 60, LEASE, 4, [added(), *lost, *alone], records=records, broken=[], wrong=[])
    silence = {"at": 8.0, "kind": "hiccup", "name": HARNESS, "seconds": LEASE}
    silent = Observed(1, 60, LEASE, 4, [silence, *lost, *alone], [ended], records, [], [], is_concurrent=True)
    assert Report(silent).suspected == []
    assert len(Report(seen(faults=[ended], is_concurrent=True)).suspected) == 1
    assert Report(seen(faults=[killed], is_concurrent=True)).suspected == []
    assert Report(seen(faults=[ended])).suspected == []
