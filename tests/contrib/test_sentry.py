"""Reports of failed jobs to Sentry."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import sentry_sdk
from running import fail, succeed, work
from sentry_sdk.envelope import Envelope
from sentry_sdk.integrations.logging import LoggingIntegration
from sentry_sdk.transport import Transport

from limpyd_jobs import Error, Job, Queue, events
from limpyd_jobs.contrib.sentry import Sentry

pytestmark = pytest.mark.usefixtures("redis_client")


class Parcel(Job):
    namespace = "sentry"
    queue_name = "queue"


class Kept(Transport):
    """Keeps what would be sent."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.reports: list[Any] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        self.reports += [json.loads(item.get_bytes()) for item in envelope.items if item.type == "event"]


@pytest.fixture
def sent() -> Iterator[list[Any]]:
    """The reports, of a client that also has the integration with the log."""
    transport = Kept()
    logs = [LoggingIntegration()]
    sentry_sdk.init("https://key@localhost/1", transport=transport, default_integrations=False, integrations=logs)
    yield transport.reports
    sentry_sdk.init(default_integrations=False)


@pytest.fixture
def sentry(sent: list[Any]) -> Iterator[Sentry]:
    sentry = Sentry()
    events.subscribe(sentry)
    yield sentry
    events.unsubscribe(sentry)


def test_a_failure_is_reported_once_with_its_cause_and_what_happened_before(sentry: Sentry, sent: list[Any]) -> None:
    def callback(job: Job, queue: Queue) -> None:
        sentry_sdk.add_breadcrumb(message="weighed")
        Parcel.add_job("later", queue_name="other")
        fail(job, queue)

    job = Parcel.add_job("one")
    worker = work(callback=callback)
    [report] = sent
    [error] = Error.collection().instances()
    assert report["fingerprint"] == [error.fingerprint.hget()]
    [raised] = report["exception"]["values"]
    assert (raised["type"], raised["value"], report["level"]) == ("ValueError", "it failed", "error")
    assert report["tags"] == {
        "job_class": f"{__name__}.Parcel",
        "queue": "queue",
        "worker": worker.id,
        "attempt": "1",
        "requeued": "no",
    }
    assert report["contexts"]["job"] == {"ident": job.ident}
    assert report["transaction"] == f"{__name__}.Parcel"
    crumbs = [crumb["message"] for crumb in report["breadcrumbs"]["values"]]
    assert crumbs == ["[queue|1|one] starting", "weighed", f"added in other: {__name__}.Parcel:2"]


def test_a_failure_after_which_the_job_is_tried_again_is_a_warning(sentry: Sentry, sent: list[Any]) -> None:
    Parcel.add_job("one")
    work(callback=fail, max_loops=2, requeue_times=1, requeue_delay_delta=0)
    assert [(report["level"], report["tags"]["attempt"]) for report in sent] == [("warning", "1"), ("error", "2")]
    assert sent[0]["fingerprint"] == sent[1]["fingerprint"]


def test_a_report_is_never_so_large_that_it_is_dropped(sentry: Sentry, sent: list[Any]) -> None:
    def callback(job: Job, queue: Queue) -> None:
        large = "x" * 1_000_000
        raise ValueError(large)

    Parcel.add_job("a")
    work(callback=callback)
    (report,) = sent
    (exception,) = report["exception"]["values"]
    assert exception["value"] == "x" * 8_192 + "… (1,000,000 characters)"
    assert len(json.dumps(report)) < 200_000


def test_by_a_setting_only_the_last_failure_is_reported(sentry: Sentry, sent: list[Any]) -> None:
    sentry.report_retried = False
    Parcel.add_job("one")
    work(callback=fail, max_loops=2, requeue_times=1, requeue_delay_delta=0)
    assert [report["tags"]["requeued"] for report in sent] == ["no"]


def test_what_a_job_tells_is_not_in_the_reports_of_others(sentry: Sentry, sent: list[Any]) -> None:
    def callback(job: Job, queue: Queue) -> None:
        if job.identifier.hget() == "two":
            fail(job, queue)
        sentry_sdk.set_tag("of", "one")
        sentry_sdk.add_breadcrumb(message="of one")

    Parcel.add_jobs(["one", "two"])
    work(callback=callback, max_loops=2)
    [report] = sent
    assert "of" not in report["tags"]
    assert "of one" not in [crumb["message"] for crumb in report["breadcrumbs"]["values"]]


def test_a_success_is_not_reported_and_other_logs_still_are(sentry: Sentry, sent: list[Any]) -> None:
    Parcel.add_job("one")
    work(callback=succeed)
    assert sent == []
    logging.getLogger("an application").error("of its own")
    assert [report["logentry"]["message"] for report in sent] == ["of its own"]


def test_without_a_client_nothing_happens() -> None:
    sentry_sdk.init(default_integrations=False)
    sentry = Sentry()
    events.subscribe(sentry)
    try:
        Parcel.add_job("one")
        assert work(callback=fail).num_loops == 1
    finally:
        events.unsubscribe(sentry)


def test_a_job_that_waits_is_not_reported(sent: list[Any], sentry: Sentry) -> None:
    def wait(job: Parcel, queue: Queue) -> None:
        job.wait_for("approval")

    Parcel.add_job("one")
    work(callback=wait)
    assert sent == []
