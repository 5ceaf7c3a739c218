"""Jobs of RQ and arq are taken over: none is lost, and none runs twice, wherever the process is killed.

Their data is made here as those libraries make it; ``scripts/coming_from_rows.sh`` runs the libraries themselves.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import zlib
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import count, islice
from pathlib import Path
from typing import Any

import preloaded
import pytest
import redis
from servers import RedisServer

from limpyd_jobs import Argument, ConfigurationException, Job, Queue, job
from limpyd_jobs.contrib.takeover import RQ, Arq, Destination, Left, Moved, OldQueues, TakeOver, targets_of
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.testing import drain

COMMAND = str(Path(sys.executable).with_name("limpyd-jobs"))
RAN: list[Any] = []

pytestmark = pytest.mark.usefixtures("redis_client")


@job(queue="takeover")
def greet(name: str, size: int = 1) -> None:
    RAN.append((name, size))


class Letter(Job):
    namespace = "takeover"
    queue_name = "takeover"
    to = Argument()

    def run(self, queue: Any) -> None:
        RAN.append(self.arguments.to)


def letter_of(number: int, **others: Any) -> dict[str, Any]:
    return {"to": f"customer {number:d}"}


JOBS = {"old.greet": greet, "old.letter": Letter, "old.bill": (Letter, letter_of)}
TARGETS = targets_of(JOBS)


@pytest.fixture
def client() -> Any:
    RAN.clear()
    return BaseJobsModel.database.connection


def rq_job(client: Any, id: str, function: str, *args: Any, due: float | None = None, **fields: Any) -> None:
    dump = fields.pop("dump", lambda value: json.dumps(value).encode())
    call = [function, fields.pop("instance", None), args, fields.pop("kwargs", {})]
    stored = {"data": zlib.compress(dump(call)), "status": "queued", "success_callback_name": "", **fields}
    pool = client.connection_pool.connection_kwargs
    redis.Redis(unix_socket_path=pool["path"], db=pool.get("db", 0)).hset(f"rq:job:{id}", mapping=stored)
    client.sadd("rq:queues", "rq:queue:default")
    if due is None:
        client.rpush("rq:queue:default", id)
    else:
        client.zadd("rq:scheduled:default", {id: due})


def arq_job(client: Any, id: str, function: str, *args: Any, due: float = 1.0) -> None:
    data = json.dumps({"t": None, "f": function, "a": args, "k": {}, "et": 1})
    client.set(f"arq:job:{id}", data, px=86_400_000)
    client.zadd("arq:queue", {id: due * 1000})


def fill_rq(client: Any) -> OldQueues:
    rq_job(client, "1", "old.greet", "ann")
    rq_job(client, "2", "old.letter", kwargs={"to": "bob"})
    rq_job(client, "3", "old.greet", "eve", 3, due=1.0)
    return RQ(client)


def fill_arq(client: Any) -> OldQueues:
    arq_job(client, "1", "old.greet", "ann")
    arq_job(client, "2", "old.bill", 7, due=2.0)
    return Arq(client)


def work(forget: bool = True) -> None:
    """Run what can be run, and forget it: what ended is then no proof that it was there."""
    drain("takeover", raise_errors=True)
    if not forget:
        return
    for model in (greet.job_class, Letter):
        for done in model.collection(status="s").instances():
            done.delete()


def steps_of(old: OldQueues) -> Iterator[Any]:
    return TakeOver(old, TARGETS).steps()


def let_the_lock_lapse(client: Any) -> None:
    client.delete("limpyd-jobs:takeover:rq:lock", "limpyd-jobs:takeover:arq:lock")


@pytest.mark.proof
@pytest.mark.parametrize(
    ("fill", "expected", "forget"),
    [(fill_rq, ["bob", ("ann", 1), ("eve", 3)], True), (fill_arq, ["customer 7", ("ann", 1)], False)],
    ids=["rq", "arq"],
)
def test_killed_after_any_step_it_loses_nothing_and_doubles_nothing(
    client: Any, fill: Callable[[Any], OldQueues], expected: list[Any], forget: bool
) -> None:
    for number in count(1):
        old = fill(client)
        killed = steps_of(old)
        done = [name for name, _ in islice(killed, number)]  # and then it is never heard of again
        let_the_lock_lapse(client)
        work(forget)
        for _ in steps_of(old):
            work(forget)
        assert sorted(RAN, key=str) == sorted(expected, key=str), done
        RAN.clear()
        assert not [key for key in client.scan_iter() if key.startswith(("rq:job", "rq:queue:", "arq:"))], done
        assert not client.exists("limpyd-jobs:takeover:rq", "limpyd-jobs:takeover:arq"), done
        if len(done) < number:
            break
    assert number > 10


def test_one_that_was_overtaken_stops(client: Any) -> None:
    slow = steps_of(fill_rq(client))
    assert [name for name, _ in islice(slow, 3)] == ["locked", "taken", "added"]
    let_the_lock_lapse(client)
    for _ in steps_of(RQ(client)):
        work()
    with pytest.raises(Exception, match="another process takes these queues over"):
        next(slow)
    assert len(RAN) == 3


def test_one_that_waits_for_the_lock_of_another_one_says_so(client: Any) -> None:
    killed = steps_of(fill_rq(client))
    assert next(killed)[0] == "locked"
    told: list[str] = []
    again = TakeOver(RQ(client), TARGETS, tell=lambda text: (told.append(text), let_the_lock_lapse(client)))
    assert len([*again.run()]) == 3
    (line,) = told
    assert line.startswith("another process takes these queues over, or was killed while it did: waiting for up to 21")


@pytest.mark.parametrize(
    ("due", "expected"), [(4e9, datetime(2096, 10, 2, 7, 6, 40)), (float("inf"), datetime(2999, 1, 1))]
)
def test_what_is_due_later_is_due_then(client: Any, due: float, expected: datetime) -> None:
    rq_job(client, "later", "old.greet", "ann", due=due)
    assert [*TakeOver(RQ(client), TARGETS).run()] == [Moved("later", "old.greet", f"{__name__}.greet")]
    (added,) = greet.job_class.collection(identifier="rq:later").instances()
    assert datetime.fromisoformat(added.delayed_until.hget()) == expected


def unlike(**fields: Any) -> Callable[[Any], OldQueues]:
    def fill(client: Any) -> OldQueues:
        rq_job(client, "1", fields.pop("function", "old.greet"), *fields.pop("args", ["ann"]), **fields)
        return RQ(client)

    return fill


def with_dependents(client: Any) -> OldQueues:
    client.sadd("rq:job:1:dependents", "2")
    return unlike()(client)


def that_runs(client: Any) -> OldQueues:
    client.set("arq:in-progress:1", "1")
    arq_job(client, "1", "old.greet", "ann")
    return Arq(client)


def that_expired(client: Any) -> OldQueues:
    client.zadd("arq:queue", {"1": 1})
    return Arq(client)


@pytest.mark.parametrize(
    ("fill", "why"),
    [
        (unlike(function="old.other"), "old.other is not in --map"),
        (unlike(args=[5]), "old.greet: The argument 'name' must be a text, not 5"),
        (unlike(args=["ann", 1, 2]), "old.greet: too many positional arguments"),
        (unlike(function="old.letter"), "takes no arguments without a name"),
        (unlike(function="old.letter", args=[], kwargs={"form": "bob"}), "has no argument 'form'"),
        (unlike(function="old.bill", args=["x"]), "old.bill: Unknown format code"),
        (unlike(success_callback_name="old.done"), "has a callback"),
        (unlike(repeats_left="2"), "is repeated: add a schedule"),
        (unlike(instance={}), "calls a method of an object"),
        (unlike(dump=pickle.dumps), "give --unpickle if only programs that you trust"),
        (unlike(dump=lambda _: b"[1]"), "not enough values to unpack"),
        (unlike(dump=lambda _: b"[" * 100_000), "is neither JSON nor a pickle"),
        (unlike(dump=lambda _: b"x" * (1 << 25)), "is larger than"),
        (with_dependents, "has jobs that wait for it"),
        (that_runs, "runs now"),
        (that_expired, "has expired"),
    ],
)
def test_what_cannot_be_taken_over_stays_and_says_why(client: Any, fill: Callable[[Any], OldQueues], why: str) -> None:
    old = fill(client)
    before = {key: client.dump(key) for key in client.scan_iter() if key.startswith(("rq:", "arq:"))}
    (left,) = TakeOver(old, TARGETS).run()
    assert isinstance(left, Left)
    assert why in left.why
    assert {key: client.dump(key) for key in client.scan_iter()} == before


def test_what_the_application_refuses_to_add_goes_back_to_where_it_stood(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise LookupError("not today")

    monkeypatch.setattr(Letter, "add_job", refuse)
    outcomes = [*TakeOver(fill_rq(client), TARGETS).run()]
    assert [each for each in outcomes if isinstance(each, Left)] == [Left("2", "cannot be added: not today")]
    assert client.lrange("rq:queue:default", 0, -1) == ["2"]


def test_pickles_are_read_if_that_is_asked_for(client: Any) -> None:
    rq_job(client, "1", "old.greet", "ann", dump=pickle.dumps)
    (moved,) = TakeOver(RQ(client, unpickle=True), TARGETS).run()
    assert isinstance(moved, Moved)


def test_each_old_queue_may_have_a_queue_and_a_priority_of_its_own_here(client: Any) -> None:
    destinations = {"default": Destination("mails", 10)}
    assert {str(each.destination) for each in TakeOver(fill_rq(client), TARGETS, destinations).plan()} == {"mails:10"}
    [*TakeOver(RQ(client), TARGETS, destinations).run()]
    ((queue, idents),) = [(queue, queue.waiting.lmembers()) for queue in Queue.get_all("mails")]
    assert (queue.priority.hget(), len(idents)) == ("10", 3)


def test_one_that_was_cut_off_goes_to_the_queue_that_was_said_first(client: Any) -> None:
    rq_job(client, "1", "old.greet", "ann")
    steps = TakeOver(RQ(client), TARGETS, {"default": Destination("mails")}).steps()
    while next(steps)[0] != "noted":
        pass
    let_the_lock_lapse(client)
    [*TakeOver(RQ(client), TARGETS).run()]
    assert [queue.waiting.llen() for queue in Queue.get_all("mails")] == [1]


@pytest.mark.parametrize("given", [[], {"old.greet": lambda name: None}, {"old.greet": (greet, "convert")}])
def test_a_wrong_declaration_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationException, match=r"it is a dictionary|old\.greet: a function with @job"):
        targets_of(given)


MODULE = """
from limpyd_jobs import job

@job
def greet(name: str, size: int = 1) -> None: ...

JOBS = {"old.greet": greet}
"""


def test_the_command_counts_first_and_then_moves(client: Any, redis_server: RedisServer, tmp_path: Path) -> None:
    def run(*arguments: str) -> tuple[int, str]:
        here = ("--map=moved_here.JOBS", f"--pythonpath={tmp_path}")
        environment = {**os.environ, "LIMPYD_JOBS_DATABASE": redis_server.url, "COLUMNS": "200"}
        done = preloaded.run([COMMAND, "takeover", *arguments, *here], env=environment)
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    (tmp_path / "moved_here.py").write_text(MODULE)
    fill_rq(client)
    status, output = run("rq", "--dry-run")
    assert (status, output) == (
        1,
        "jobs 2 old.greet would be taken over: moved_here.greet 1 left, as 2: old.letter is not in --map",
    )
    assert client.llen("rq:queue:default") == 2
    assert json.loads(run("rq", "--yes", "--json", "--queues=default=mails:10")[1]) == {
        "moved": [{"function": "old.greet", "path": "moved_here.greet", "destination": "mails:10", "number": 2}],
        "left": [{"id": "2", "why": "old.letter is not in --map"}],
        "others": [],
    }
    status, output = run("rq", "--queues=hgih=mails:10")
    assert (status, output.partition("error: ")[2]) == (
        2,
        "option --queues: no queue of rq is named 'hgih': there are default",
    )
    assert "A priority must be an integer, not '1O'" in run("rq", "--queues=default=mails:1O")[1]
    assert run()[1].endswith("error: name one library: rq or arq")
