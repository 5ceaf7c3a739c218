"""Under a flood in one queue, the others keep their share. Shares are counted, not timed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from running import work, worker_of

from limpyd_jobs import Job, Queue
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.workers.claiming.waiter import QueueSelector, Share

pytestmark = pytest.mark.usefixtures("redis_client")


class Letter(Job):
    namespace = "fairness"


class Names:
    """A callback that keeps the names of the queues of the jobs it is called with."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, job: Job, queue: Queue) -> None:
        self.names.append(str(queue.name.hget()))

    @property
    def shares(self) -> dict[str, int]:
        return dict(Counter(self.names))


def flood(name: str, number: int = 40, priority: int = 0) -> None:
    Letter.add_jobs((f"{name} {priority} {each}" for each in range(number)), queue_name=name, priority=priority)


def names_of(queues: Any, number: int, **options: Any) -> Names:
    names = Names()
    work(queues, callback=names, max_loops=number, **options)
    return names


class TestPriority:
    def test_is_the_default_and_serves_the_first_name_first(self) -> None:
        flood("b", 30)
        flood("a", 5)
        assert names_of("a,b", 20).shares == {"a": 5, "b": 15}


class TestRotate:
    def test_each_name_has_its_share(self) -> None:
        for name in "abc":
            flood(name)
        assert names_of("a,b,c", 30, queue_strategy="round_robin").shares == {"a": 10, "b": 10, "c": 10}

    def test_the_share_of_an_empty_one_is_divided_equally(self) -> None:
        Queue.get_queue("c")
        for name in "ab":
            flood(name)
        assert names_of("a,c,b", 20, queue_strategy="round_robin").shares == {"a": 10, "b": 10}

    def test_a_slow_kind_does_not_starve_the_rest(self) -> None:
        flood("flood", 100)
        for name in ("mails", "pushes"):
            flood(name, 3)
        names = names_of("flood,mails,pushes", 9, queue_strategy="round_robin")
        assert names.shares == {"flood": 3, "mails": 3, "pushes": 3}

    def test_what_was_empty_for_long_does_not_catch_up(self) -> None:
        Queue.get_queue("b")
        flood("a")
        names = Names()
        worker = worker_of("a,b", callback=names, max_loops=30, queue_strategy="round_robin")

        def fill(job: Job, queue: Queue) -> None:
            if len(names.names) == 10:
                flood("b")
            names(job, queue)

        worker.callback = fill
        worker.run()
        assert names.shares == {"a": 20, "b": 10}

    def test_a_higher_priority_comes_first(self) -> None:
        flood("a", 20)
        flood("b", 20)
        flood("b", 6, priority=5)
        names = names_of("a,b", 16, queue_strategy="round_robin").names
        assert names[:6] == ["b"] * 6
        assert Counter(names[6:]) == {"a": 5, "b": 5}

    def test_a_job_is_one_round_trip_as_ever(self, commands: Callable[[], AbstractContextManager[Any]]) -> None:
        for name in "ab":
            flood(name)
        with commands() as sent:
            work("a,b", max_loops=60, queue_strategy="round_robin")
        assert len([name for name in sent.names if name == "EVALSHA"]) < 70

    def test_it_is_kept_by_several_workers(self) -> None:
        for name in "ab":
            flood(name)
        shares: Counter[str] = Counter()
        for _ in range(4):
            shares.update(names_of("a,b", 10, queue_strategy="round_robin").shares)
        assert shares == {"a": 20, "b": 20}


class TestWeights:
    def test_each_name_has_the_share_of_its_weight(self) -> None:
        for name in ("mails", "pushes"):
            flood(name)
        assert names_of("mails:3,pushes:1", 40, queue_strategy="weighted").shares == {"mails": 30, "pushes": 10}

    def test_the_weight_is_one_unless_given(self) -> None:
        for name in ("mails", "pushes"):
            flood(name)
        assert names_of(["mails", "pushes:4"], 20, queue_strategy="weighted").shares == {"mails": 4, "pushes": 16}

    def test_a_name_may_have_colons(self) -> None:
        worker = worker_of("a:b:2,c:d,:3", queue_strategy="weighted")
        assert (worker.queues, worker._weights) == (["a:b", "c:d", ":3"], {"a:b": 2, "c:d": 1, ":3": 1})

    @pytest.mark.parametrize("strategy", ["strict", "round_robin"])
    def test_without_weights_a_number_is_a_part_of_the_name(self, strategy: str) -> None:
        assert worker_of("mails:3", queue_strategy=strategy).queues == ["mails:3"]

    @pytest.mark.parametrize("queues", ["a:0", "a:1001", "b,a:00"])
    def test_what_is_no_weight_is_refused(self, queues: str) -> None:
        with pytest.raises(ConfigurationException, match="weight"):
            worker_of(queues, queue_strategy="weighted")


@pytest.mark.parametrize("strategy", ["", "random", None, 1])
def test_another_strategy_is_refused(strategy: Any) -> None:
    with pytest.raises(ConfigurationException, match="queue_strategy must be one of strict, round_robin, weighted"):
        worker_of("a", queue_strategy=strategy)


def test_lists_it_does_not_know_keep_their_place() -> None:
    turns = QueueSelector({"a": Share("0", 1), "b": Share("0", 1)})
    turns.order(["a", "x", "b"])
    turns.served("a")
    turns.served("x")
    assert turns.order(["a", "x", "b"]) == ["b", "x", "a"]


def test_a_new_list_begins_as_if_it_had_been_served_as_the_others() -> None:
    places = {"a": Share("0", 1), "b": Share("0", 1)}
    turns = QueueSelector(places)
    for _ in range(10):
        turns.served(turns.order(["a", "b"])[0])
    turns.update({**places, "c": Share("0", 1)})
    served = []
    for _ in range(6):
        served.append(turns.order(["a", "b", "c"])[0])
        turns.served(served[-1])
    assert Counter(served) == {"a": 2, "b": 2, "c": 2}
