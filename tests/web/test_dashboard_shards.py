"""The dashboard of two shards, in a real browser, while one of them is down."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser import Browser
from conftest import Site, serving
from selenium.webdriver.common.by import By
from servers import RedisServer, free_port, wait_until
from test_dashboard_pages import assert_accessible
from webshop import SendMail

from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.shards import Shards


@pytest.fixture
def other(redis_binary: str) -> Iterator[RedisServer]:
    with RedisServer(redis_binary, port=free_port()) as server:
        yield server


@pytest.fixture
def site(_server: RedisServer, other: RedisServer) -> Iterator[Site]:
    urls = [f"redis://127.0.0.1:{_server.port}/3", f"redis://127.0.0.1:{other.port}/0"]
    shards = Shards([JobsDatabase(url=url) for url in urls])
    for number in (0, 1):
        shards.on(SendMail, number).add_jobs([f"{number}:a", f"{number}:b"])
    with serving(_server, 3, f"--shards={' '.join(urls)}") as found:
        yield found
        found.client.flushdb()


def test_all_shards_are_shown_and_each_for_itself(site: Site, other: RedisServer, browser: Browser) -> None:
    browser.open(site("/"))
    assert "2 shards, " in browser.text
    assert browser.driver.find_element(By.CSS_SELECTOR, "tbody th + td").text == "4"
    assert_accessible(browser)
    browser.follow(browser.find("Queues", "a"))
    assert "Which one?" in browser.text
    assert_accessible(browser)
    browser.follow(browser.find("Shard 1", "a"))
    assert browser.driver.current_url == site("/1/queues")
    browser.click("Pause")
    assert "mails is paused: running jobs go on" in browser.text
    assert_accessible(browser)
    browser.follow(browser.find("All shards", "a"))
    assert browser.driver.current_url == site("/")
    other.kill()
    wait_until(lambda: "NOT SEEN, so in none of the below: shard 1, " in browser.text)
    assert browser.violations() == []
    assert browser.complaints() == []
    other.start()
    wait_until(lambda: "NOT SEEN" not in browser.text)
    browser.driver.get("about:blank")  # its stream would complain once the dashboard ends
