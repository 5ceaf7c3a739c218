"""Jobs that wait for signals, from people or from other programs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import redis
from cases import each
from flow_kinds import (
    Asking,
    Dropped,
    Newest,
    Page,
    Seated,
    ask,
    ask_both,
    ask_in_a_group,
    ask_later,
    give_up_in_a_group,
)
from running import work
from servers import wait_until

from limpyd_jobs import (
    STATUSES,
    Error,
    Flow,
    JobGone,
    LimpydJobsException,
    NotClaimable,
    asend_signal,
    asent_signals,
    atake_back_signal,
    chain,
    send_signal,
    sent_signals,
    take_back_signal,
)
from limpyd_jobs.dates import utcnow
from limpyd_jobs.exceptions import JobInterrupted
from limpyd_jobs.query import edit_job
from limpyd_jobs.testing import drain, run_job

pytestmark = pytest.mark.usefixtures("redis_client")

END = "9999-12-31 23:59:59"


def run(number: int = 1, **options: Any) -> None:
    work("asking,pages", max_loops=number, callback=None, **options)


def a_waiting_job(**fields: Any) -> Asking:
    job = Asking.add_job(**fields)
    run()
    assert (job.status.hget(), job.claim_owner()) == (STATUSES.DELAYED, None)
    return job


class TestWaiting:
    def test_a_job_goes_on_in_another_run_once_its_signal_comes(self) -> None:
        job = a_waiting_job()
        assert job.hmget("tries", "start", "delayed_until") == [None, None, END]
        assert send_signal(job, "approval", {"by": "ann", "note": ["é", 1.5, None]}) == "received"
        assert job.status.hget() == STATUSES.WAITING
        run()
        assert job.answer.value() == {"by": "ann", "note": ["é", 1.5, None]}
        assert job.hmget("tries", "_waits", "did") == ["1", None, "before run run "]

    def test_one_that_comes_first_is_kept(self) -> None:
        job = Asking.add_job()
        assert send_signal(job.ident, "approval", "yes") == "kept"
        run()
        assert job.answer.value() == "yes"

    def test_one_of_another_name_is_another_one(self) -> None:
        job = a_waiting_job()
        assert send_signal(job, "other", 1) == "kept"
        assert job.status.hget() == STATUSES.DELAYED

    def test_what_the_job_waits_for_instead_is_said(self) -> None:
        with Flow("misspelt") as flow:
            flow.add(Asking.prepare())
        run()
        for to in (flow, flow.nodes()[0].ident, "misspelt"):
            outcome = send_signal(to, "aproval", 1)
            assert (outcome, outcome.waits_for) == ("kept", "approval")
        assert send_signal(flow, "approval", 1).waits_for == ""
        assert send_signal(flow, "aproval", 1).waits_for == ""  # now it waits for none

    @each("is_for_flow", [False, True])
    def test_one_that_none_has_asked_for_can_be_taken_back(self, is_for_flow: bool) -> None:
        with Flow() as flow:
            node = flow.add(Asking.prepare())
        to = flow if is_for_flow else node.job
        send_signal(to, "approval", "wrong")
        assert sent_signals(to) == [("approval", "wrong", False)]
        assert take_back_signal(to, "approval")
        _refused(LimpydJobsException, take_back_signal, to, "approval")
        send_signal(to, "approval", "too early")
        assert asyncio.run(atake_back_signal(to, "approval"))
        assert node.job._signals.hget() is None
        run()
        assert node.job.status.hget() == STATUSES.DELAYED
        send_signal(to, "approval", "right")
        assert not take_back_signal(to, "approval")  # the job is in its queue to get it
        run()
        assert node.job.answer.value() == "right"
        assert not take_back_signal(to, "approval")
        assert asyncio.run(asent_signals(to)) == [("approval", "right", True)]
        node.job.delete()

    def test_one_that_comes_while_its_job_is_about_to_wait_is_not_missed(self) -> None:
        job = Asking.add_job()
        with job.claim("me"):
            try:
                job.run(None)
            finally:
                assert send_signal(job, "approval", "just in time") == "kept"
        assert job.status.hget() == STATUSES.WAITING
        run()
        assert job.answer.value() == "just in time"

    def test_the_first_one_counts_and_the_same_one_may_be_sent_again(self) -> None:
        job = a_waiting_job()
        assert [send_signal(job, "approval", value) for value in (1, 2, 1)] == ["received", "already", "kept"]
        run()
        assert job.answer.value() == 1
        assert send_signal(job, "approval", 2) == "ended"

    def test_each_later_run_gets_the_same_one(self) -> None:
        job = a_waiting_job()
        send_signal(job, "approval", "yes")
        with job.claim("me") as claim:
            assert job.wait_for("approval") == job.wait_for("approval") == "yes"
            claim.fail(ValueError("later"))
        job.requeue()
        run()
        assert job.answer.value() == "yes"

    def test_a_job_that_begins_anew_waits_anew(self) -> None:
        job = a_waiting_job()
        send_signal(job, "approval", "yes")
        job.claim("me").fail(ValueError("later"))
        job.requeue(restart=True)
        run()
        assert job.status.hget() == STATUSES.DELAYED
        assert send_signal(job, "approval", "no") == "received"

    def test_after_its_time_it_is_late(self) -> None:
        job = Asking.add_job(within=0.01)
        run(2)
        assert job.answer.value() == "in vain"
        other = Asking.add_job(within=0.01)
        with other.claim("me"):
            other.run(None)
        work("asking", max_loops=1, callback=lambda job, queue: (job.run(queue), queue.unknown))
        assert other.status.hget() == STATUSES.ERROR
        assert send_signal(other, "approval", "yes") == "late"

    def test_one_that_comes_after_the_deadline_and_before_its_job_runs_again_counts(self) -> None:
        job = Asking.add_job(within=0.5)
        with job.claim("me"):
            job.run(None)
        wait_until(lambda: str(utcnow()) > job.delayed_until.hget(), "the deadline has passed")
        assert send_signal(job, "approval", "just in time") == "received"
        run()
        assert job.answer.value() == "just in time"

    def test_the_deadline_is_that_of_the_first_question(self) -> None:
        job = a_waiting_job(within=1000)
        until = job.delayed_until.hget()
        job.within.hset(2000)
        job.enqueue_or_delay()
        run()
        assert (job.status.hget(), job.delayed_until.hget()) == (STATUSES.DELAYED, until)

    def test_functions_and_coroutines_wait_too(self) -> None:
        with Flow() as flow:
            jobs = [flow.add(ask.prepare("go")), flow.add(ask_later.prepare("go"))]
        run(2)
        assert asyncio.run(asend_signal(jobs[0].job, "go", 1)) == "received"
        assert send_signal(jobs[1].job.ident, "go", 2) == "received"
        run(2)
        assert flow.result(0) == {"ask": 1, "ask_later": 2}

    def test_a_job_that_waits_holds_no_slot_of_its_limits(self, redis_client: redis.Redis) -> None:
        jobs = [Seated.add_job() for _ in range(3)]
        run(3)
        assert [job.hmget("status", "_slots") for job in jobs] == [[STATUSES.DELAYED, None]] * 3
        for job in jobs:
            assert send_signal(job, "approval", 1) == "received"
        run(3, concurrency=3)
        assert [job.answer.value() for job in jobs] == [1, 1, 1]

    @each("job_class", [Dropped, Newest])
    @each("is_for_flow", [False, True])
    def test_a_job_that_waited_is_not_dropped_by_its_limit(self, job_class: type[Asking], is_for_flow: bool) -> None:
        with Flow() as flow:
            node = flow.add(job_class.prepare())
        run()
        other = job_class.add_job()
        with other.claim("me"):
            assert send_signal(flow if is_for_flow else node.job, "approval", "yes") == "received"
            if job_class is Newest:
                Newest.add_job()
            Page.add_job()
            run()  # the page, as none of the others may begin
            assert node.job.status.hget() == STATUSES.WAITING
        run()
        assert node.job.answer.value() == "yes"
        Newest.collection().delete_all()

    @each("job_class", [Dropped, Newest])
    def test_one_that_was_kept_before_a_job_began_spares_it_not(self, job_class: type[Asking]) -> None:
        other, job = job_class.add_job(), job_class.add_job()
        assert send_signal(job, "approval", "too early") == "kept"
        with other.claim("me"):
            Page.add_job()
            run()  # the page
            newest = job_class.add_job()
            Page.add_job()
            run()
            assert job.status.hget() == STATUSES.CANCELED
        newest.delete()

    @each("how", ["replace", "replace_or_follow"])
    def test_a_node_to_which_one_was_sent_before_it_began_is_replaced(self, how: str) -> None:
        with Flow() as flow:
            node = flow.add(Asking.prepare(identifier="mine"), after=flow.add(Page.prepare()))
        assert send_signal(node.job, "approval", 1) == "kept"
        assert Asking.add_job("mine", signal="other", on_duplicate=how).add_outcome == "replaced"
        assert send_signal(node.job, "other", 2) == "kept"
        run(2)
        assert node.job.answer.value() == 2

    def test_a_job_that_goes_on_by_a_signal_of_its_flow_has_begun_whatever_else_was_sent_to_it(self) -> None:
        with Flow() as flow:
            node = flow.add(Dropped.prepare())
        send_signal(node.job, "before", 1)
        run()
        assert send_signal(flow, "approval", "yes") == "received"
        assert send_signal(node.job, "after", 1) == "kept"
        assert [each.name for each in sent_signals(node.job)] == ["after", "before"]
        take_back_signal(node.job, "before")
        with Dropped.add_job().claim("me"):
            Page.add_job()
            run()  # the page
            assert node.job.status.hget() == STATUSES.WAITING
        run()
        assert node.job.answer.value() == "yes"

    @each("comes_first", [False, True])
    def test_one_of_a_flow_counts_for_a_job_that_got_it_whatever_the_job_is_sent(self, comes_first: bool) -> None:
        with Flow() as flow:
            node = flow.add(Asking.prepare())
        job = node.job
        if not comes_first:
            run()
        send_signal(flow, "approval", "of the flow")
        if comes_first:
            claim = job.claim("me")
            assert job.wait_for("approval") == "of the flow"
            claim.release()
        assert [send_signal(job, "approval", value) for value in ("its own", "of the flow")] == ["already", "kept"]
        assert sent_signals(job) == []
        assert not take_back_signal(job, "approval")
        run()
        assert job.answer.value() == "of the flow"

    def test_a_job_whose_flow_is_gone_can_be_sent_the_signal_that_it_got_of_it(self, redis_client: redis.Redis) -> None:
        with Flow() as flow:
            node = flow.add(Asking.prepare())
        run()
        send_signal(flow, "approval", "of the flow")
        with node.job.claim("me") as claim:
            assert node.job.wait_for("approval") == "of the flow"
            claim.fail(ValueError("it failed"))
        redis_client.delete(*redis_client.scan_iter(f"limpyd-jobs:flow:{flow.id}*"))  # as its time is over
        node.job.requeue()
        run()
        assert node.job.status.hget() == STATUSES.DELAYED
        assert send_signal(node.job, "approval", "another one") == "received"
        run()
        assert node.job.answer.value() == "another one"

    def test_a_job_that_has_run_is_not_dropped_by_its_limit_if_it_is_tried_again(self) -> None:
        job = Dropped.add_job()
        job.claim("me").fail(ValueError("no"))
        job.requeue()
        with Dropped.add_job().claim("me") as claim:
            Page.add_job()
            run()  # the page
            assert job.status.hget() == STATUSES.WAITING
            claim.cancel()
        run()
        assert job.status.hget() == STATUSES.DELAYED  # for its signal

    @each("how", ["replace", "replace_or_follow"])
    def test_an_edit_of_a_job_that_waits_is_refused_as_it_has_begun(self, how: str) -> None:
        job = a_waiting_job(identifier="mine")
        assert Asking.add_job("mine", signal="other", on_duplicate=how).add_outcome == "running"
        assert send_signal(job, "approval", 1) == "received"
        run()
        assert job.status.hget() == STATUSES.SUCCESS

    def test_a_job_that_is_canceled_while_it_is_about_to_wait_is_canceled(self) -> None:
        job = Asking.add_job()
        work("asking", callback=lambda job, queue: (job.cancel(), job.run(queue)))
        assert (job.status.hget(), job.queued.hget()) == (STATUSES.CANCELED, None)

    def test_two_waits_at_once_are_an_error_and_one_after_the_other_are_not(self) -> None:
        job = ask_both.add("a", "b", at_once=True).job
        run()
        assert job.status.hget() == STATUSES.ERROR
        assert "'b', as it waits for the signal 'a'" in Error.collection_for_job(job).instances()[0].message.hget()
        other = ask_both.add("a", "b", at_once=False).job
        for name in ("a", "b"):
            run()
            assert send_signal(other, name, name) == "received"
        run()
        assert other.status.hget() == STATUSES.SUCCESS

    def test_a_job_waits_in_a_task_group_too(self) -> None:
        job = ask_in_a_group.add("go").job
        run()
        assert job.hmget("status", "tries") == [STATUSES.DELAYED, None]
        assert send_signal(job, "go", 1) == "received"
        with job.claim("me") as claim:
            try:
                job.wait_for("other")
            except JobInterrupted as interrupt:
                raise BaseExceptionGroup("tasks", [interrupt]) from None
        assert claim.status == STATUSES.DELAYED
        assert send_signal(job, "other", 1) == "received"
        run(concurrency=2)
        assert job.status.hget() == STATUSES.SUCCESS

    @each("error, status", [("cancel", STATUSES.CANCELED), ("requeue", STATUSES.DELAYED), ("other", STATUSES.ERROR)])
    def test_what_a_job_asks_for_in_a_task_group_counts(self, error: str, status: str) -> None:
        job = give_up_in_a_group.add(error).job
        run()
        assert job.status.hget() == status

    @each("written", ["", "x", "x\nsignal approval\ny", f"{END}\nsignal other\n5"])
    def test_a_job_waits_whatever_is_written_over_what_it_waits_for(self, written: str) -> None:
        job = Asking.add_job()
        with job.claim("me"):
            try:
                job.run(None)
            finally:
                job.waits.hset(written)
        assert job.hmget("status", "delayed_until") == [STATUSES.DELAYED, END]
        assert send_signal(job, "approval", "yes") == "received"

    def test_one_without_a_name_a_time_or_a_value_is_refused(self) -> None:
        job = Asking.add_job()
        with job.claim("me") as claim:
            _refused(TypeError, job.wait_for, 1)
            _refused(ValueError, job.wait_for, "")
            _refused(ValueError, job.wait_for, "a\nb")
            _refused(ValueError, job.wait_for, "a", 0)
            claim.release()
        _refused(TypeError, send_signal, job, "a", object())
        _refused(TypeError, send_signal, job, "a", [float("inf")])
        _refused(ValueError, send_signal, job, "a", "x" * 70_000)
        _refused(TypeError, send_signal, 12, "a")
        _refused(LimpydJobsException, job.wait_for, "a")  # it does not run
        _refused(JobGone, send_signal, "flow_kinds.Asking:999", "a")
        with pytest.raises(
            LimpydJobsException, match=r"^There is no flow 'a b', or no longer; for a job, give its ident$"
        ):
            send_signal("a b", "a")

    def test_no_job_keeps_any_number_of_them(self) -> None:
        job = Asking.add_job()
        for number in range(4):
            send_signal(job, f"{number}", "x" * 60_000)
        _refused(LimpydJobsException, send_signal, job, "more", "x" * 60_000)


def _refused(error: type[BaseException], call: Callable[..., object], *args: object) -> None:
    with pytest.raises(error):
        call(*args)


class TestVerbs:
    """What people do to a job that waits for a signal."""

    def test_each_does_what_the_manual_says(self) -> None:
        later = utcnow() + timedelta(days=1)

        def waits(job: Asking) -> None:
            assert job.hmget("status", "delayed_until") == [STATUSES.DELAYED, END]
            assert send_signal(job, "approval", "yes") == "received"

        def asks_again(job: Asking) -> None:
            assert job.status.hget() == STATUSES.WAITING
            run()
            waits(job)

        def is_delayed(job: Asking) -> None:
            assert send_signal(job, "approval", "yes") == "kept"
            assert job.delayed_until.hget() == str(later)

        def is_canceled(job: Asking) -> None:
            assert job.status.hget() == STATUSES.CANCELED
            assert send_signal(job, "approval", "yes") == "ended"

        def is_gone(job: Asking) -> None:
            _refused(JobGone, send_signal, "flow_kinds.Asking:1", "approval")

        verbs: list[tuple[Callable[[Asking], object], Callable[[Asking], None]]] = [
            (lambda job: job.cancel(), is_canceled),
            (lambda job: Asking.collection().cancel_all(), is_canceled),
            (lambda job: job.delete(), is_gone),
            (lambda job: Asking.collection().delete_all(), is_gone),
            (lambda job: Asking.collection().promote_all(), waits),
            (lambda job: Asking.collection().move_all("other"), waits),
            (lambda job: edit_job(job.ident, priority=5), waits),
            (lambda job: Asking.add_job(job.identifier.hget(), priority=5), waits),
            (lambda job: Asking.add_job(job.identifier.hget(), on_duplicate="replace"), waits),
            (lambda job: _refused(NotClaimable, job.claim, "me"), waits),
            (lambda job: _refused(LimpydJobsException, job.requeue), waits),
            (lambda job: job.enqueue_or_delay(), asks_again),
            (lambda job: job.enqueue_or_delay(delayed_until=later), is_delayed),
            (lambda job: Asking.collection().delay_all(delayed_until=later), is_delayed),
        ]
        for act, check in verbs:
            job = a_waiting_job()
            act(job)
            check(job)
            Asking.collection().delete_all()


class TestFlows:
    def test_a_node_that_waits_has_not_ended(self) -> None:
        flow = chain(Asking.prepare(), Page.prepare(number=1))
        run()
        assert [node.state for node in flow.nodes()] == ["waiting for a signal", "waiting for others"]
        assert flow.nodes()[0].wait.signal == "approval"
        send_signal(flow.nodes()[0].ident, "approval", "yes")
        run(2)
        assert flow.result(0) == 1

    def test_a_signal_to_a_flow_is_for_all_that_wait_for_it_and_for_those_that_ask_later(self) -> None:
        with Flow("signed:7") as flow:
            nodes = [flow.add(Asking.prepare()) for _ in range(3)]
            nodes.append(flow.add(Asking.prepare(signal="other")))
            last = flow.add(Asking.prepare(), after=nodes[0])
        run(4)
        assert send_signal("signed:7", "approval", "yes") == "received"
        assert [node.job.status.hget() for node in nodes] == [*[STATUSES.WAITING] * 3, STATUSES.DELAYED]
        assert send_signal(flow, "approval", "no") == "already"
        run(4)
        assert last.job.answer.value() == "yes"
        assert send_signal(flow.id, "other", "yes") == "received"
        run()
        assert send_signal("signed:7", "more") == "ended"

    def test_cancel_and_requeue_of_a_flow(self) -> None:
        flow = chain(Asking.prepare(), Page.prepare())
        run()
        flow.cancel()
        assert [node.state for node in flow.nodes()] == ["canceled", "canceled"]
        flow.requeue()
        run()
        assert [node.state for node in flow.nodes()] == ["waiting for a signal", "waiting for others"]
        assert send_signal(flow, "approval", "yes") == "received"


def test_it_is_explained(redis_client: redis.Redis) -> None:
    job = a_waiting_job(within=1000)
    (reason,) = job.explain().reasons[:1]
    assert reason.code == "waits_for_signal"
    assert re.match(
        r"It waits for the signal 'approval', since 20\d\d-\S+ \S+ \(UTC\)\. It goes on without it at ", reason.text
    )
    assert reason.command == f"limpyd-jobs flows signal {job.ident} approval VALUE"


def test_it_can_be_sent_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    from limpyd_jobs.commands.flows import Flows

    def signal(*words: str) -> int:
        return flows("signal", *words)

    def flows(*words: str) -> int:
        try:
            return Flows("limpyd-jobs flows", [*words]).execute()
        except SystemExit as error:
            return int(str(error))

    job = a_waiting_job()
    assert signal(job.ident, "approval", '{"by": "ann"}') == 0
    assert signal(job.ident, "approval", "other") == 1
    assert signal("flow_kinds.Asking:999", "approval") == 2
    assert signal("flow_kinds.Nothing:1", "approval") == 2
    assert signal(job.ident) == 2
    assert "what waited for it goes on" in capsys.readouterr().out
    assert [signal(job.ident, "other"), flows("signals", job.ident)] == [0, 0]
    assert re.search(r'approval +asked for +{"by": "ann"}\nother +kept +null\n', capsys.readouterr().out)
    assert [flows("take-back", job.ident, "other"), flows("take-back", job.ident, "other")] == [0, 2]
    run()
    assert job.answer.value() == {"by": "ann"}
    waiting = a_waiting_job()
    assert signal(waiting.ident, "aproval") == 0
    assert "kept, but what waits does so for 'approval'" in capsys.readouterr().out


def test_what_other_programs_write_does_no_harm(redis_client: redis.Redis) -> None:
    job = Asking.add_job()
    for text in ("[1,2]", '{"approval":5}', "garbage", "[" * 5000, ""):
        job.signals.hset(text)
        job.waits.hset("x\nsignal approval\ny")
        job.enqueue_or_delay()
        run()
        assert job.hmget("status", "delayed_until") == [STATUSES.DELAYED, END]
    assert send_signal(job, "approval", "yes") == "received"
    with Flow("hostile") as flow:
        node = flow.add(Asking.prepare())
    for part in ("signals", "waiters"):
        redis_client.set(f"limpyd-jobs:flow:{flow.id}:{part}", "text")
    run(2)
    assert node.job.status.hget() == STATUSES.DELAYED
    _refused(LimpydJobsException, send_signal, "hostile", "approval", "yes")
    assert send_signal(node.job, "approval", "yes") == "received"
    redis_client.delete(*(f"limpyd-jobs:flow:{flow.id}:{part}" for part in ("signals", "waiters")))


def test_in_tests_a_job_runs_until_it_waits_and_then_to_its_end() -> None:
    outcome = run_job(Asking)
    assert (outcome.status, outcome.job.claim_owner()) == ("DELAYED", None)
    assert drain("asking", with_delayed=True).total == 0
    send_signal(outcome.job, "approval", 1)
    assert drain("asking").total == 1
    assert outcome.job.answer.value() == 1


def test_a_signal_is_sent_to_what_adding_a_job_of_a_function_returned() -> None:
    added = ask.add("answer")
    run()
    assert send_signal(added, "answer", 42) == "received"
    run()
    assert added.job.status.hget() == STATUSES.SUCCESS
