"""``limpyd-jobs jobs``, as a user runs it."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import preloaded
import pytest
import redis
from servers import RedisServer, wait_until

from limpyd_jobs import Argument, Job, Worker
from limpyd_jobs.commands.jobs import Jobs
from limpyd_jobs.dates import parse_datetime, utcnow
from limpyd_jobs.query import JobFilter
from limpyd_jobs.redis.scripting import Script

COMMAND = str(Path(sys.executable).with_name("limpyd-jobs"))

pytestmark = pytest.mark.usefixtures("redis_client")


class Letter(Job):
    namespace = "command"
    queue_name = "letters"

    to = Argument(indexable=True)

    def run(self, queue: Any) -> None:
        raise KeyError(f"no address of {self.arguments.to}")


class Parcel(Job):
    namespace = "command"


@pytest.fixture(autouse=True)
def _jobs() -> None:
    for number in range(6):
        Letter.add_job(f"letter {number}", to="ann" if number % 2 else "bob")
    Worker("letters", max_loops=2, logger_level=60).run()


def run(server: RedisServer, *arguments: str) -> tuple[int, str, str]:
    done = preloaded.run([COMMAND, "jobs", *arguments], env={**os.environ, "LIMPYD_JOBS_DATABASE": server.url})
    return done.returncode, done.stdout, done.stderr


def output(server: RedisServer, *arguments: str) -> str:
    status, out, err = run(server, *arguments)
    assert (status, err) == (0, "")
    return out


def test_jobs_are_counted(redis_server: RedisServer) -> None:
    assert output(redis_server, "count") == "6\n"
    assert output(redis_server, "count", "to=ann", "status!=error") == "2\n"
    assert json.loads(output(redis_server, "count", "status=error", "--json")) == {"count": 2}
    assert json.loads(output(redis_server, "count", "added>-1h", "added__lt=now", "--json")) == {"count": 6}


def test_a_verb_asks_once_which_classes_there_are(redis_server: RedisServer, commands: Any) -> None:
    with commands() as sent:
        assert act(redis_server, "requeue", "status=error", "--yes")[0] == 0
    sha = Script("records/read_classes").sha
    assert sum(sha in command for command in sent) == 1


def test_a_search_that_has_no_time_tells_which_index_would_spare_it(
    redis_server: RedisServer, redis_client: redis.Redis
) -> None:
    redis_client.set(f"{Letter._name}:max_pk", 5_000)  # more than one step looks at
    for key in ("collection", "to:ann"):
        redis_client.sadd(f"{Letter._name}:{key}", *range(1_000, 5_001))
    for words in (["count"], ["list"], ["count", "--by=to"]):
        status, _, err = run(redis_server, *words, "added>-1h", "to=ann", "--timeout=0.000001")
        assert status == 0
        assert f"one by one, because added of {__name__}.Letter has no DateTimeRangeIndex. To find them at once" in err
        assert "to of" not in err


def test_they_are_counted_by_a_field(redis_server: RedisServer) -> None:
    assert output(redis_server, "count", "--by=status") == "jobs  status\n4     waiting\n2     error\n"
    found = json.loads(output(redis_server, "count", "--by=to", "status=error", "--json"))
    assert sorted(found, key=str) == [{"to": "ann", "count": 1}, {"to": "bob", "count": 1}]


def test_only_some_values_may_be_told(redis_server: RedisServer) -> None:
    words = ("count", "--by=identifier", "--limit=4")
    assert output(redis_server, *words).splitlines()[-1] == "2     (others)"
    for option in ("--json", "--jsonl"):
        status, out, err = run(redis_server, *words, option)
        assert (status, out.count('"count": 1')) == (0, 4)
        assert err == "limpyd-jobs jobs: not printed: 2 jobs of other values. See --limit\n"


def test_they_are_listed_the_newest_first(redis_server: RedisServer) -> None:
    lines = output(redis_server, "list", "to=ann").splitlines()
    assert lines[0].split() == ["ident", "identifier", "status", "queue", "priority", "tries", "added", "start", "end"]
    assert [line.split()[2] for line in lines[1:]] == ["5", "3", "1"]
    rows = json.loads(output(redis_server, "list", "--json", "--oldest-first", "status=error"))
    assert [row["identifier"] for row in rows] == ["letter 0", "letter 1"]
    assert rows[0].keys() == {"ident", "identifier", "status", "queue", "priority", "tries", "added", "start", "end"}
    assert (rows[0]["status"], rows[0]["queue"], rows[0]["priority"], rows[0]["tries"]) == ("error", "letters", 0, 1)
    assert len([json.loads(line) for line in output(redis_server, "list", "--jsonl").splitlines()]) == 6


@pytest.mark.proof
def test_who_reads_no_further_is_told_nothing(redis_server: RedisServer) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    env = {**os.environ, "LIMPYD_JOBS_DATABASE": redis_server.url}
    done = subprocess.run([COMMAND, "jobs", "list"], env=env, stdout=theirs, stderr=subprocess.PIPE, timeout=60)
    os.close(theirs)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


OUTPUTS = {"closed": "standard output is closed", "full": "the output cannot be written: No space left on device"}


@pytest.mark.matrix(1)
@pytest.mark.parametrize(("output", "arguments"), [("closed", ">&-"), ("full", ">/dev/full")])
@pytest.mark.parametrize("words", [["jobs", "list"], ["jobs", "cancel", "to=ann", "--yes"]])
def test_an_output_that_cannot_be_written_is_told_in_a_line(
    redis_server: RedisServer, output: str, arguments: str, words: list[str]
) -> None:
    env = {**os.environ, "LIMPYD_JOBS_DATABASE": redis_server.url}
    command = [
        "sh",
        "-c",
        f'exec "$@" {arguments}',
        "sh",
        COMMAND,
        *words,
        *([JOBS, PATH] if "cancel" in words else []),
    ]
    done = subprocess.run(command, env=env, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.endswith(f"error: {OUTPUTS[output]}\n")


def test_a_page_tells_how_to_go_on(redis_server: RedisServer) -> None:
    status, out, err = run(redis_server, "list", "--limit=4", "--jsonl")
    assert (status, len(out.splitlines())) == (0, 4)
    told, _, after = err.strip().rpartition("--after=")
    assert told == "limpyd-jobs jobs: there are more jobs: "
    rest = [json.loads(line) for line in output(redis_server, "list", "--jsonl", f"--after={after}").splitlines()]
    assert [row["identifier"] for row in rest] == ["letter 1", "letter 0"]


def test_a_job_is_shown_with_its_errors(redis_server: RedisServer) -> None:
    ident = f"{Letter.get_model_repr()}:2"
    shown = output(redis_server, "show", ident)
    assert shown.splitlines()[0].split() == ["job", ident]
    assert ["status", "error"] in [line.split() for line in shown.splitlines()]
    assert "KeyError: 'no address of ann'" in shown
    assert "Traceback (most recent call last)" in shown
    (details,) = json.loads(output(redis_server, "show", ident, "--json"))
    assert details["fields"]["to"] == "ann"
    assert details["errors"][0]["type"] == "KeyError"


@pytest.mark.matrix(6)
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["lists"], "'lists' is not one of list, count, show, follow, explain, "),
        (["cancle"], "delay, promote, delete: is cancel meant?"),
        (["cancel"], "say which jobs to cancel: give a filter, idents, or --all for all jobs"),
        (["cancel", "--all", "to=ann"], "say which jobs to cancel: "),
        (["cancel", "9a=ann"], "'9a=ann' is not a condition"),
        (["move", "to=ann"], "say where to move the jobs: give --queue, --priority, or both"),
        (["delay", "to=ann"], "say until when to delay the jobs: give --for or --until"),
        (["delay", "to=ann", "--until=+1h", "--for=3"], "--for and --until do not go together"),
        (["delay", "to=ann", "--for=soon"], "'soon' is not a time span: write it as 90, 90s, 30m, 1h or 2d"),
        (["delay", "to=ann", "--for=0h"], "The for argument (0h) must be a positive integer"),
        (["delay", "to=ann", "--until=soon"], "--until: 'soon' is not a time: write "),
        (["list", "=x"], "'=x' is not a condition: write it as field=value"),
        (["count", "too=ann"], "None of these classes has a field 'too': is to meant? There are: "),
        (["count", "--by=too"], "has a field 'too'"),
        (["count", "status=fine"], "'fine' is not a status: waiting, delayed, running, success, error, canceled"),
        (["list", "--limit=0"], "must be a number from 1 to 10000"),
        (["list", "--after=x"], "'x' is not where a page ended: give what the page before told after --after="),
        (["explain"], "explain needs the ident of a job after it"),
        (["explain", "x"], "'x' is not the ident of a job, for example myapp.jobs.SendMail:12: write identifier=x if "),
        (["shop.SendMail:1"], ", delete: is show shop.SendMail:1 meant?"),
        (["to=ann", "status=error"], ", delete: is list to=ann meant?"),
        (["explain", "identifer=x"], "'identifer=x' is not the ident of a job: is identifier= meant?"),
        (["show"], "show needs the ident of a job after it"),
        (["show", "x"], "'x' is not the ident of a job"),
        (["show", "no.such.Class:1"], "no.such.Class is not a job class of this database"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(redis_server: RedisServer, arguments: list[str], told: str) -> None:
    status, out, err = run(redis_server, *arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("limpyd-jobs jobs: error: ")
    assert told in err


JOBS = f"--job-modules={__name__}"
PATH = f"--pythonpath={Path(__file__).parent}:{Path(__file__).parents[1]}"


def act(server: RedisServer, *arguments: str) -> tuple[int, str]:
    status, out, err = run(server, *arguments, JOBS, PATH)
    assert err == ""
    return status, out


def test_what_a_verb_would_do_is_told_before(redis_server: RedisServer) -> None:
    told = "jobs\n2     would be requeued\n4     not in error\n"
    assert act(redis_server, "requeue", "--all", "--dry-run") == (0, told)
    assert output(redis_server, "count", "status=error") == "2\n"


def test_programs_are_told_that_nothing_was_done(redis_server: RedisServer) -> None:
    told = {"done": 2, "skipped": 4, "refused": 0, "reasons": {"not in error": 4}, "dry_run": True}
    for option in ("--json", "--jsonl"):
        assert json.loads(act(redis_server, "requeue", "--all", "--dry-run", option)[1]) == told


def test_where_there_is_no_terminal_a_yes_is_needed(redis_server: RedisServer) -> None:
    status, out, err = run(redis_server, "cancel", "to=ann", "status=waiting", JOBS, PATH)
    assert (status, out) == (2, "")
    assert "cancel 2 jobs? Give --yes to do so, or --dry-run for what would be done" in err
    assert output(redis_server, "count", "status=canceled") == "0\n"


def test_all_jobs_of_a_filter_are_requeued_moved_delayed_promoted_canceled_and_deleted(
    redis_server: RedisServer,
) -> None:
    assert act(redis_server, "requeue", "status=error", "to=ann", "--yes") == (0, "jobs\n1     requeued\n")
    assert act(redis_server, "move", "to=ann", "--queue=others", "--force", "--priority=2", "--yes")[0] == 0
    assert output(redis_server, "count", "queue=others", "priority=2") == "3\n"
    assert act(redis_server, "delay", "queue=others", "--until=+1h", "--yes") == (0, "jobs\n3     delayed\n")
    assert output(redis_server, "count", "delayed_until>+59m", "status=delayed") == "3\n"
    assert act(redis_server, "promote", "status=delayed", "--yes") == (0, "jobs\n3     promoted\n")
    assert act(redis_server, "cancel", "queue=others", "--yes") == (0, "jobs\n3     canceled\n")
    status, out = act(redis_server, "delete", "--all", "--yes", "--json")
    assert (status, json.loads(out)) == (0, {"done": 6, "skipped": 0, "refused": 0, "reasons": {}})
    assert output(redis_server, "count") == "0\n"


@pytest.mark.matrix(1)
@pytest.mark.parametrize(
    ("answer", "number", "option"),
    [("y\n", 2, ["--json"]), ("n\n", 0, ["--json"]), ("\n", 0, []), ("\x04", 0, [])],
)
def test_a_person_at_a_terminal_is_asked(
    redis_server: RedisServer, answer: str, number: int, option: list[str]
) -> None:
    ours, theirs = pty.openpty()
    command = [COMMAND, "jobs", "cancel", "to=ann", "status=waiting", JOBS, PATH, *option]
    env = {**os.environ, "LIMPYD_JOBS_DATABASE": redis_server.url}
    os.write(ours, answer.encode())
    done = subprocess.run(command, env=env, stdin=theirs, capture_output=True, text=True, timeout=60)
    os.close(theirs)
    os.close(ours)
    assert done.stderr.startswith("cancel 2 jobs? [y/N] ")
    assert done.stderr.endswith("limpyd-jobs jobs: nothing was done\n") == (number == 0)
    assert (done.returncode, bool(done.stdout)) == ((0, True) if number else (1, False))
    assert output(redis_server, "count", "status=canceled") == f"{number}\n"
    if option and number:
        assert json.loads(done.stdout)["done"] == number


def test_jobs_may_be_named_by_their_idents(redis_server: RedisServer) -> None:
    idents = [f"{Letter.get_model_repr()}:{pk}" for pk in (3, 4)]
    assert act(redis_server, "cancel", *idents, "--yes") == (0, "jobs\n2     canceled\n")
    status, out = act(redis_server, "cancel", f"{Letter.get_model_repr()}:99", "--yes")
    assert (status, out) == (1, f"jobs\n0     canceled\n1     there is no job {Letter.get_model_repr()}:99\n")


def test_what_is_refused_is_told_with_the_reason(redis_server: RedisServer) -> None:
    Letter.add_job("letter 0", to="again")
    told = "jobs\n1     requeued\n1     already queued\n"
    assert act(redis_server, "requeue", "status=error", "--yes") == (1, told)


def test_who_did_what_is_told(redis_server: RedisServer) -> None:
    act(redis_server, "requeue", "status=error", "--yes")
    done = preloaded.run([COMMAND, "audit", "--json"], env={**os.environ, "LIMPYD_JOBS_DATABASE": redis_server.url})
    (entry,) = json.loads(done.stdout)
    assert (entry["verb"], entry["filter"], entry["done"]) == ("requeue", "status=error", 2)
    numbers = ["done", "skipped", "refused"]
    done = preloaded.run([COMMAND, "audit"], env={**os.environ, "LIMPYD_JOBS_DATABASE": redis_server.url})
    assert done.stdout.splitlines()[0].split() == [
        "at",
        "(UTC)",
        "who",
        "verb",
        "filter",
        "how",
        *numbers,
        "until",
        "(UTC)",
        "outcome",
    ]
    assert len(done.stdout.splitlines()) == 2


def test_why_a_job_does_not_run_is_told(redis_server: RedisServer) -> None:
    ident = f"{Letter.get_model_repr()}:4"
    shown = output(redis_server, "explain", ident).splitlines()
    assert shown[:2] == [f"{ident}: waiting", "  1 job waits before it in the queue letters."]
    told = json.loads(output(redis_server, "explain", ident, "--json"))
    assert (told["ident"], told["status"], told["reasons"][0]["code"]) == (ident, "waiting", "jobs_before")
    both = json.loads(output(redis_server, "explain", ident, ident, "--json"))
    assert [each["ident"] for each in both] == [ident] * 2
    for verb in ("explain", "show"):
        lines = output(redis_server, verb, ident, ident, "--jsonl").splitlines()
        assert [json.loads(line)["ident"] for line in lines] == [ident] * 2


def test_jobs_are_exported_with_all_that_is_stored(redis_server: RedisServer) -> None:
    rows = [json.loads(line) for line in output(redis_server, "export", "to=ann").splitlines()]
    assert [row["identifier"] for row in rows] == ["letter 5", "letter 3", "letter 1"]
    assert rows[2].keys() >= {"ident", "queue", "status", "to", "added", "start", "end", "tries", "priority"}
    assert (rows[2]["status"], rows[2]["queue"], rows[2]["to"]) == ("error", "letters", "ann")
    assert not any(name.startswith("_") for row in rows for name in row)
    assert len(output(redis_server, "export", "--all").splitlines()) == 6
    assert output(redis_server, "export", "to=eve") == ""


def test_a_job_is_added(redis_server: RedisServer) -> None:
    path = Letter.get_model_repr()
    status, out = act(redis_server, "add", path, "letter 9", "to=eve=\n", "--queue=slow", "--force", "--priority=3")
    assert (status, out) == (0, f"{path}:7\n")
    job = Letter.get(7)
    assert (job.identifier.hget(), job.to.hget(), job.priority.hget()) == ("letter 9", "eve=\n", "3")
    act(redis_server, "add", path, "letter 10", "to=eve", "--for=60")
    assert Letter.get(8).status.hget() == "d"
    status, out = act(redis_server, "add", path, "letter 11", "to=eve", "--json")
    assert json.loads(out) == {"ident": f"{path}:9", "identifier": "letter 11"}


def test_that_a_job_is_queued_already_is_told(redis_server: RedisServer) -> None:
    words = ("add", Letter.get_model_repr(), "letter 9", "to=eve")
    act(redis_server, *words)
    status, out, err = run(redis_server, *words, JOBS, PATH)
    assert (status, out) == (0, f"{Letter.get_model_repr()}:7\n")
    assert err == "limpyd-jobs jobs: a job of this identifier is queued already, so none was added\n"
    Letter.get(7).cancel()
    assert act(redis_server, *words) == (0, f"{Letter.get_model_repr()}:8\n")


@pytest.mark.matrix(2)
@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90.5", 90.5), ("90s", 90), ("30m", 1800), ("1.5h", 5400), ("2d", 172_800)]
)
def test_a_delay_is_given_in_seconds_or_larger_units(redis_server: RedisServer, text: str, seconds: float) -> None:
    before = utcnow()
    act(redis_server, "delay", "identifier=letter 5", f"--for={text}", "--yes")
    until = parse_datetime(Letter.get(6).delayed_until.hget())
    assert until is not None
    assert seconds <= (until - before).total_seconds() < seconds + 60


def test_that_nothing_is_found_as_a_name_is_wrong_is_told(redis_server: RedisServer) -> None:
    told = {
        "queue=leters": "no queue is named leters, but there is: letters",
        "queue=x": "no queue is named x",
        "class=Leter": "no job class is Leter, but there is: Letter",
        f"class={__name__}.Leter": f"no job class is {__name__}.Leter, but there is: {__name__}.Letter",
    }
    for word, text in told.items():
        for words in (["list"], ["count"], ["count", "--by=status"]):
            status, out, err = run(redis_server, *words, word)
            assert (status, len(out.splitlines()), err) == (0, 1, f"limpyd-jobs jobs: {text}\n")
    for word in ("queue=letters", "queue!=leters", "class=Leter*", "class=Letter"):
        assert output(redis_server, "count", word, "identifier=x") == "0\n"


@pytest.mark.matrix(3)
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["add"], "add needs a class after it, for example"),
        (["add", "no.such.Class", "a"], "no.such.Class cannot be imported: "),
        (["add", Parcel.get_model_repr(), "a"], "Queue's name not defined: give --queue, or let Parcel have one"),
        (["add", Letter.get_model_repr(), "a", "to"], "'to' is not a field: write it as field=value"),
        (["add", Letter.get_model_repr(), "a", "too=b"], "Letter has no field 'too'"),
        (["add", Letter.get_model_repr(), "a", "_claim_token=b"], "Letter has no field '_claim_token'"),
        (["add", Letter.get_model_repr(), "a"], "'to'"),
        (["export"], "say which jobs to export"),
        (["export", "--all", "to=ann"], "say which jobs to export"),
    ],
)
def test_what_cannot_be_added_or_exported_is_said(redis_server: RedisServer, arguments: list[str], told: str) -> None:
    status, out, err = run(redis_server, *arguments, JOBS, PATH)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert told in err
    assert output(redis_server, "count") == "6\n"


@pytest.mark.matrix(3)
@pytest.mark.parametrize("key", ["command:letter:1:hash", "jobs:error:1:hash"])
@pytest.mark.parametrize("words", ["show {}", "explain {}", "list", "count --by=status", "export --all", "list --json"])
def test_what_is_stored_cannot_command_a_terminal(
    redis_server: RedisServer, redis_client: Any, key: str, words: str
) -> None:
    for name in set(redis_client.hkeys(key)) - {"job_pk", "job_model_repr"}:
        redis_client.hset(key, name, b"\xff\x1b]0;x\x07\xc2\x9b")
    out = output(redis_server, *words.format("test_jobs_command.Letter:1").split())
    assert out.replace("\n", "").isprintable()


def test_a_value_that_no_database_can_hold_is_refused_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        Jobs("limpyd-jobs jobs", ["count", "to=\ud800"]).execute()
    assert "'utf-8' codec can't encode" in capsys.readouterr().err


@pytest.mark.proof
def test_a_verb_that_is_interrupted_says_what_to_do(redis_server: RedisServer) -> None:
    Letter.add_jobs((f"more {number}" for number in range(10_000)), to="ann")
    environment = {**os.environ, "LIMPYD_JOBS_DATABASE": redis_server.url}
    command = [COMMAND, "jobs", "cancel", "status=waiting", "--yes", JOBS, PATH]
    child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    canceled = JobFilter("status=canceled")
    wait_until(lambda: canceled.count().number, "a canceled job")
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out) == (128 + signal.SIGINT, "")
    assert "limpyd-jobs jobs: not all is done; what was done stays done: see limpyd-jobs audit" in err
    assert JobFilter("status=waiting").count().number > 0


def test_one_job_may_be_named_by_its_identifier(redis_server: RedisServer) -> None:
    ident = f"{Letter.get_model_repr()}:4"
    for verb in ("show", "explain"):
        assert output(redis_server, verb, "identifier=letter 3") == output(redis_server, verb, ident)
    _, _, err = run(redis_server, "explain", "identifier=letter")
    assert err == "limpyd-jobs jobs: error: there is no job with identifier=letter\n"


def test_of_several_jobs_of_an_identifier_the_queued_or_the_last_one_is_taken(redis_server: RedisServer) -> None:
    name, again = Letter.get_model_repr(), Letter.add_job("letter 0", to="again")
    told = f"{name}:7 (waiting), {name}:1 (error)"
    status, _, err = run(redis_server, "release", "identifier=letter 0")
    assert (status, err) == (
        2,
        f"limpyd-jobs jobs: error: 2 jobs have identifier=letter 0; give the ident of one: {told}\n",
    )
    status, out, err = run(redis_server, "explain", "identifier=letter 0")
    assert (status, out.splitlines()[0]) == (0, f"{name}:7: waiting")
    assert err == f"limpyd-jobs jobs: 2 jobs have identifier=letter 0: {told}. Taken: {name}:7\n"
    assert output(redis_server, "explain", "identifier=letter 0", "status=error").startswith(f"{name}:1: error\n")
    again.claim("me", lease=60)
    release = ("release", "identifier=letter 0", "--force", "--dry-run", JOBS, PATH)
    assert run(redis_server, *release)[1] == f"{name}:7: would be released\n"
    again.cancel()
    assert run(redis_server, "show", "identifier=letter 0")[1].split()[1] == f"{name}:7"


def test_a_job_is_released(redis_server: RedisServer) -> None:
    Letter.get("3").claim("me", lease=60)
    status, _, err = run(redis_server, "release", "identifier=letter 2", JOBS, PATH)
    assert (status, err.partition(". ")[2]) == (2, "If you are sure that it does not, give --force\n")
    ident = f"{Letter.get_model_repr()}:3"
    release = ("release", "identifier=letter 2", "--force", JOBS, PATH)
    assert output(redis_server, *release, "--dry-run") == f"{ident}: would be released\n"
    assert output(redis_server, *release) == f"{ident}: released\n"
    assert output(redis_server, "explain", ident).startswith(f"{ident}: waiting\n")
