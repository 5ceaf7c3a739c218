"""Retry policies: what they decide, what they refuse, and their text; all without Redis."""

from __future__ import annotations

import dataclasses
import re
from datetime import datetime, timedelta

import pytest
from cases import each

from limpyd_jobs import Cancel, Exponential, LimpydJobsException, Requeue, Retry
from limpyd_jobs.exceptions import JobTimeout, WorkerLost
from limpyd_jobs.retrying import Again, GiveUp, as_policy, decide, read_policy, stored_policy


class Temporary(Exception):
    """An exception with a path."""


class VeryTemporary(Temporary):
    pass


TEMPORARY = f"{__name__}.Temporary"


async def asynchronous(error: BaseException, number: int) -> float:
    return 5


def delays_of(policy: Retry, failures: int, random: float = 0.5) -> list[float | None]:
    """Return the delay after each failure, None for giving up."""
    decisions = [decide(policy, ValueError(), tries, 0, lambda: random) for tries in range(1, failures + 1)]
    return [decision.delay if isinstance(decision, Again) else None for decision in decisions]


class TestTheDelay:
    def test_of_a_list_is_that_of_the_failure_and_then_it_is_dead_lettered(self):
        assert delays_of(Retry(delay=[1, 10, 60]), 4) == [1, 10, 60, None]

    def test_of_a_list_that_is_shorter_than_the_times_is_the_last_one_again(self):
        assert delays_of(Retry(times=4, delay=[1, timedelta(minutes=1)]), 5) == [1, 60, 60, 60, None]

    def test_of_a_list_that_is_longer_than_the_times_is_not_all_used(self):
        assert delays_of(Retry(times=1, delay=[1, 10]), 2) == [1, None]

    def test_of_a_number_is_always_the_same(self):
        assert delays_of(Retry(times=3, delay=5), 4) == [5, 5, 5, None]

    def test_doubles_up_to_the_cap_without_chance(self):
        policy = Retry(times=6, delay=Exponential(base=2, cap=20))
        assert delays_of(policy, 7, random=1) == [2, 4, 8, 16, 20, 20, None]

    @each(("random", "expected"), [(0, [0, 0, 0]), (0.25, [0.5, 1, 2]), (0.5, [1, 2, 4])])
    def test_is_a_random_part_of_all_of_it(self, random: float, expected: list[float]):
        assert delays_of(Retry(times=3, delay=Exponential(base=2)), 3, random) == expected

    def test_is_between_nothing_and_the_longest_whatever_chance_says(self):
        policy = Retry(times=10, delay=Exponential(base=1, cap=100))
        for tries in range(1, 11):
            decision = decide(policy, ValueError(), tries, 0)
            assert isinstance(decision, Again)
            assert 0 <= decision.delay <= min(100, 2 ** (tries - 1))

    def test_stays_the_cap_after_any_number_of_failures(self):
        policy = Retry(max_age=10**9, delay=Exponential(base=1, cap=100))
        assert decide(policy, ValueError(), 10**8, 0, lambda: 1) == Again(100)

    def test_is_no_less_than_the_first_of_a_job_whose_tries_a_process_lost(self):
        assert decide(Retry(delay=[1, 10]), ValueError(), -3, 0) == Again(1)


class TestTheDelayOfAFunction:
    def test_is_what_it_returns_for_the_exception_and_the_number_of_tries(self):
        policy = Retry(times=3, delay=lambda error, number: timedelta(seconds=len(str(error)) * number))
        decisions = [decide(policy, ValueError("four"), tries, 0) for tries in range(1, 5)]
        assert decisions == [Again(4), Again(8), Again(12), GiveUp()]

    def test_that_returns_none_is_the_one_by_default(self):
        assert delays_of(Retry(times=3, delay=lambda error, number: None), 4, random=1) == [1, 2, 4, None]

    def test_is_limited_by_the_age(self):
        assert decide(Retry(max_age=60, delay=lambda *_: 50), ValueError(), 1, 11) == GiveUp()

    @each("wrong", [-1, "5", True, float("nan")])
    def test_that_returns_none_of_these_says_so(self, wrong: object):
        with pytest.raises((TypeError, ValueError), match="what the delay returns"):
            decide(Retry(times=1, delay=lambda *_: wrong), ValueError(), 1, 0)

    def test_cannot_be_stored_with_a_job(self):
        with pytest.raises(TypeError, match=r"test_retrying\..*lambda.*cannot be stored.*@job\(retry="):
            stored_policy(Retry(times=1, delay=lambda error, number: 5))


class TestTheException:
    @each("exception", [OSError(), ConnectionResetError(), VeryTemporary(), JobTimeout(), SystemExit()])
    def test_may_be_any_unless_said_otherwise(self, exception: BaseException):
        assert Retry(times=1).is_for(exception)

    @each("only_on", [OSError, [OSError], "OSError", ("IOError", KeyError)])
    def test_must_be_one_of_those_to_retry_only_on(self, only_on: object):
        policy = Retry(times=1, only_on=only_on)
        assert policy.is_for(ConnectionResetError())
        assert not policy.is_for(ValueError())

    @each("never_on", [Temporary, [Temporary], TEMPORARY])
    def test_must_be_none_of_those_never_to_retry_on(self, never_on: object):
        policy = Retry(times=1, never_on=never_on)
        assert policy.is_for(ValueError())
        assert not policy.is_for(VeryTemporary())

    def test_that_is_among_both_is_never_retried_on(self):
        policy = Retry(times=1, only_on=Temporary, never_on=VeryTemporary)
        assert policy.is_for(Temporary())
        assert not policy.is_for(VeryTemporary())

    def test_of_the_same_name_in_another_module_is_another_one(self):
        other = type("Temporary", (Exception,), {"__module__": "elsewhere"})
        assert not Retry(times=1, only_on=Temporary).is_for(other())

    def test_decides(self):
        policy = Retry(times=1, delay=5, never_on=ValueError)
        assert decide(policy, KeyError(), 1, 0) == Again(5)
        assert decide(policy, ValueError(), 1, 0) == GiveUp()

    def test_is_never_that_workers_died(self):
        assert decide(Retry(times=9, only_on=WorkerLost), WorkerLost(), 1, 0) == GiveUp()


class TestTheAge:
    @each(("age", "decision"), [(0, Again(10)), (50, Again(10)), (50.001, GiveUp()), (10**9, GiveUp())])
    def test_is_the_one_the_job_will_have_at_its_next_try(self, age: float, decision: object):
        assert decide(Retry(times=9, delay=10, max_age=timedelta(minutes=1)), ValueError(), 1, age) == decision

    def test_alone_limits_the_tries(self):
        policy = Retry(max_age=60, delay=1)
        assert decide(policy, ValueError(), 10**6, 59) == Again(1)
        assert decide(policy, ValueError(), 1, 60) == GiveUp()


def test_a_policy_of_no_times_gives_up_at_once():
    assert decide(Retry(times=0), ValueError(), 1, 0) == GiveUp()


def test_the_priority_is_lowered_as_the_policy_says_or_else_the_worker():
    assert decide(Retry(times=1, delay=1, priority_delta=-2), ValueError(), 1, 0) == Again(1, -2)
    assert decide(Retry(times=1, delay=1), ValueError(), 1, 0) == Again(1, None)


def test_a_policy_is_a_value():
    policy = Retry(times=3, only_on=[KeyError], max_age=timedelta(days=1))
    assert policy == Retry(times=3, only_on="KeyError", max_age=86400)
    assert len({policy, Retry(times=3, only_on=KeyError, max_age=86400.0)}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.times = 4  # type: ignore[misc]


POLICIES = [
    (Retry(times=5), "base=1,cap=600,times=5"),
    (Retry(times=5, delay=Exponential(0.5, 3600)), "base=0.5,cap=3600,times=5"),
    (Retry(delay=[1, 10, 60.25]), "delays=1:10:60.25,times=3"),
    (Retry(delay=[7]), "delays=7,times=1"),
    (Retry(delay=7, max_age=60), "delay=7,max_age=60"),
    (Retry(delay=0, times=2), "delay=0,times=2"),
    (Retry(times=1, only_on=[OSError, Temporary]), f"base=1,cap=600,times=1,only_on=OSError:{TEMPORARY}"),
    (
        Retry(times=1, never_on=KeyError, priority_delta=-3),
        "base=1,cap=600,times=1,never_on=KeyError,priority_delta=-3",
    ),
    (Retry(times=1, delay=10**11, priority_delta=2**63 - 1), f"delay=100000000000,times=1,priority_delta={2**63 - 1}"),
    (Retry(times=1, delay=1e-6), "delay=0.000001,times=1"),
]


@each(("policy", "text"), POLICIES)
def test_a_policy_is_the_same_after_being_written_and_read(policy: Retry, text: str):
    assert str(policy) == text
    assert Retry.parse(text) == policy
    assert read_policy(text) == policy


@each(
    ("text", "policy"),
    [
        ("delays=1:10:60", Retry(delay=[1, 10, 60])),
        ("delays=1s:10m:2h:1d", Retry(delay=[1, 600, 7200, 86400])),
        ("times=5,cap=10m", Retry(times=5, delay=Exponential(1, 600))),
        ("times=5, base=2", Retry(times=5, delay=Exponential(2))),
        ("max_age=1.5d", Retry(max_age=129600)),
        ("times=1,never_on=ValueError:KeyError", Retry(times=1, never_on=(ValueError, KeyError))),
    ],
)
def test_a_text_may_be_written_in_several_ways(text: str, policy: Retry):
    assert Retry.parse(text) == policy


WRONG_TEXTS = {
    "": "is not one of times=",
    "5": "'5'",
    "times": "'times'",
    "tries=5": "'tries=5'",
    "times=": "times=",
    "times=five": "times=five",
    "times=1.5": "times=1.5",
    "times=-1": "0 to 1000000000",
    "times=5,times=6": "twice",
    "times=5,": "''",
    "base=1": "give up",
    "delay=5": "give up",
    "never_on=ValueError": "give up",
    "times=5,base=-1": "base=-1",
    "times=5,base=nan": "base=nan",
    "times=5,base=1w": "base=1w",
    "times=5,base=700": "cap",
    "times=5,base=20,cap=10": "cap",
    "delays=": "delays=",
    "delays=1,10,60": "'10'",
    "delays=1::2": "is not a duration",
    "delays=1:inf": "is not a duration",
    "delays=1:2,base=1": "either",
    "delay=1,delays=1:2": "either",
    "times=1,delay=999999999999": "100000000000",
    "times=1,only_on=": "''",
    "times=1,only_on=Nonsense": "'Nonsense'",
    "times=1,only_on=int": "'int'",
    "times=1,never_on=a..b": "'a..b'",
    "times=1,never_on=a b.c": "'a b.c'",
    "times=1,max_age=soon": "max_age=soon",
    "times=1,priority_delta=low": "priority_delta=low",
    "times=1,priority_delta=9223372036854775808": "priority_delta",
}


@each(("text", "named"), WRONG_TEXTS.items())
def test_a_wrong_text_is_refused_with_what_is_wrong(text: str, named: str):
    with pytest.raises(ValueError, match=re.escape(named)):
        Retry.parse(text)
    assert read_policy(text) is None


@each(
    "wrong",
    [
        {},
        {"times": -1},
        {"times": 1.0},
        {"times": True},
        {"times": "5"},
        {"times": 1, "delay": -1},
        {"times": 1, "delay": None},
        {"times": 1, "delay": lambda error: 5},
        {"times": 1, "delay": Exponential},
        {"times": 1, "delay": asynchronous},
        {"delay": lambda error, number: 5},
        {"times": 1, "delay": "5"},
        {"times": 1, "delay": []},
        {"times": 1, "delay": [1, "2"]},
        {"times": 1, "delay": float("nan")},
        {"times": 1, "delay": float("inf")},
        {"times": 1, "only_on": []},
        {"times": 1, "only_on": int},
        {"times": 1, "only_on": ValueError()},
        {"times": 1, "never_on": [None]},
        {"times": 1, "never_on": 5},
        {"times": 1, "max_age": -1},
        {"times": 1, "max_age": "1d"},
        {"times": 1, "priority_delta": 0.5},
        {"times": 1, "never_on": [f"some.{'long' * 100}.Error{number}" for number in range(100)]},
    ],
)
def test_a_wrong_argument_is_refused(wrong: dict[str, object]):
    with pytest.raises((TypeError, ValueError)):
        Retry(**wrong)


@each("wrong", [{"base": -1}, {"base": "1"}, {"cap": None}, {"base": 2, "cap": 1}, {"base": True}])
def test_a_wrong_argument_of_the_delays_is_refused(wrong: dict[str, object]):
    with pytest.raises((TypeError, ValueError)):
        Exponential(**wrong)  # type: ignore[arg-type]


def test_a_policy_may_be_given_as_its_text():
    policy = Retry(delay=[1, 2])
    assert as_policy("delays=1:2") == as_policy(policy) == policy
    assert as_policy(None) is None
    with pytest.raises(TypeError, match="Retry"):
        as_policy(5)


class TestRequeue:
    @each(
        "wrong",
        [
            {"delayed_for": "5"},
            {"delayed_for": float("nan")},
            {"delayed_until": "tomorrow"},
            {"delayed_for": 5, "delayed_until": datetime(2099, 1, 1)},
            {"priority": 1.5},
            {"priority": "high"},
            {"priority": 2**63},
            {"count": 1},
        ],
    )
    def test_refuses_a_wrong_argument(self, wrong: dict[str, object]):
        with pytest.raises((TypeError, ValueError)):
            Requeue(**wrong)  # type: ignore[arg-type]

    def test_and_cancel_are_no_errors_but_exceptions_of_this_library(self):
        assert issubclass(Requeue, LimpydJobsException)
        assert issubclass(Cancel, LimpydJobsException)
