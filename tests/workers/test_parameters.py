"""What a worker is told: by arguments, by attributes, and by those that are something else."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any

import pytest
from cases import each
from running import messages, work

from limpyd_jobs import ConfigurationException, Job, Queue, Retry, Worker
from limpyd_jobs.dates import utcnow

NUMBERS = {
    "max_loops": ("5", 5),
    "timeout": ("0.5", 0.5),
    "fetch_priorities_delay": ("5", 5),
    "fetch_delayed_delay": ("5", 5),
    "requeue_times": ("2", 2),
    "requeue_priority_delta": ("-2", -2),
    "requeue_delay_delta": ("1.5", 1.5),
}
NEW_NUMBERS = (
    "lease",
    "max_rescues",
    "grace_period",
    "job_timeout",
    "kill_after",
    "keep_success",
    "keep_errors",
    "processes",
    "prefetch",
    "wait_for_redis",
)


def make(**options: Any) -> Worker:
    return Worker(**{"queues": "a", "terminate_gracefuly": False, **options})


@each(("name", "text", "number"), [(name, *values) for name, values in NUMBERS.items()])
def test_a_number_may_be_given_as_text(name: str, text: str, number: float) -> None:
    for worker in (make(**{name: text}), type("OwnWorker", (Worker,), {name: text})("a", terminate_gracefuly=False)):
        assert getattr(worker, name) == number
        assert type(getattr(worker, name)) is type(number)


@each("name", NEW_NUMBERS)
def test_so_may_those_that_version_2_does_not_have(name: str) -> None:
    assert getattr(make(**{name: "5"})._settings, name) == 5


@each("name", [*NUMBERS, *NEW_NUMBERS, "max_duration"])
def test_another_text_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationException, match=name):
        make(**{name: "soon"})


class TestPrefetch:
    def test_may_be_auto(self) -> None:
        assert make(prefetch="auto", prefetch_time="0.5")._settings.prefetch_time == 0.5
        assert type("OwnWorker", (Worker,), {"prefetch": "auto"})("a")._settings.prefetch == "auto"

    @each("value", ["atuo", "Auto", "", 0, -1, 1.5, 1001, True, float("nan"), None])
    def test_is_refused_if_it_is_neither_auto_nor_a_number(self, value: Any) -> None:
        with pytest.raises(ConfigurationException, match=r"^prefetch must be 'auto' or a number from 1 to 1000, not "):
            make(prefetch=value)

    @each("value", ["soon", 0, -1, True, float("nan"), float("inf"), None])
    def test_the_time_is_refused_if_it_is_no_number_of_seconds(self, value: Any) -> None:
        with pytest.raises(ConfigurationException, match=r"^prefetch_time must be a number, more than 0, not "):
            make(prefetch="auto", prefetch_time=value)

    def test_the_time_needs_auto(self) -> None:
        with pytest.raises(ConfigurationException, match=r"prefetch_time needs prefetch='auto'.*prefetch=100"):
            make(prefetch=100, prefetch_time=0.1)

    def test_the_time_of_a_class_does_not(self) -> None:
        own = type("OwnWorker", (Worker,), {"prefetch": "auto", "prefetch_time": 0.1})
        assert own("a", prefetch=1)._settings.prefetch == 1


@each("given", [90, 90.0, "90", timedelta(seconds=90)])
def test_the_longest_duration_is_a_timedelta(given: Any) -> None:
    assert make(max_duration=given).max_duration == timedelta(minutes=1, seconds=30)


@each("given", [1e12, 1e300, "1e12", timedelta.max])
def test_a_duration_beyond_all_dates_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationException, match="max_duration"):
        make(max_duration=given)


@pytest.mark.usefixtures("redis_client")
def test_a_lease_may_be_longer_than_timers_hold() -> None:
    Job.add_job("1", "a")
    assert work("a", lease=1e300).num_loops == 1


@each("given", [None, 0])
def test_no_longest_duration_is_what_was_given(given: Any) -> None:
    assert make(max_duration=given).max_duration is given


@pytest.mark.usefixtures("redis_client")
def test_values_that_version_2_takes_for_no_limit_or_nothing_are_taken() -> None:
    Job.add_job("1", "a", priority=7)
    nothing = {"requeue_priority_delta": None, "requeue_delay_delta": None, "timeout": None, "callback": 0}
    worker = work("a", max_loops=float("inf"), requeue_times=1, burst=True, **nothing)
    assert worker.num_loops == 2
    assert Job.get(1).hmget("tries", "priority") == ["2", "7"]
    work("a", max_loops=float("inf"), prefetch=2, burst=True)
    assert make(requeue_times=None).requeue_times is None


def test_an_argument_with_nearly_the_name_of_a_parameter_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="Worker has no parameter max_loop, so it is ignored: is max_loops meant"):
        make(max_loop=3)


def test_an_argument_that_nothing_reads_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"Worker has no parameter tenant, so it is ignored$"):
        make(tenant="one")


def test_other_arguments_may_be_those_of_a_subclass(recwarn: pytest.WarningsRecorder) -> None:
    class OfTenant(Worker):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.tenant = kwargs["tenant"]

    assert OfTenant("a", tenant="one", terminate_gracefuly=False).tenant == "one"
    assert not recwarn.list


class TestMustStop:
    def test_a_date_that_the_application_sets_ends_the_worker(self) -> None:
        worker = make()
        assert worker.must_stop() is False
        worker.wanted_end_date = utcnow() + timedelta(hours=1)
        assert worker.must_stop() is False
        worker.wanted_end_date = utcnow() - timedelta(seconds=1)
        assert worker.must_stop() is True

    def test_a_signal_counts_only_while_the_worker_is_to_end_gracefully(self) -> None:
        worker = make()
        worker.end_signal_caught, worker.terminate_gracefuly = True, True
        assert worker.must_stop() is True
        worker.terminate_gracefuly = False
        assert worker.must_stop() is False


@pytest.mark.usefixtures("redis_client")
def test_hooks_can_read_when_the_last_rounds_were() -> None:
    seen: dict[str, tuple[datetime | None, datetime | None]] = {}

    class Reader(Worker):
        def update_keys(self) -> None:
            self.note("before")
            super().update_keys()
            self.note("after")

        def run_started(self) -> None:
            self.note("started")

        def execute(self, job: Job, queue: Queue) -> None:
            self.note("run")

        def note(self, when: str) -> None:
            seen.setdefault(when, (self.last_update_keys, self.last_requeue_delayed))

    began = utcnow()
    Job.add_job("1", "a")
    Reader("a", max_loops=1, terminate_gracefuly=False).run()
    assert seen["before"] == (None, None)
    assert seen["after"][1] is None
    assert all(began <= date <= utcnow() for date in (seen["after"][0], *seen["started"], *seen["run"]) if date)
    assert None not in (seen["after"][0], *seen["started"], *seen["run"])


@each("model", [Job, None, "Queue", 3])
def test_a_model_is_checked_under_the_name_of_version_2(model: Any) -> None:
    Worker._assert_correct_model(Queue, Queue, "queue")
    with pytest.raises(ConfigurationException, match="The queue model must be a subclass of Queue"):
        Worker._assert_correct_model(model, Queue, "queue")
    with pytest.raises(ConfigurationException, match="The error model must be a subclass of Error"):
        make(error_model=model)


class TestNamesThatAreSomethingElse:
    def test_an_attribute_that_cannot_be_the_parameter_is_left_alone_and_told_of(
        self, redis_client: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Own(Worker):
            processes = ["one", "two"]

            def lease(self) -> str:  # type: ignore[override]
                return "mine"

            def __init__(self, *args: Any, **kwargs: Any) -> None:
                self.prefetch = []  # type: ignore[assignment]
                super().__init__(*args, **kwargs)

        with caplog.at_level(logging.WARNING, "limpyd-jobs"):
            worker = work("a", Own, max_duration=0.1)
        assert (worker.processes, worker.lease(), worker.prefetch) == (["one", "two"], "mine", [])
        told = [text for text in messages(caplog) if "something else" in text]
        assert [text.split()[0] for text in told] == ["lease", "processes", "prefetch"]
        assert (worker._settings.processes, worker._settings.lease, worker._settings.prefetch) == (1, 60, 1)

    @each(
        ("name", "value"),
        [
            ("prefetch", "mine"),
            ("prefetch", 1.5),
            ("queue_strategy", "fifo"),
            ("retry_policy", "mine"),
            ("job_modules", "mine"),
            ("job_modules", ["nowhere.jobs"]),
            ("observers", "mine"),
            ("observers", [print]),
            ("log_format", "%(message)s"),
            ("processes", 1.5),
            ("keep_success", 1.5),
            ("keep_errors", 1.5),
        ],
    )
    def test_so_is_one_of_the_right_type_with_a_value_that_it_cannot_have(self, name: str, value: Any) -> None:
        worker = type("OwnWorker", (Worker,), {name: value})("a", terminate_gracefuly=False)
        assert (getattr(worker, name), worker._names_of_others) == (value, [name])
        assert getattr(worker._settings, name) == getattr(Worker, name)
        with pytest.raises(ConfigurationException):
            make(**{name: value})

    @each(("name", "value"), [("retry_policy", "times=many"), ("job_modules", "json.nowhere")])
    def test_one_that_is_nearly_right_is_refused(self, name: str, value: str) -> None:
        with pytest.raises(ConfigurationException, match=name):
            type("OwnWorker", (Worker,), {name: value})("a")

    def test_an_argument_is_refused(self) -> None:
        names = "processes", "lease", "prefetch", "job_modules", "retry_policy", "keep_errors", "queue_strategy"
        for name in (*names, "observers", "log_format"):
            with pytest.raises(ConfigurationException):
                make(**{name: [object()]})

    def test_an_attribute_that_could_be_the_parameter_is_one(self) -> None:
        class Own(Worker):
            lease = 30
            retry_policy = "times=3"

            @property
            def max_rescues(self) -> int:  # type: ignore[override]
                return 7

        worker = Own("a", terminate_gracefuly=False)
        assert (worker._settings.lease, worker._settings.max_rescues) == (30, 7)
        assert worker._settings.retry_policy == Retry(3)

    def test_an_attribute_of_the_right_kind_with_a_wrong_value_is_refused(self) -> None:
        with pytest.raises(ConfigurationException, match="lease"):
            type("OwnWorker", (Worker,), {"lease": -1})("a")

    def test_graceful_ending_may_be_set_before_the_constructor(self) -> None:
        class Own(Worker):
            def __init__(self, *args: Any) -> None:
                self.terminate_gracefuly = False
                super().__init__(*args)

        worker = Own("a")
        assert (worker.terminate_gracefuly, worker.terminate_gracefully) == (False, False)

    def test_the_other_spelling_of_graceful_may_be_a_method(self) -> None:
        class Own(Worker):
            terminate_gracefuly = False

            def terminate_gracefully(self) -> str:  # type: ignore[override]
                return "mine"

        worker = Own("a")
        assert (worker.terminate_gracefuly, worker.terminate_gracefully()) == (False, "mine")
