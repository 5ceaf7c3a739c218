"""A log in JSON names the job of each line, and its trace."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from running import fail, succeed, work

from limpyd_jobs import Job, Queue, Requeue, events
from limpyd_jobs.contrib.opentelemetry import Tracing
from limpyd_jobs.workers.config import WorkerConfig
from limpyd_jobs.workers.json_log import JsonFormatter, _fields

pytestmark = pytest.mark.usefixtures("redis_client")

Lines = Callable[[], list[dict[str, Any]]]
HOSTILE = 'one\n[1] {"level": "critical"}\x1b[2J\u202e\u2028'


class Parcel(Job):
    namespace = "json_log"
    queue_name = "queue"


@pytest.fixture
def lines() -> Iterator[Lines]:
    """Read what was logged, by the library and an application."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    loggers = [logging.getLogger(name) for name in ("limpyd-jobs", "application")]
    for logger in loggers:
        logger.addHandler(handler)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    for logger in loggers:
        logger.removeHandler(handler)
    events.unsubscribe(_fields)


@pytest.fixture
def tracing() -> Iterator[TracerProvider]:
    provider = TracerProvider()
    tracing = Tracing(tracer_provider=provider)
    events.subscribe(tracing)
    yield provider
    events.unsubscribe(tracing)


def of_job(line: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(line.get(name) for name in ("job", "class", "queue", "attempt"))


def test_a_line_names_its_worker_and_its_job(lines: Lines) -> None:
    job = Parcel.add_job("one")
    worker = work(callback=fail)
    started, starting, failed, terminated = lines()
    expected = job.ident, f"{__name__}.Parcel", "queue", 1
    assert [of_job(line) for line in (starting, failed)] == [expected] * 2
    assert [of_job(line) for line in (started, terminated)] == [(None,) * 4] * 2
    assert {line["worker"] for line in lines()} == {worker.id}
    assert (starting["message"], starting["level"]) == ("[queue|1|one] starting", "info")
    assert (failed["level"], failed["logger"]) == ("error", "limpyd-jobs")
    assert "trace_id" not in failed


@pytest.mark.parametrize("prefetch", [1, 10])
def test_a_line_names_its_job_also_if_its_end_is_recorded_later(prefetch: int, lines: Lines) -> None:
    jobs = Parcel.add_jobs(["one", "two", "three"])
    work(max_loops=3, prefetch=prefetch)
    succeeded = [line["job"] for line in lines() if "success" in line["message"]]
    assert succeeded == [job.ident for job in jobs]


def test_what_the_code_of_a_job_logs_names_the_job_and_the_current_span(lines: Lines, tracing: TracerProvider) -> None:
    spans: list[str] = []

    def callback(job: Job, queue: Queue) -> None:
        with tracing.get_tracer("tests").start_as_current_span("query"):
            spans.append(f"{trace.get_current_span().get_span_context().span_id:016x}")
            logging.getLogger("application").warning("slow %s", "query")
        raise Requeue

    job = Parcel.add_job("one")
    work(callback=callback)
    [slow] = [line for line in lines() if line["logger"] == "application"]
    assert (slow["message"], slow["span_id"], slow["job"]) == ("slow query", spans[0], job.ident)
    traced = [line for line in lines() if "job" in line]
    assert [line["message"].split()[1] for line in traced] == ["starting", "query", "requeued"]
    assert {line["trace_id"] for line in traced} == {str(job.trace_context.hget()).split("-")[1]}


def test_a_line_is_one_line_whatever_it_says(lines: Lines, capsys: pytest.CaptureFixture[str]) -> None:
    job = Parcel.add_job(HOSTILE)
    handler = logging.StreamHandler(stream := io.StringIO())
    handler.setFormatter(JsonFormatter())
    application = logging.getLogger("application")
    application.addHandler(handler)

    def callback(job: Job, queue: Queue) -> None:
        try:
            raise ValueError(HOSTILE * 10_000)
        except ValueError:
            application.exception(HOSTILE * 10_000)

    work(callback=callback)
    application.removeHandler(handler)
    [line] = stream.getvalue().splitlines()
    assert line.isascii()
    assert line.isprintable()
    assert len(line) < 500_000
    told = json.loads(line)
    assert told["message"].startswith(HOSTILE)
    assert told["exception"].startswith("Traceback")
    assert {line["job"] for line in lines() if "job" in line} == {job.ident}


def test_the_command_writes_it_by_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    Parcel.add_job("one")
    name = "limpyd-jobs.test-json"
    given = ["--queues=queue", f"--logger-name={name}", "--log-format=json", "--burst", f"--callback={__name__}.do"]
    try:
        WorkerConfig(["worker", "--no-title", "--no-terminate-gracefuly", *given]).execute()
    finally:
        logging.getLogger(name).handlers.clear()
        events.unsubscribe(_fields)
    told = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["job"] for line in told if "success" in line["message"]] == [f"{__name__}.Parcel:1"]


def test_all_that_a_job_logs_is_in_json_by_that_option(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Parcel.add_job("one")
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    given = ["--queues=queue", "--log-format=json", "--burst", f"--callback={__name__}.log_two_lines"]
    for _ in range(2):
        WorkerConfig(["worker", "--no-title", "--no-terminate-gracefuly", *given]).execute()
    events.unsubscribe(_fields)
    told = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["message"], line["job"]) for line in told if line["logger"] == "shop"] == [("hello\nx", job.ident)]
    assert len([line for line in told if "success" in line["message"]]) == 1


def log_two_lines(job: Job, queue: Queue) -> None:
    logging.getLogger("shop").warning("hello\nx")


do = succeed
