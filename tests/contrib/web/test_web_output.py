"""The dashboard sends the output of a job, as server-sent events, to those who may look at the job."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import redis
from asking import Dashboard

from limpyd_jobs import Job
from limpyd_jobs.contrib.web.pages import output

pytestmark = pytest.mark.usefixtures("redis_client")


class Answer(Job):
    namespace = "web-output"
    queue_name = "answers"
    masked_fields = ("plan",)


def events(text: str) -> list[tuple[str, Any]]:
    """Return the chunks of a stream: the id, and the value with the number of its run; or what the event is."""
    found = []
    for event in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in event.splitlines())
        if "id" in fields:
            found.append((fields["id"], json.loads(fields["data"])))
        elif "event" in fields:
            found.append((fields["event"], json.loads(fields["data"])))
    return found


def emitted(*values: Any) -> Answer:
    """Return a job that emitted something, and has ended."""
    job = Answer.add_job()
    with job.claim("ann"):
        job.emit(*values)
    return job


CHUNKS = [("1-1", {"value": "Hel\nlo", "run": 1}), ("1-2", {"value": {"n": 2}, "run": 1})]


def test_it_sends_each_chunk_and_says_when_the_job_has_ended() -> None:
    job = emitted("Hel\nlo", {"n": 2})
    for dashboard in (Dashboard(), Dashboard(streams=False)):
        answer = dashboard.get(f"/output/{job.ident}")
        assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
        assert events(answer.text) == [*CHUNKS, ("end", {})]
        after_one = dashboard.get(f"/output/{job.ident}", {"last-event-id": "1-1"})
        assert events(after_one.text) == [CHUNKS[1], ("end", {})]
        assert dashboard.get(f"/output/{job.ident}", {"last-event-id": "1-2"}).status == 204  # browsers ask no more


def test_it_goes_on_until_the_job_ends() -> None:
    async def follow() -> Any:
        job = Answer.add_job()
        claim = job.claim("ann")
        stream = asyncio.ensure_future(Dashboard().aask("GET", f"/output/{job.ident}", stays=True))
        for number in range(3):
            await job.aemit(number)
            await asyncio.sleep(0)
        await asyncio.to_thread(claim.succeed)
        return (await stream).text

    found = events(asyncio.run(follow()))
    assert [name for name, _ in found] == ["1-1", "1-2", "1-3", "end"]


def test_a_stream_ends_after_a_while_and_with_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    async def follow() -> Any:
        dashboard, job = Dashboard(), Answer.add_job()
        stream = asyncio.ensure_future(dashboard.aask("GET", f"/output/{job.ident}", stays=True))
        while not stream.done():
            dashboard.app.state.end()
            await asyncio.sleep(0.01)
        monkeypatch.setattr(output, "STREAM_LASTS", 0.0)
        return await stream, await dashboard.aask("GET", f"/output/{job.ident}", stays=True)

    for answer in asyncio.run(follow()):
        assert (answer.status, events(answer.text)) == (200, [])


def test_where_a_stream_would_hold_a_thread_it_sends_what_there_is() -> None:
    job = Answer.add_job()
    job.claim("ann")
    job.emit("Hel\nlo", {"n": 2})
    answer = Dashboard(streams=False).get(f"/output/{job.ident}")
    assert events(answer.text) == CHUNKS
    assert "retry: 2000" in answer.text


def test_it_is_for_those_who_may_look_at_the_job() -> None:
    job = emitted("a")
    dashboard = Dashboard(view_token="a-token-of-viewers")
    assert dashboard.get(f"/output/{job.ident}").status == 401
    assert dashboard.get(f"/output/{job.ident}", {"authorization": "Bearer a-token-of-viewers"}).status == 200


def test_what_is_secret_is_masked() -> None:
    job = emitted({"password": "hunter2", "plan": "secret plan", "n": 1}, '{"api_key": "hunter2"}')
    text = Dashboard().get(f"/output/{job.ident}").text
    assert "hunter2" not in text
    assert "secret plan" not in text
    assert '"n": 1' in text
    assert "(masked)" in Dashboard(masked=["output"]).get(f"/output/{job.ident}").text


def test_what_another_program_wrote_is_sent_as_json_that_browsers_read(redis_client: redis.Redis) -> None:
    job = Answer.add_job()
    with job.claim("ann"):
        job.emit("a")
        for number, value in enumerate((b'"\xff"', b'"\\ud800"', b"1e400", b"[NaN]"), 2):
            redis_client.xadd(f"{Answer._name}:{job.pk.get()}:_output", {"value": value}, id=f"1-{number}")
        text = Dashboard(streams=False).get(f"/output/{job.ident}").text
    assert [chunk for chunk, _ in events(text)] == ["1-1", "1-2", "1-3", "1-4", "1-5"]
    assert "Infinity" not in text
    assert ": [NaN" not in text


def test_what_cannot_be_followed_is_refused() -> None:
    job = emitted("a")
    dashboard = Dashboard()
    assert dashboard.get(f"/output/{job.ident}7").status == 404
    assert dashboard.get("/output/garbage").status == 400
    assert dashboard.get(f"/output/{job.ident}", {"last-event-id": "garbage"}).status == 400


def test_the_number_of_streams_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "MAX_FOLLOWERS", 0)
    assert Dashboard().get(f"/output/{emitted('a').ident}").status == 503


def test_the_page_of_the_job_shows_the_end_of_it_and_the_command_for_all() -> None:
    texts, others = emitted("Hel", "lo"), emitted("one", {"api_key": "s3cr3t"})
    page = Dashboard().get(f"/jobs/{texts.ident}").shown
    assert "2 chunks" in page
    assert ">Hello<" in page
    assert f"limpyd-jobs jobs follow {texts.ident}" in page
    assert Dashboard().read(f"/jobs/{others.ident}")["output"] == '"one"\n{"api_key": "(masked)"}'
    assert "chunks" not in Dashboard().get(f"/jobs/{Answer.add_job().ident}").shown
