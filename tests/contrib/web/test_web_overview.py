"""The overview says what needs attention, and sends news to all who watch for the price of one."""

from __future__ import annotations

import time
from typing import Any

import anyio
import pytest
import redis
from asking import BROWSER, PROGRAM, Dashboard

from limpyd_jobs import Job, Worker
from limpyd_jobs.contrib.web import kept, live
from limpyd_jobs.contrib.web.kept import Recent
from limpyd_jobs.contrib.web.live import Sampler
from limpyd_jobs.contrib.web.pages import overview as page_of_overview
from limpyd_jobs.contrib.web.refusals import Refusal
from limpyd_jobs.query import Incident, pause_queue
from limpyd_jobs.query.attention.remedies import requeue

pytestmark = pytest.mark.usefixtures("redis_client")


class Parcel(Job):
    namespace = "web-overview"
    queue_name = "parcels"

    def run(self, queue: Any) -> None:
        if self.identifier.hget().startswith("bad"):
            raise ValueError("no such street")


def codes(dashboard: Dashboard) -> list[tuple[str, str]]:
    return [(each["code"], each["queue"]) for each in dashboard.read("/")["attention"]]


def test_it_says_what_needs_attention() -> None:
    dashboard = Dashboard()
    assert codes(dashboard) == []
    assert "Ready for a first job" in dashboard.get("/").text
    Parcel.add_job("one")
    assert codes(dashboard) == [("unserved", "parcels")]
    shown = dashboard.get("/").shown
    assert "No worker serves parcels," in shown
    assert "1 job waits in parcels" not in shown  # the title says how many
    pause_queue("jobs:queue", "parcels")
    assert codes(dashboard) == [("paused", "parcels")]


def test_a_command_that_a_page_shows_is_safe_to_paste() -> None:
    Parcel.add_job("one", queue_name="a; rm -rf ~")
    page = Dashboard().get("/queues/queue?name=a%3B+rm+-rf+~").shown
    assert "limpyd-jobs-worker '--queues=a; rm -rf ~'" in page
    assert "limpyd-jobs-worker --queues=a;" not in page


def test_many_things_of_a_kind_are_one_and_of_many_kinds_some_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_of_overview, "MAX_ATTENTION", 1)
    for number in range(5):
        Parcel.add_job(f"{number}", f"parcels{number}")
    Parcel.add_job("other", "others")
    pause_queue("jobs:queue", "others")
    dashboard = Dashboard()
    (only,) = dashboard.read("/")["attention"]
    assert (only["code"], only["title"], only["queues_count"]) == ("unserved", "No worker is running: 5 jobs wait", 5)
    assert dashboard.read("/")["other_attention"] == 1
    assert "1 more thing: <code>limpyd-jobs info</code> lists all." in dashboard.get("/").shown


def test_what_a_requeue_helps_has_a_card_whatever_else_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    others = [Incident("waiting", "error", f"{number} jobs wait", "", [f"queue {number}"]) for number in range(5)]
    over = Incident(
        "failures",
        "over",
        "2 jobs failed",
        "",
        ["mails"],
        remedy=requeue(["mails"], "f" * 16, 2, is_exact=True, note=""),
    )
    monkeypatch.setattr(page_of_overview, "attention", lambda seen: [*others, over])
    page = Dashboard().get("/").shown
    cards, _, folded = page.partition("more-incidents")
    assert "Requeue 2 at 50/s" in cards
    assert 'name="queue" value="mails"' in cards, "of that queue"
    assert "3 jobs wait" in folded
    assert "3 jobs wait" not in cards


def test_it_says_that_schedules_are_late_and_jobs_deferred(redis_client: redis.Redis) -> None:
    now = time.time()
    redis_client.zadd("jobs:schedule:due", {"1": now - 240, "2": now + 3600})
    dashboard = Dashboard()
    assert codes(dashboard) == [("late_schedule", "")]
    page = dashboard.get("/").shown
    assert "1 schedule is late by 4 min." in page
    assert 'href="/schedules">See the schedules' in page
    redis_client.zadd("jobs:schedule:due", {"3": now - 100})
    assert "2 schedules are late, one by 4 min." in dashboard.get("/").shown
    redis_client.delete("jobs:schedule:due")
    Parcel.add_job("later", delayed_for=3600)
    ident = "gone.jobs.Parcel:1"
    redis_client.zadd("jobs:queue:1:delayed", {ident: now})
    redis_client.hset("jobs:queue:1:_deferrals", ident, 1)
    assert ("deferred", "parcels") in codes(dashboard)
    assert "In parcels, 1 job waits for a worker that can import the class" in dashboard.get("/").shown


def test_a_name_is_told_of_once_whatever_its_priorities() -> None:
    for priority in (0, 5):
        Parcel.add_job(f"{priority}", priority=priority)
    dashboard = Dashboard()
    assert codes(dashboard) == [("unserved", "parcels")]
    assert "2 jobs wait" in dashboard.get("/").shown


def test_it_says_which_jobs_were_left_by_a_worker_that_died(redis_client: redis.Redis) -> None:
    job = Parcel.add_job("one")
    job.claim(owner="web1:12")
    dashboard = Dashboard()
    assert codes(dashboard) == []
    redis_client.zadd("jobs:queue:1:_running", {job.ident: 1})
    assert codes(dashboard) == [("lapsed", "parcels")]
    shown = dashboard.get("/").shown
    assert "Of 1 job recorded as running in parcels," in shown  # its title, in two sizes
    assert shown.count("the lease of 1 ended") == 2  # and what a screen reader says; the text does not repeat it
    assert "No worker is there" in shown
    assert "of those running, the lease of 1 ended" in dashboard.get("/queues/queue?name=parcels").shown
    Parcel.add_job("two")
    assert codes(dashboard) == [("unserved", "parcels"), ("lapsed", "parcels")]


def test_it_shows_what_was_run_in_the_last_hour() -> None:
    for name in ("good", "bad 1", "bad 2", "bad 3"):
        Parcel.add_job(name)
    Worker("parcels", max_loops=4, terminate_gracefuly=False).run()
    dashboard = Dashboard()
    read = dashboard.read("/")
    series = read["series"]
    assert (len(series["starts"]), [queue["name"] for queue in series["queues"]]) == (61, ["parcels"])
    assert {what: sum(series["queues"][0][what]) for what in ("started", "succeeded", "failed")} == {
        "started": 4,
        "succeeded": 1,
        "failed": 3,
    }
    assert ("failures", "parcels") in codes(dashboard)
    assert "<dt>Tries</dt><dd>3 of 4 failed</dd>" in dashboard.get("/").shown
    assert read["totals"]["error"] == 3


def test_a_stream_sends_the_live_part_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "STREAM_LASTS", 0.0)
    dashboard = Dashboard()
    answer = dashboard.get("/live")
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = answer.text.splitlines()
    assert {line[:6] for line in lines} <= {"data: ", ""}
    assert " hx-" not in answer.text  # htmx would refuse what has no nonce of the page
    assert "Ready for a first job" in answer.text


def test_where_a_stream_would_hold_a_thread_pages_ask_again_and_again() -> None:
    dashboard = Dashboard(streams=False)
    page = dashboard.get("/").text
    assert 'hx-get="/live" hx-trigger="every 5s"' in page
    assert "hx-sse:" not in page
    answer = dashboard.get("/live")
    assert answer.headers["content-type"].startswith("text/html")
    assert "<html" not in answer.text
    assert "Ready for a first job" in answer.text


def test_the_stream_needs_a_user_who_may_look() -> None:
    assert Dashboard(token="a-token-of-admins").get("/live").status == 401


def test_one_look_is_for_all_who_watch_and_none_is_without() -> None:
    looks = 0

    async def look() -> int:
        nonlocal looks
        looks += 1
        return looks

    async def watch(of: Sampler[int], seen: list[int]) -> None:
        stream = of.watch()
        async for number in stream:
            seen.append(number)
            if number == 3:
                break
        await stream.aclose()

    async def run() -> None:
        found = Sampler(look, every=0.001)
        seen: list[list[int]] = [[] for _ in range(50)]
        async with anyio.create_task_group() as group:
            for each in seen:
                group.start_soon(watch, found, each)
        assert seen == [[1, 2, 3]] * 50
        assert not found.is_looking

    anyio.run(run)
    assert looks == 3


def test_the_number_of_streams_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MAX_WATCHERS", 1)

    async def look() -> int:
        return 1

    async def run() -> None:
        found = Sampler(look)
        first, second = found.watch(), found.watch()
        assert await anext(first) == 1
        with pytest.raises(Refusal, match="1 browsers watch already"):
            await anext(second)
        await first.aclose()
        assert not found.is_looking

    anyio.run(run)


def test_without_redis_pages_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from limpyd_jobs.integration import JobsDatabase

    dashboard = Dashboard(database=JobsDatabase(unix_socket_path="/nowhere/redis.sock"), streams=False)
    answer = dashboard.get("/queues", PROGRAM)
    assert answer.status == 503
    assert answer.json["error"].startswith("Redis cannot be used: ")
    assert "Redis cannot be used" in dashboard.get("/live", BROWSER).text
    assert (dashboard.get("/health").status, dashboard.get("/health").text) == (503, "not ok\n")


def test_a_look_that_took_long_is_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(kept, "monotonic", lambda: clock[0])

    def look() -> float:
        clock[0] += 10.0
        return clock[0]

    recent = Recent(look, 1.0)
    assert recent() == recent() == 10.0


def test_what_another_program_wrote_is_named_with_the_remedy(redis_client: redis.Redis) -> None:
    redis_client.set("jobs:schedule:collection", "text")
    redis_client.set("limpyd-jobs:audit", "text")
    dashboard = Dashboard()
    answer = dashboard.get("/schedules", PROGRAM)
    assert (answer.status, "limpyd-jobs check --repair mends it" in answer.json["error"]) == (503, True)
    Job.add_job("a", "mails")
    refused = dashboard.post("/queues/pause", {"queue": "mails", "confirmed": "1"}, PROGRAM)
    assert (refused.status, "give --unaudited to the command limpyd-jobs" in refused.json["error"]) == (409, True)
