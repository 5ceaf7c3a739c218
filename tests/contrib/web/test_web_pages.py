"""Each page of the dashboard shows what there is, and its acts change it."""

from __future__ import annotations

import gzip
import re
import time
from concurrent.futures import wait
from datetime import timedelta
from html import unescape
from threading import Event, Semaphore
from typing import Any

import anyio
import pytest
import redis
from asking import PROGRAM, Dashboard

from limpyd_jobs import ConfigurationException, Job, Queue, Worker
from limpyd_jobs.contrib.web import User
from limpyd_jobs.contrib.web import tasks as web_tasks
from limpyd_jobs.contrib.web.pages import queues as page_of_queues
from limpyd_jobs.contrib.web.refusals import Refusal
from limpyd_jobs.contrib.web.rendering import distance
from limpyd_jobs.contrib.web.statics import FOLDER
from limpyd_jobs.contrib.web.tasks import Task, Tasks
from limpyd_jobs.query import JobFilter, Metrics, queue_states
from limpyd_jobs.records.metrics import KEY, LEVELS
from limpyd_jobs.search import walk

pytestmark = pytest.mark.usefixtures("redis_client")

# What the first page may weigh, with all that it loads, compressed.
FIRST_PAGE = 150_000


class Mail(Job):
    namespace = "web-pages"
    queue_name = "mails"

    def run(self, queue: Any) -> None: ...


def test_the_first_page_and_all_that_it_loads_is_small() -> None:
    dashboard = Dashboard()
    page = dashboard.get("/")
    loaded = re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text)
    answers = [dashboard.get(address, {"accept-encoding": "gzip"}) for address in loaded]
    assert len(answers) >= 5
    assert {answer.status for answer in answers} == {200}
    assert all("immutable" in answer.headers["cache-control"] for answer in answers)
    assert len(gzip.compress(page.content)) + sum(len(answer.content) for answer in answers) < FIRST_PAGE
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page.text)


def test_what_is_of_others_has_its_licence() -> None:
    vendored = FOLDER / "vendor"
    assert {path.stem for path in vendored.glob("*.LICENSE")} == {"htmx"}


def test_of_many_queues_some_are_shown_and_others_are_found_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_of_queues, "PER_PAGE", 2)
    for number in range(4):
        Mail.add_job(f"{number}", f"user{number}")
    dashboard = Dashboard()

    def names(address: str) -> list[str]:
        return [queue["name"] for queue in dashboard.read(address)["queues"]]

    assert (names("/queues"), dashboard.read("/queues")["others"]) == (["user0", "user1"], 2)
    assert names("/queues?q=R3") == ["user3"]
    assert names("/queues?limit=100") == ["user0", "user1", "user2", "user3"]
    assert "2 more queues" in dashboard.get("/queues").text
    assert "No queue has that in its name." in dashboard.get("/queues?q=x").text


def test_keys_of_queues_whose_model_is_not_known_are_told_of(redis_client: redis.Redis) -> None:
    redis_client.rpush("old:shelf:1:waiting", "old.app.Parcel:1")
    dashboard = Dashboard()
    assert dashboard.read("/queues")["unknown_models"] == ["old:shelf"]
    assert "Keys of queues of other models are there: old:shelf." in dashboard.get("/queues").text
    assert "If there are queues already" in dashboard.get("/").text
    Mail.add_job("one")
    assert dashboard.read("/queues")["unknown_models"] == []


def test_queues_are_paused_and_resumed(redis_client: redis.Redis) -> None:
    Mail.add_job("one")
    dashboard = Dashboard()
    assert dashboard.do("/queues/pause", {"queue": "mails"})["outcome"] == "mails is paused: running jobs go on"
    assert dashboard.read("/queues")["queues"][0]["paused"] is True
    assert dashboard.do("/queues/resume", {"queue": "mails"})["outcome"] == "mails is resumed"
    assert not queue_states("mails")[0].is_paused
    redis_client.sadd("jobs:queue:paused", *(f"gone{number:03}" for number in range(102)))
    read = dashboard.read("/queues")
    assert (len(read["paused_names"]), read["paused_names"][0], read["other_paused"]) == (100, "gone000", 2)
    assert "2 more names: the first ones are shown" in dashboard.get("/queues").shown


def test_slow_walks_hold_up_no_other_viewer_and_no_more_threads_than_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    Mail.add_job("one")
    begun, end, page, slow = Semaphore(0), Event(), JobFilter.page, list[JobFilter]()

    def slow_page(self: JobFilter, *args: Any, **options: Any) -> Any:
        if "slow" in str(self):
            slow.append(self)
            begun.release()
            assert end.wait(60)
        return page(self, *args, **options)

    async def ask() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(dashboard.aask, "GET", "/jobs?identifier=slow")
            await anyio.to_thread.run_sync(begun.acquire)
            assert (await dashboard.aask("GET", "/jobs?identifier=one")).status == 200
            for _ in range(5):
                group.start_soon(dashboard.aask, "GET", "/jobs?identifier=slow")
            await anyio.to_thread.run_sync(begun.acquire)
            for address in ("/", "/queues", "/errors", "/live", "/health"):
                assert (await dashboard.aask("GET", address)).status == 200
            assert len(slow) == 2  # of six
            end.set()

    monkeypatch.setattr(JobFilter, "page", slow_page)
    dashboard = Dashboard(threads=8, streams=False)  # of which a lane has a quarter
    anyio.run(ask)


def test_an_act_on_many_is_counted_and_confirmed_first() -> None:
    for number in range(3):
        Mail.add_job(f"{number}")
    Mail.add_job("later", delayed_for=timedelta(hours=1))
    dashboard = Dashboard()
    asked = dashboard.post("/queues/clear", {"queue": "mails"})
    assert " 4 jobs</button>" in asked.shown
    assert queue_states("mails")[0].waiting == 3
    done = dashboard.post("/queues/clear", {"queue": "mails", "confirmed": "1"})
    assert done.status == 303
    assert "<strong>4 done</strong>" in dashboard.get(done.headers["location"]).shown
    assert not queue_states("mails")[0].is_in_use


def test_a_short_act_does_not_wait_for_long_ones() -> None:
    tasks, end, user = Tasks(), Event(), User("ann", "view")
    try:
        long = [tasks.begin("count", user, "/", lambda step: f"{end.wait(60)}", "look") for _ in range(3)]
        short = tasks.begin("pause", user, "/", lambda step: "paused", "short")
        wait([short.future], 60)
        assert (short.text, long[2].is_over) == ("paused", False)
        long[2].stop.set()  # it has not begun yet
    finally:
        end.set()
    wait([task.future for task in long], 60)
    assert [bool(task.text) for task in long] == [True, True, False]


def test_a_count_to_confirm_ends_in_time_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_tasks, "COUNT_WITHIN", 0)
    monkeypatch.setattr(walk, "PER_STEP", 2)
    for number in range(3):
        Mail.add_job(f"{number}")
    dashboard = Dashboard()
    assert " at least 2 jobs</button>" in dashboard.post("/queues/clear", {"queue": "mails"}).shown
    counted = dashboard.post("/queues/clear", {"queue": "mails"}, PROGRAM).json
    assert (counted["outcome"]["done"], counted["is_exact"]) == (2, False)
    assert dashboard.do("/queues/clear", {"queue": "mails"})["outcome"]["done"] == 3


def test_an_act_that_goes_on_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_tasks, "MAX_TASKS", 2)
    tasks, end, user = Tasks(), Event(), User("ann", "act")
    try:
        first = tasks.begin("move", user, "/", lambda step: f"{end.wait(60)}", "long")
        for _ in range(3):
            wait([tasks.begin("pause", user, "/", lambda step: "paused", "short").future], 60)
        assert tasks.get(first.pk) is first
        tasks.begin("move", user, "/", lambda step: f"{end.wait(60)}", "long")
        with pytest.raises(Refusal, match="stop some"):
            tasks.begin("move", user, "/", lambda step: "moved", "long")
    finally:
        end.set()


def test_users_who_may_only_look_do_not_hold_up_those_who_may_act(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_tasks, "MAX_TASKS", 2)
    tasks, end, viewer, user = Tasks(), Event(), User("bob", "view"), User("ann", "act")
    try:
        done = tasks.begin("move", user, "/", lambda step: "moved", "long")
        for _ in range(2):
            tasks.begin("count", viewer, "/", lambda step: f"{end.wait(60)}", "look")
        with pytest.raises(Refusal, match="stop some"):
            tasks.begin("count", viewer, "/", lambda step: "counted", "look")
        pause = tasks.begin("pause", user, "/", lambda step: "paused", "short")
        wait([pause.future], 60)
        assert (pause.text, tasks.get(done.pk)) == ("paused", done)
    finally:
        end.set()


def test_what_an_act_is_about_does_not_forge_lines_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: object) -> str:
        raise ValueError("no such queue")

    Task("Pause mails\nFORGED", User("ann", "act"), "/").run(fail)
    assert caplog.messages == ["Pause mails\\nFORGED: ValueError: no such queue"]


def test_a_queue_is_one_row_whose_page_has_its_priorities() -> None:
    for priority in (0, 5):
        Mail.add_job(f"{priority}", priority=priority)
    dashboard = Dashboard()
    assert dashboard.get("/queues").shown.count('aria-label="Pause mails"') == 1
    page = dashboard.get("/queues/queue?name=mails").shown
    assert 'href="/jobs?status=waiting&queue=mails&priority=5"' in page
    row = {"queue": "mails", "priority": "5"}
    assert " 1 job</button>" in dashboard.post("/queues/move", {**row, "target": "others"}).shown
    asked = dashboard.post("/queues/clear", row).shown
    assert "in mails of priority 5" in asked
    assert 'name="priority" value="5"' in asked
    assert dashboard.do("/queues/clear", row)["outcome"]["done"] == 1
    assert {state.priority: state.waiting for state in queue_states("mails")} == {0: 1, 5: 0}


def test_jobs_are_moved_and_an_empty_queue_is_deleted() -> None:
    Mail.add_job("one")
    dashboard = Dashboard()
    assert (
        "There is no queue others yet" in dashboard.post("/queues/move", {"queue": "mails", "target": "others"}).shown
    )
    assert dashboard.do("/queues/move", {"queue": "mails", "target": "others"})["outcome"]["done"] == 1
    empty = queue_states("mails")[0]
    which = {"queue": "mails", "pk": empty.pk, "model": empty.model}
    assert dashboard.do("/queues/delete", which)["outcome"] == "mails is deleted"
    assert [state.name for state in queue_states()] == ["others"]


@pytest.mark.parametrize(("name", "status"), [(b"two\r\nlines", 303), (b"not UTF-8: \xe9", 400)])
def test_the_button_of_a_queue_sends_its_name_whatever_it_is(
    redis_client: redis.Redis, name: bytes, status: int
) -> None:
    redis_client.hset("jobs:queue:1:hash", mapping={"name": name, "priority": 0})
    for key in (b"collection", b"priority:0", b"name:" + name):
        redis_client.sadd(b"jobs:queue:" + key, 1)
    dashboard = Dashboard()
    [form] = re.findall(r'action="/queues/pause".*?</form>', dashboard.get("/queues").text, re.DOTALL)
    answer = dashboard.post("/queues/pause", dict(re.findall(r'name="([^"]*)" value="([^"]*)"', unescape(form))))
    assert (answer.status, "must be valid text" in answer.shown) == (status, status == 400)
    assert [state.is_paused for state in queue_states()] == [status == 303]


def test_the_environment_is_named_and_has_a_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    for given, name, colour in (
        ("production", "production", "magenta"),
        ("staging", "staging", "olive"),
        ("eu:magenta", "eu", "magenta"),
        ("", "", "grey"),
    ):
        monkeypatch.setenv("LIMPYD_JOBS_ENVIRONMENT", given)
        page = Dashboard().get("/queues").text
        assert f'<body class="env-{colour}">' in page
        assert (f'<span class="env">{name}</span>' in page) is bool(name)
    monkeypatch.setenv("LIMPYD_JOBS_ENVIRONMENT", "production:red")
    with pytest.raises(ConfigurationException, match="environment must be a name, and maybe a colour"):
        Dashboard()


def test_no_number_in_an_attribute_has_separators(monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser would read 5,000 as no number: the bar of an act was full at 8 %."""
    Mail.add_jobs([f"{number}" for number in range(1200)])
    task = Task("Wait", User("ann", "admin"), "/")
    task.step(1234, 5000)
    monkeypatch.setattr(Tasks, "get", lambda *_: task)
    dashboard = Dashboard()
    of_texts = "data-(?!says|values|last)[a-z]+"
    numbers = rf'\s(?:max|min|value|size|rows|width|height|x|y|d|points|{of_texts})="([^"]*\d,\d{{3}}[^"]*)"'
    assert 'value="1234"' in dashboard.get("/tasks/one").text
    for address in ("/", "/queues", "/jobs", "/jobs?limit=1000", "/audit?limit=1000", "/tasks/one"):
        assert re.findall(numbers, dashboard.get(address).text) == [], address


def test_a_failing_queue_is_named_first_however_many_run_more(redis_client: redis.Redis) -> None:
    """It was one of the others, once six queues ran more jobs."""
    now = int(time.time()) // 60 * 60
    for queue in (*(f"busy{number}" for number in range(8)), "payouts"):
        Queue.get_queue(queue)
        fails, row = queue == "payouts", Metrics()
        for _ in range(30 if fails else 300):
            row.observe_start(0.01)
            row.observe_end(0.01, is_success=not fails)
        redis_client.hset(
            f"limpyd-jobs:figures:minute:{now - 60}", f"{queue}\nshop.Run", " ".join(map(str, row.numbers))
        )
    dashboard = Dashboard()
    page = dashboard.get("/").shown
    assert "30 of 30 tries of payouts failed" in page
    assert page.index('<a href="/queues/queue?name=payouts">') < page.index('<a href="/queues/queue?name=busy0">')
    (found,) = (each for each in dashboard.read("/")["attention"] if each["code"] == "failures")
    assert found["queue"] == "payouts"
    assert "30 of 30 tries of payouts failed" in dashboard.get("/queues/queue?name=payouts").shown
    assert "(others)" not in page


def test_lanes_are_of_the_time_that_is_asked_for() -> None:
    Mail.add_job("one")
    Worker("mails", max_loops=1, terminate_gracefuly=False, logger_level=60).run()
    dashboard = Dashboard()
    for address in ("/", "/queues/queue?name=mails", f"/queues/class?name={Mail.get_model_repr()}"):
        mark = "&" if "?" in address else "?"
        for span, shown in (("1h", "The last hour"), ("24h", "The last day"), ("30d", "The last 30 days")):
            page = dashboard.get(f"{address}{mark}span={span}").shown
            assert shown in page
            assert "1 today" in page or not span.endswith("d")
        assert "span must be one of 1h, 6h" in dashboard.get(f"{address}{mark}span=2h").shown
    assert "There is no queue nowhere" in dashboard.get("/queues/queue?name=nowhere").shown


def test_a_queue_says_how_many_jobs_come_and_what_can_be_done_with_all_of_them(redis_client: redis.Redis) -> None:
    for number in range(3):
        Mail.add_job(f"{number}")
    broken = Mail.add_job("broken")
    with broken.claim(owner="web1") as claim:
        claim.fail(KeyError("no"))
    address = f"/queues/queue?name={Mail.queue_name}"
    assert Dashboard().read(address)["come"] is None
    row, minute = Metrics(), int(redis_client.time()[0]) // 60 * 60
    for _ in range(8):
        row.observe_start(0.1)
    redis_client.hset(f"{KEY}minute:{minute}", f"{Mail.queue_name}\nshop.Mail", " ".join(map(str, row.numbers)))
    for start in (minute - 300, minute - 240, minute - 180):  # a minute may end meanwhile
        redis_client.hset(f"{LEVELS}{start}", Mail.queue_name, "1 0")
    assert 10 / 5 <= Dashboard().read(address)["come"] <= 10 / 4
    page = Dashboard().get(address).shown
    assert "a minute come, 0 end" in page
    assert ">Requeue 1…</button>" in page
    assert "Delete what waits or is delayed…" in page


def test_what_is_older_is_never_shown_as_nearer() -> None:
    shown = [distance(seconds) for seconds in (1, 99, 119, 120, 3600, 7199, 7200, 172_799, 172_800)]
    assert shown == [
        f"{text} ago" for text in ("1 s", "99 s", "119 s", "2 min", "60 min", "119 min", "2 h", "47 h", "2 d")
    ]
