"""Each command that finds nothing says so if it is asked for a queue, or a class, that does not exist."""

from __future__ import annotations

import json

import pytest
import redis
from reading import limpyd_jobs

from limpyd_jobs import Job, Queue


class Letter(Job):
    namespace = "unknown-names"
    queue_name = "letters"

    def run(self, queue: Queue) -> None:
        pass


@pytest.mark.usefixtures("redis_client")
def test_a_misspelt_name_is_told() -> None:
    Letter.add_job("a")
    of_queue, of_class = (
        "no queue is named leters, but there is: letters",
        "no job class is Leter, but there is: Letter",
    )
    refused = "limpyd-jobs jobs: error: there is no queue leters, but there is: letters; --force makes it\n"
    for verb in ("requeue class=Letter --dry-run", "move class=Letter --yes", f"add {Letter.get_model_repr()} b"):
        assert limpyd_jobs("jobs", *verb.split(), "--queue=leters") == (1, "", refused), verb
    for command, told in {
        "jobs cancel class=Leter --yes": of_class,
        "jobs requeue queue=leters --yes": of_queue,
        "jobs delete queue=leters --dry-run": of_queue,
        "errors groups queue=leters": of_queue,
        "errors list queue=leters": of_queue,
        "errors delete queue=leters --dry-run": of_queue,
        "jobs export class=Leter": of_class,
        "stats --queue=leters": of_queue,
        "stats --class=Leter": of_class,
        f"schedules add daily {Letter.get_model_repr()} --cron=@daily --queue=leters": of_queue,
    }.items():
        name, *words = command.split()
        status, _, error = limpyd_jobs(name, *words)
        assert (status, error) == (0, f"limpyd-jobs {name}: {told}\n"), command
    assert limpyd_jobs("jobs", "move", "class=Letter", "--yes", "--queue=leters", "--force")[0] == 0
    for command in ("jobs requeue queue=letters --yes", "errors list queue=letters", "stats --queue=leter*"):
        name, *words = command.split()
        assert limpyd_jobs(name, *words)[2] == "", command


def test_jobs_of_classes_that_are_not_known_are_named(redis_client: redis.Redis) -> None:
    """As those of version 2 that no process of this version has met."""
    Queue.get_queue("letters")
    Queue.get_queue("empty")
    redis_client.rpush("jobs:queue:1:waiting", "old.jobs.Order:1")
    told = (
        "not looked at: jobs of old.jobs.Order, and maybe others, also in queues of other models. "
        "Make the class known: --job-modules=MODULE"
    )
    for command, code in {
        "jobs list": 0,
        "jobs count": 0,
        "jobs requeue status=error --yes": 0,
        "jobs explain identifier=a": 2,
        "queues list": 0,
        "queues pause resize": 1,
        "queues show letters": 0,
        "queues clear letters --dry-run": 1,
        "queues clear letters --yes": 1,
        "queues clear empty --yes": 0,
    }.items():
        name, *words = command.split()
        status, _, error = limpyd_jobs(name, *words)
        assert (status, told in error) == (code, "empty" not in command), command
    assert "version 2" in limpyd_jobs("jobs", "explain", "old.jobs.Order:1")[2]


def test_queues_of_models_that_are_not_known_are_named(redis_client: redis.Redis) -> None:
    """As those of version 2 in a database that no process of this version has met."""
    redis_client.rpush("photo:photoqueue:1:waiting", "app.models.Resize:1")
    told = (
        "keys of queues of other models are there: photo:photoqueue. What is in them is not shown before you name the "
        "module of the model: --job-modules=MODULE"
    )
    for command in ("info", "queues list", "jobs list", "jobs count", "errors list", "queues pause resize"):
        name, *words = command.split()
        _, out, error = limpyd_jobs(name, *words)
        assert told in " ".join(f"{out} {error}".split()), command
    assert "--job-modules" in limpyd_jobs("info", "--help")[1]
    Queue.get_queue("letters")
    for command in ("queues pause resize", "jobs list queue=resize"):
        name, *words = command.split()
        assert told in limpyd_jobs(name, *words)[2], command


def test_deferred_jobs_are_told_where_they_are_counted_as_delayed(redis_client: redis.Redis) -> None:
    job = Letter.add_job("a")
    redis_client.lpop("jobs:queue:1:waiting")
    redis_client.zadd("jobs:queue:1:delayed", {job.ident: 5})
    redis_client.hset("jobs:queue:1:_deferrals", mapping={job.ident: 1, "gone.Job:1": 2})
    shown = " ".join(limpyd_jobs("info")[1].split())
    [sentence] = [each["text"] for each in json.loads(limpyd_jobs("info", "--json")[1])["attention"]]
    assert "In letters, 1 job waits for a worker that can import the class" in sentence
    assert "the queue counts such jobs as delayed, whatever their status" in sentence
    assert shown.count(sentence) == shown.count("import") == 1  # it is said once, as everywhere


def test_the_quarantine_of_a_queue_that_does_not_exist_is_refused(redis_client: redis.Redis) -> None:
    Queue.get_queue("letters")
    for words in ("list", "drop --all --yes", "retry --all --dry-run"):
        status, out, error = limpyd_jobs("quarantine", *words.split(), "--queue=leters")
        assert (status, out) == (1, "")
        assert "there is no queue leters, but there is: letters" in error
