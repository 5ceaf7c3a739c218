"""What surrounds each page: the keys, what is live and its pause, and how tabs are told apart."""

from __future__ import annotations

import os
import signal

from browser import Browser
from conftest import Site, serving
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from servers import RedisServer, free_port, wait_until
from webshop import SendMail

from limpyd_jobs import Queue
from limpyd_jobs.query import queue_states


def test_pages_are_reached_by_keys_and_the_help_lists_them(shop: Site, browser: Browser) -> None:
    browser.open(shop("/queues"))
    browser.press("?")
    assert "Find anything" in browser.driver.find_element(By.ID, "keys").text
    assert browser.violations() == []
    browser.press(Keys.ESCAPE)
    assert not browser.driver.find_element(By.ID, "keys").is_displayed()
    browser.run("document.documentElement.dataset.left = 1")
    browser.press("g")
    browser.press("j")
    wait_until(lambda: browser.run("return !document.documentElement.dataset.left"), "the page of jobs")
    assert browser.driver.current_url == shop("/jobs")
    browser.press("/")
    browser.press("j?")
    assert browser.driver.find_element(By.ID, "q").get_attribute("value") == "j?", "a letter is text in a field"
    assert browser.complaints() == []


def test_tabs_tell_their_environment_page_and_problems_apart(shop: Site, workshop: Site, browser: Browser) -> None:
    browser.open(shop("/queues"))
    assert browser.run("return document.title").startswith("▲")
    assert browser.run("return document.title").endswith(" Queues · production · limpyd jobs")
    assert "trouble" in browser.run("return document.getElementById('favicon').getAttribute('href')")
    workshop.connect()
    browser.open(workshop("/"))
    assert browser.run("return document.title") == "Overview · limpyd jobs"
    assert "trouble" not in browser.run("return document.getElementById('favicon').getAttribute('href')")


def test_a_page_goes_on_by_itself_unless_it_is_paused(workshop: Site, browser: Browser) -> None:
    """And a screen reader hears of what is new only."""
    SendMail.add_job("one")
    browser.open(workshop("/"))
    moment = "return document.querySelector('#looked time').dateTime"
    button = browser.driver.find_element(By.ID, "live-button")
    button.click()
    assert button.text == "Paused"
    paused = browser.run(moment)
    Queue.pause("mails")
    browser.run("setTimeout(() => { document.body.dataset.later = 1 }, 5000)")
    wait_until(lambda: browser.run("return document.body.dataset.later"), "two more samples")
    assert browser.run(moment) == paused
    browser.press("l")
    wait_until(lambda: browser.run(moment) != paused, "what was sampled since")
    wait_until(lambda: "mails is paused" in browser.run("return document.getElementById('news').textContent"))
    assert browser.driver.find_elements(By.CSS_SELECTOR, "#live [aria-live]") == []
    assert browser.run("return document.title").startswith("▲1 Overview")
    assert browser.complaints() == []


def test_a_page_says_that_the_dashboard_does_not_answer_until_it_does_again(
    redis_binary: str, browser: Browser
) -> None:
    with RedisServer(redis_binary, port=free_port()) as server, serving(server, 0) as site:
        browser.open(site("/"))
        button, lost = (browser.driver.find_element(By.ID, each) for each in ("live-button", "lost"))
        assert (button.text, lost.is_displayed()) == ("Live", False)
        os.kill(site.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: lost.text.startswith("No answer since "), "what says so")
            assert button.text == "No answer"
        finally:
            os.kill(site.pid, signal.SIGCONT)
        wait_until(lambda: not lost.is_displayed(), "its return")
        assert button.text == "Live"
        browser.open("about:blank")
        assert browser.complaints() == []


def test_a_queue_is_paused_by_five_keys_and_keeps_the_focus(workshop: Site, browser: Browser) -> None:
    for name in ("mails", "payouts"):
        SendMail.add_job(name, queue_name=name)
    browser.open(workshop("/"))
    browser.run("document.documentElement.dataset.left = 1")
    for key in ("g", "q"):
        browser.press(key)
    wait_until(lambda: browser.run("return !document.documentElement.dataset.left"), "the queues")
    browser.settle()
    for key in ("j", "j", "p"):
        browser.press(key)
    focused = browser.run("return document.activeElement.ariaLabel")
    assert focused in ("Pause mails", "Pause payouts")
    assert not any(state.is_paused for state in queue_states()), "a letter alone does nothing"
    assert browser.driver.find_element(By.ID, "live-button").text == "Paused"
    browser.follow(browser.driver.switch_to.active_element)
    assert [state.name for state in queue_states() if state.is_paused] == [focused.removeprefix("Pause ")]
    assert browser.complaints() == []


def test_cards_that_become_one_are_no_news(workshop: Site, browser: Browser) -> None:
    for name in ("mails", "payouts"):
        Queue.pause(name)  # before the job is there: else a sample may see that no worker takes it
        SendMail.add_job(name, queue_name=name)

    def begins_with_both() -> bool:
        browser.open(workshop("/"))  # the first sample may be of before
        shown = browser.driver.find_element(By.TAG_NAME, "main").text
        return shown.count("is paused") == 2 and "No worker" not in shown

    wait_until(begins_with_both)
    logo = browser.driver.find_element(By.ID, "logo")
    ActionChains(browser.driver).move_to_element(logo).perform()  # above a button, the page would stay as it is
    said = "return document.getElementById('news').textContent"
    Queue.pause("reports")
    SendMail.add_job("reports", queue_name="reports")
    wait_until(lambda: "3 queues are paused" in browser.run(said))
    assert "Over" not in browser.run(said)
    Queue.resume("reports")
    wait_until(lambda: "No worker" in browser.run(said))
    assert "paused" not in browser.run(said)


def test_what_a_viewer_unfolds_stays_so_while_the_page_goes_on(shop: Site, browser: Browser) -> None:
    browser.open(shop("/errors"))
    folded = browser.driver.find_element(By.CSS_SELECTOR, "#live details")
    folded.find_element(By.TAG_NAME, "summary").click()
    ask_again = (
        "htmx.ajax('GET', location.href, {target: '#live', select: '#live', swap: 'outerMorph'}).then(arguments[0])"
    )
    browser.driver.execute_async_script(ask_again)
    assert folded.get_attribute("open")
    assert browser.complaints() == []
