"""The dashboard of several shards: an overview of all, and one of each below it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape

import pytest
import redis
from asking import Dashboard
from cases import each
from reading import limpyd_jobs
from test_web_security import TOKEN, bearer

from limpyd_jobs import ConfigurationException, Job
from limpyd_jobs.contrib.web import application
from limpyd_jobs.contrib.web.access import MAX_FAILURES
from limpyd_jobs.contrib.web.pages import PAGES
from limpyd_jobs.query import paused_queues
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.shards import Shards

# Nothing listens there, and the password is secret.
DOWN = "redis://ann:secret-password@127.0.0.1:1/0"


class Card(Job):
    namespace = "web-shards"
    queue_name = "cards"


@pytest.fixture
def databases(redis_client: redis.Redis) -> Iterator[list[JobsDatabase]]:
    """Two databases, with two jobs that wait in one, and one in the other."""
    path = redis_client.connection_pool.connection_kwargs["path"]
    found = [JobsDatabase(unix_socket_path=path, db=number) for number in (4, 5)]
    shards = Shards(found)
    shards.on(Card, 0).add_jobs(["a", "b"])
    shards.on(Card, 1).add_jobs(["c"])
    yield found
    for number in (4, 5):
        redis.Redis(unix_socket_path=path, db=number).flushdb()


@pytest.fixture
def dashboard(databases: list[JobsDatabase]) -> Dashboard:
    return Dashboard(shards=Shards(databases))


@pytest.fixture
def with_one_down(databases: list[JobsDatabase]) -> Dashboard:
    return Dashboard(shards=Shards([*databases, JobsDatabase(url=DOWN)]))


def test_the_overview_is_that_of_all(dashboard: Dashboard) -> None:
    found = dashboard.read("/")
    assert (found["totals"]["waiting"], found["unseen"]) == (3, [])
    assert [(each["name"], each["waiting"]) for each in found["queues"]] == [("cards", 3)]
    page = dashboard.get("/").shown
    assert "2 shards, " in page
    assert "NOT SEEN" not in page


def test_each_shard_has_all_pages_for_itself(dashboard: Dashboard) -> None:
    assert [dashboard.read(f"/{number}/")["totals"]["waiting"] for number in (0, 1)] == [2, 1]
    page = dashboard.get("/1/queues")
    addresses = {*re.findall(r'(?:href|src|action|hx-get)="([^"]*)"', page.text)}
    assert {each for each in addresses if not each.startswith(("/1/", "#"))} == {"/"}  # that of all shards
    assert "limpyd jobs, shard 1" in page.text
    assert dashboard.get(next(each for each in addresses if "/static/app." in each)).status == 200


def test_what_is_done_is_done_in_that_shard(dashboard: Dashboard, databases: list[JobsDatabase]) -> None:
    done = dashboard.post("/1/queues/pause", {"queue": "cards"})
    assert (done.status, done.headers["location"].partition("?")[0]) == (303, "/1/queues")
    assert "cards is paused" in dashboard.get(done.headers["location"]).text
    assert [bool(paused_queues(each)) for each in databases] == [False, True]


def test_other_pages_lead_to_those_of_the_shards(dashboard: Dashboard) -> None:
    for path in (page.path for page in PAGES if page.label and page.path != "/"):
        page = dashboard.get(f"{path}?q=status%3Derror&none=%22%3E")
        links = [unescape(each) for each in re.findall(r'href="([^"]*)">Shard', page.text)]
        assert links == [f"/{number}{path}?q=status%3Derror&none=%22%3E" for number in (0, 1)]
        assert dashboard.get(f"/0{path}").status == 200


def test_nothing_is_changed_where_no_shard_is_named(dashboard: Dashboard) -> None:
    assert dashboard.post("/queues/pause", {"queue": "cards"}).status in (404, 405)
    assert dashboard.get("/jobs/web-shards.Card:1").status == 404
    assert dashboard.get("/2/queues").status == 404


def test_a_shard_that_is_down_is_named_and_the_others_are_shown(with_one_down: Dashboard) -> None:
    found = with_one_down.read("/")
    assert found["totals"]["waiting"] == 3
    [unseen] = found["unseen"]
    assert unseen.startswith("shard 2, 127.0.0.1:1:0: ")
    assert "NOT SEEN, so in none of the below: shard 2, 127.0.0.1:1:0: " in with_one_down.get("/").shown
    assert with_one_down.get("/0/queues").status == 200
    assert with_one_down.get("/2/queues").status == 503
    assert with_one_down.get("/health").text == "ok\n"


def test_no_page_shows_the_password_of_a_shard(with_one_down: Dashboard) -> None:
    for path in ("/", "/queues", "/2/", "/2/queues", "/live"):
        assert "secret-password" not in with_one_down.get(path).text


def test_it_says_so_if_no_shard_can_be_used() -> None:
    dashboard = Dashboard(shards=Shards([JobsDatabase(url=DOWN), JobsDatabase(url=DOWN.replace("/0", "/1"))]))
    page = dashboard.get("/")
    assert (page.status, "Redis cannot be used: 127.0.0.1:1:0: " in page.shown) == (503, True)
    assert "secret-password" not in page.text
    assert dashboard.get("/health").status == 503


def test_each_page_asks_who_it_is(databases: list[JobsDatabase]) -> None:
    dashboard = Dashboard(client="192.0.2.1", shards=Shards(databases), token=TOKEN)
    elsewhere = Dashboard(dashboard.app, client="192.0.2.1", host="evil.example.com")
    for path in ("/", "/live", "/queues", "/0/", "/0/live", "/1/jobs"):
        assert dashboard.get(path, bearer("wrong")).status == 401
        assert elsewhere.get(path, bearer(TOKEN)).status == 421


def test_guesses_at_all_shards_count_together(databases: list[JobsDatabase]) -> None:
    dashboard = Dashboard(client="192.0.2.1", shards=Shards(databases), token=TOKEN)
    for number in range(MAX_FAILURES):
        assert dashboard.get(("/queues", "/0/queues", "/1/queues")[number % 3], bearer("wrong")).status == 401
    assert [dashboard.get(path, bearer("wrong")).status for path in ("/queues", "/0/queues", "/1/")] == [429] * 3


def test_a_page_of_a_shard_has_one_policy_for_browsers(dashboard: Dashboard) -> None:
    page = dashboard.get("/0/queues")
    [nonce] = re.findall("'nonce-([^']*)'", page.headers["content-security-policy"])
    assert {*re.findall('nonce="([^"]*)"', page.text)} == {nonce}


def test_wrong_settings_are_refused(databases: list[JobsDatabase]) -> None:
    with pytest.raises(ConfigurationException, match="database and shards do not go together"):
        application(shards=Shards(databases), database=databases[0])
    with pytest.raises(ConfigurationException, match=r"shards must be Shards, as Shards\(\[JobsDatabase"):
        application(shards=databases)


@each(
    ("options", "told"),
    [
        (["--shards=redis://a redis://b", "--database=redis://c"], "--database and --shards do not go together"),
        (["--shards=redis://a"], "There must be 2 to 1,000 shards, not 1"),
    ],
)
def test_the_command_refuses_what_is_wrong_in_one_line(options: list[str], told: str) -> None:
    status, out, error = limpyd_jobs("web", "--port=0", *options)
    assert (status, out, told in error) == (2, "", True)


def test_the_command_names_the_shards_that_are_down(databases: list[JobsDatabase]) -> None:
    urls = " ".join(
        f"unix://{each.connection_settings['unix_socket_path']}?db={each.connection_settings['db']}"
        for each in databases
    )
    status, out, error = limpyd_jobs("web", "--port=0", "--dry-run", f"--shards={urls} {DOWN}")
    assert (status, out.startswith("http://127.0.0.1:")) == (0, True)
    assert "NOT SEEN: shard 2, 127.0.0.1:1:0: " in error
    assert "secret-password" not in error
