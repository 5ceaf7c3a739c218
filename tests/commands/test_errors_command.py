"""``limpyd-jobs errors``, as a user runs it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import preloaded
import pytest
import redis
from cases import each
from reading import limpyd_jobs
from servers import RedisServer

from limpyd_jobs import Error, Job, Worker
from limpyd_jobs.query import ErrorFilter, JobFilter

COMMAND = str(Path(sys.executable).with_name("limpyd-jobs"))

pytestmark = pytest.mark.usefixtures("redis_client")


class Bill(Job):
    namespace = "errors-command"
    queue_name = "bills"

    def run(self, queue: Any) -> None:
        name = self.identifier.hget()
        if name == "bill 0":
            raise KeyError(name)
        raise LookupError(f"no address of {name}")


class ErrorOfBills(Error):
    namespace = "errors-command"


@pytest.fixture(autouse=True)
def _errors() -> None:
    for number in range(4):
        Bill.add_job(f"bill {number}")
    Worker("bills", max_loops=4, logger_level=60).run()


@pytest.fixture
def fingerprint() -> str:
    """Return that of three of the errors."""
    return fingerprint_of("LookupError")


def fingerprint_of(type_name: str) -> str:
    return ErrorFilter(type=type_name).page().found[0].fingerprint


IMPORTABLE = [f"--job-modules={__name__}", f"--pythonpath={Path(__file__).parent}:{Path(__file__).parents[1]}"]


def run(server: RedisServer, *arguments: str) -> tuple[int, str, str]:
    done = preloaded.run([COMMAND, "errors", *arguments], env={**os.environ, "LIMPYD_JOBS_DATABASE": server.url})
    return done.returncode, done.stdout, done.stderr


def output(server: RedisServer, *arguments: str) -> str:
    status, out, err = run(server, *arguments)
    assert (status, err) == (0, "")
    return out


def test_the_causes_are_told_the_most_frequent_first(redis_server: RedisServer, fingerprint: str) -> None:
    rows = json.loads(output(redis_server, "groups", "--json"))
    assert [(row["type"], row["message"], row["count"]) for row in rows] == [
        ("LookupError", "no address of <identifier>", 3),
        ("KeyError", "'bill 0'", 1),
    ]
    assert rows[0]["fingerprint"] == fingerprint
    assert rows[0]["first_seen"] < rows[0]["last_seen"]
    assert rows[0]["queues"] == {"bills": 3}
    assert rows[0]["messages"] == [
        {
            "message": "no address of <identifier>",
            "count": 3,
            "examples": [f"no address of bill {number}" for number in (3, 2, 1)],
        }
    ]
    assert (rows[0]["message_count"], "message_count_at_least" in rows[0]) == (1, False)
    heading, first, place, message, *_ = output(redis_server, "groups").splitlines()
    assert heading.split("  ")[0] == "fingerprint"
    assert first.split()[:2] == [fingerprint, "3"]
    assert place.startswith(f"    LookupError in {__name__}, in run: raise LookupError(")
    assert message.split() == ["3", "no", "address", "of", "<identifier>"]
    assert all(len(line) < 80 for line in output(redis_server, "groups").splitlines())


def test_messages_that_are_not_shown_are_counted(redis_server: RedisServer) -> None:
    for word in ("rain", "snow", "hail", "fog"):
        Error.add_error("bills", Bill.get("1"), LookupError(word))
    for error in Error.collection().instances():
        error._fingerprint.delete()
    lines = output(redis_server, "groups").splitlines()
    assert [line.split() for line in lines[3:7]] == [
        ["3", "no", "address", "of", "<identifier>"],
        ["1", "fog"],
        ["1", "hail"],
        ["3", "of", "5", "messages:", "errors", "show", "LookupError"],
    ]
    shown = output(redis_server, "show", "LookupError", "--limit=2")
    assert "2 of 5 messages. See --limit" in shown
    assert "as in: no address of bill 3" in shown


def test_a_filter_says_which_errors(redis_server: RedisServer) -> None:
    lines = output(redis_server, "groups", "type=KeyError", "date_time__gt=-1h", "--jsonl").splitlines()
    assert [json.loads(line)["count"] for line in lines] == [1]
    assert json.loads(output(redis_server, "groups", "queue!=bills", "--json")) == []
    assert len(output(redis_server, "groups", "class=Bill").splitlines()) == 7


def test_the_others_are_counted(redis_server: RedisServer) -> None:
    assert output(redis_server, "groups", "--limit=1").splitlines()[-1].split() == ["(others)", "1"]
    status, out, err = run(redis_server, "groups", "--limit=1", "--json")
    assert (status, len(json.loads(out))) == (0, 1)
    assert err == "limpyd-jobs errors: not printed: 1 error of other causes. See --limit\n"


def test_errors_are_listed_the_last_first(redis_server: RedisServer, fingerprint: str) -> None:
    rows = json.loads(output(redis_server, "list", f"fingerprint={fingerprint}", "--json"))
    assert [row["identifier"] for row in rows] == ["bill 3", "bill 2", "bill 1"]
    assert rows[0].keys() == {
        *("model", "pk", "date_time", "type", "message", "fingerprint", "ident", "identifier", "queue", "app_version")
    }
    lines = output(redis_server, "list", "type=KeyError").splitlines()
    assert lines[1].split()[-3:] == [f"{Bill.get_model_repr()}:1", "bills", fingerprint_of("KeyError")]


def test_a_page_tells_how_to_go_on(redis_server: RedisServer) -> None:
    status, out, err = run(redis_server, "list", "--limit=3", "--jsonl")
    assert (status, len(out.splitlines())) == (0, 3)
    told, _, after = err.strip().rpartition("--after=")
    assert told == "limpyd-jobs errors: there are more errors: "
    [rest] = output(redis_server, "list", "--jsonl", f"--after={after}").splitlines()
    assert json.loads(rest)["identifier"] == "bill 0"


def test_that_there_was_no_time_is_told(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    redis_client.set("jobs:error:max_pk", 20_000)
    redis_client.sadd("jobs:error:collection", *range(10, 20_001))
    status, out, err = run(redis_server, "groups", "--timeout=0", "--json")
    assert (status, json.loads(out)) == (0, [])
    told = "there was no time to look at all errors: these are of the newest 500 of 19,995"
    assert err == f"limpyd-jobs errors: {told}\n"


def test_a_cause_is_shown_with_its_last_error_and_jobs(redis_server: RedisServer, fingerprint: str) -> None:
    shown = json.loads(output(redis_server, "show", fingerprint, "--json"))
    assert (shown["fingerprint"], shown["count"], shown["job_classes"]) == (fingerprint, 3, {Bill.get_model_repr(): 3})
    assert shown["sample"]["message"] == "no address of bill 3"
    assert shown["jobs"] == [f"{Bill.get_model_repr()}:{pk}" for pk in (4, 3, 2)]
    text = output(redis_server, "show", fingerprint)
    assert "LookupError: no address of bill 3" in text
    assert "in run" in text
    told = (
        "jobs in error now by it, as their last error: 3. To put them back in their queues: limpyd-jobs errors requeue"
    )
    assert f"{told} {fingerprint}" in text
    both = json.loads(output(redis_server, "show", fingerprint, fingerprint_of("KeyError"), "--json"))
    assert [each["count"] for each in both] == [3, 1]
    lines = output(redis_server, "show", fingerprint, fingerprint_of("KeyError"), "--jsonl").splitlines()
    assert [json.loads(line) for line in lines] == both


def test_the_jobs_of_a_cause_are_requeued(
    redis_server: RedisServer, redis_client: redis.Redis, fingerprint: str
) -> None:
    redis_client.rpush("jobs:queue:1:errors", "old.jobs.Order:1")
    status, _, err = run(redis_server, "requeue", fingerprint, *IMPORTABLE)
    assert (status, err.splitlines()[-1]) == (
        2,
        "limpyd-jobs errors: error: requeue 3 jobs? Give --yes to do so, or --dry-run for what would be done",
    )
    assert "not looked at: jobs of old.jobs.Order, and maybe others" in err
    redis_client.lrem("jobs:queue:1:errors", 0, "old.jobs.Order:1")
    told = json.loads(output(redis_server, "requeue", fingerprint, "--dry-run", "--json", *IMPORTABLE))
    assert (told["done"], told["dry_run"]) == (3, True)
    assert JobFilter("status=error").count().number == 4
    assert output(redis_server, "requeue", fingerprint, "--yes", *IMPORTABLE).splitlines()[1].split() == [
        "3",
        "requeued",
    ]
    assert [job.identifier for job in JobFilter("status=error")] == ["bill 0"]


def test_they_may_be_requeued_in_some_queues_only(redis_server: RedisServer, fingerprint: str) -> None:
    for condition in ("queue=nobodys", "queue__in=nobodys,others"):
        status, _, err = run(redis_server, "requeue", fingerprint, condition, "--yes", *IMPORTABLE)
        assert (status, f"{fingerprint} and {condition}" in err) == (2, True)
    status, _, err = run(redis_server, "requeue", fingerprint, "date_time>-1h", "--yes", *IMPORTABLE)
    assert (status, "jobs cannot be requeued by date_time>-1h" in err) == (2, True)


def test_they_may_be_requeued_with_more_conditions(redis_server: RedisServer, fingerprint: str) -> None:
    environment = {**os.environ, "LIMPYD_JOBS_DATABASE": redis_server.url}
    words = ["jobs", "requeue", f"fingerprint={fingerprint}", "identifier=bill 2", "--for=60", "--yes", "--json"]
    done = preloaded.run([COMMAND, *words, *IMPORTABLE], env=environment)
    assert json.loads(done.stdout)["done"] == 1
    assert [job.identifier for job in JobFilter("status=delayed")] == ["bill 2"]


@pytest.mark.proof
def test_the_errors_of_all_models_are_shown_unless_one_is_named(redis_server: RedisServer) -> None:
    Bill.add_job("bill 5")
    Worker("bills", error_model=ErrorOfBills, max_loops=1, logger_level=60).run()
    model = f"--error-model={__name__}.ErrorOfBills"
    [row] = json.loads(output(redis_server, "groups", "--json", model, *IMPORTABLE))
    assert (row["count"], row["message"]) == (1, "no address of bill 5")
    rows = json.loads(output(redis_server, "groups", "--json"))  # imports nothing
    assert [each["count"] for each in rows if each["fingerprint"] == row["fingerprint"]] == [4]
    ours = "--error-model=limpyd_jobs.Error"
    assert "jobs in error now by it, as their last error: 1." in output(
        redis_server, "show", row["fingerprint"], model, *IMPORTABLE
    )
    environment = {**os.environ, "LIMPYD_JOBS_DATABASE": redis_server.url}
    words = (f"fingerprint={row['fingerprint']}", "identifier=bill 5", "--json", *IMPORTABLE)
    for options, number in ((words, 1), ((*words, model), 1), ((*words, ours), 0)):
        done = preloaded.run([COMMAND, "jobs", "count", *options], env=environment)
        assert json.loads(done.stdout) == {"count": number}
    told = output(redis_server, "requeue", row["fingerprint"], "--yes", "--json", model, *IMPORTABLE)
    assert json.loads(told)["done"] == 1


@each(
    ("arguments", "message"),
    [
        (["nope"], "'nope' is not one of groups, list, show, requeue"),
        (["groups", "mails"], "'mails' is not a condition: write it as field=value"),
        (["list", "status=error"], "An error has no field 'status'; there are: app_version, class, code"),
        (["list", "--after=x"], "'x' is not where a page ended: give what the page before told after --after="),
        (["show"], "show needs a fingerprint after it: errors groups lists them"),
        (["show", "0123456789abcdef"], "there is no error with the fingerprint 0123456789abcdef"),
        (["requeue", "deadbeef"], "there is no error with the fingerprint deadbeef"),
        (["requeue"], "requeue needs one fingerprint after it: errors groups lists them"),
    ],
)
def test_a_command_line_that_is_wrong(redis_server: RedisServer, arguments: list[str], message: str) -> None:
    status, out, err = run(redis_server, *arguments)
    assert (status, out) == (2, "")
    assert f"limpyd-jobs errors: error: {message}" in err


@pytest.mark.proof
def test_a_long_error_is_cut_unless_all_is_asked_for(fingerprint: str) -> None:
    error = Error.collection(type="LookupError").instances()[-1]
    for failure in Error.collection(type="LookupError").instances():
        failure.message.hset("begins " + "x" * 3_000_000 + " ends")
        failure.hmset(traceback="first\n" + "line\n" * 200_000 + "last")
    status, out, told = limpyd_jobs("errors", "show", fingerprint)
    assert (status, len(out) < 60_000) == (0, True)
    assert "left out" in out
    assert out.index("    first\n") < out.index("    last\n")
    assert told == "limpyd-jobs errors: not all of the last error is shown: --full shows it\n"
    shown = json.loads(limpyd_jobs("errors", "show", fingerprint, "--json")[1])["sample"]
    assert len(shown["message"]) < 20_000
    whole = limpyd_jobs("errors", "show", fingerprint, "--full")[1]
    assert len(whole) > 3_800_000
    assert "left out" not in whole
    assert len(limpyd_jobs("jobs", "show", f"{error.job_model_repr.hget()}:{error.job_pk.hget()}")[1]) < 60_000


def test_errors_are_deleted(redis_server: RedisServer) -> None:
    told = "errors\n3       would be deleted\n"
    assert output(redis_server, "delete", "type=LookupError", "--dry-run") == told
    assert output(redis_server, "delete", "type=LookupError", "--yes") == "errors\n3       deleted\n"
    [group] = ErrorFilter().groups().groups
    assert group.type == "KeyError"
    assert output(redis_server, "delete", group.fingerprint, "--dry-run") == "errors\n1       would be deleted\n"
    _, _, err = run(redis_server, "delete")
    assert err == "limpyd-jobs errors: error: say which errors to delete: give a filter, or --all for all errors\n"


def test_errors_of_a_model_that_is_not_imported_are_refused_unless_it_is_named(redis_server: RedisServer) -> None:
    ErrorOfBills.add_error("bills", Bill.get("1"), KeyError("x"))
    status, out, _ = run(redis_server, "delete", "--all", "--dry-run")
    assert (status, out.splitlines()[1]) == (1, "4       would be deleted")
    assert "ErrorOfBills is not imported: name it as the error model" in out
    named = f"--error-model={__name__}.ErrorOfBills"
    assert output(redis_server, "delete", "--all", "--yes", named, *IMPORTABLE) == "errors\n1       deleted\n"
