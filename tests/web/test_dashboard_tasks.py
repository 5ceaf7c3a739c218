"""What an operator does most often, by clicks and by keys: how many each takes is part of the promise."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Event, Thread

from browser import Browser
from conftest import Site
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from servers import wait_until
from webshop import Payout, ResizeImage, SendMail

from limpyd_jobs import Worker
from limpyd_jobs.query import JobFilter, job_details, queue_states

# The button of an incident that puts its jobs back.
REQUEUE = "form[action='/errors/requeue'] button"


def fail(number: int) -> None:
    for each in range(number):
        with ResizeImage.add_job(f"photo:{each}", path=f"/photos/{each}.txt").claim(owner="web1:12") as claim:
            claim.fail(ValueError("not an image"))


def leaves_by(browser: Browser, *keys: str) -> None:
    """Press keys, the last of which leads to another page."""
    browser.run("document.documentElement.dataset.left = 1")
    for key in keys:
        browser.press(key)
    wait_until(lambda: browser.run("return !document.documentElement.dataset.left"), "the next page")
    browser.settle()


def test_a_cause_is_requeued_by_six_keys_and_followed_to_its_end(workshop: Site, browser: Browser) -> None:
    """Enter alone does nothing: No has the focus."""
    fail(12)
    browser.open(workshop("/"))
    leaves_by(browser, "g", "e")
    assert "1 cause failed in the last 10 minutes" in browser.text
    browser.press("j")
    leaves_by(browser, "r")
    assert "Requeue 12 jobs?" in browser.text
    assert browser.violations() == []
    assert browser.run("return document.activeElement.textContent") == "No"
    leaves_by(browser, Keys.TAB, Keys.ENTER)
    assert "/requeues/" in browser.driver.current_url
    assert "Requeue of 12 jobs" in browser.text
    assert browser.violations() == []
    worker = Thread(target=Worker("images", max_loops=12, logger_level=60).run)
    worker.start()  # they fail again
    wait_until(lambda: "failed again 12" in browser.text, "the outcomes, live")
    worker.join(30)
    wait_until(lambda: "Over" in browser.text, "the end")
    assert "100.0 % failed again" in browser.text
    assert browser.complaints() == []


def test_from_the_alarm_to_the_requeue_of_a_cause_are_two_clicks_and_why_a_job_does_not_run_is_one(
    workshop: Site, browser: Browser
) -> None:
    ResizeImage.add_jobs([f"photo:{number}" for number in range(12)], path="/photos/1.txt")
    Worker("images", max_loops=12, logger_level=60).run()
    browser.open(workshop("/"))
    wait_until(lambda: browser.driver.find_elements(By.CSS_SELECTOR, REQUEUE), "the incident, live")
    browser.follow(browser.driver.find_element(By.CSS_SELECTOR, REQUEUE))
    assert "Requeue 12 jobs?" in browser.text
    browser.confirm()
    assert "/requeues/" in browser.driver.current_url
    assert JobFilter(status="waiting").count().number == 12
    browser.open(workshop("/jobs"))
    browser.follow(browser.driver.find_element(By.CSS_SELECTOR, "[data-row] a"))
    assert "Why? 11 jobs wait before it" in browser.text


def test_a_queue_is_paused_by_six_keys_or_less(workshop: Site, browser: Browser) -> None:
    SendMail.add_job("order:7", to="ann@example.com")
    browser.open(workshop("/"))
    leaves_by(browser, "g", "q")
    browser.press("j")
    leaves_by(browser, "p", Keys.ENTER)
    assert [state.is_paused for state in queue_states()] == [True]
    assert browser.complaints() == []


def test_a_queue_is_paused_from_any_page_by_the_palette(workshop: Site, browser: Browser) -> None:
    SendMail.add_job("order:7", to="ann@example.com")
    browser.open(workshop("/errors"))
    browser.press(Keys.CONTROL + "k")
    field = browser.driver.find_element(By.CSS_SELECTOR, "#palette input")
    wait_until(lambda: browser.driver.switch_to.active_element == field, "the palette")
    field.send_keys("pause mails")
    wait_until(lambda: "Pause mails…" in browser.driver.find_element(By.ID, "palette").text, "the verb")
    assert browser.violations() == []
    leaves_by(browser, Keys.ENTER)
    assert browser.run("return document.activeElement.textContent") == "No"
    assert not queue_states()[0].is_paused
    browser.confirm()
    assert queue_states()[0].is_paused
    assert browser.complaints() == []


def test_a_job_that_waits_for_a_person_is_answered_on_a_phone(workshop: Site, browser: Browser) -> None:
    job = Payout.add_job("payout:7", amount="80")
    Worker("payouts", max_loops=1, logger_level=60).run()
    browser.resize(390)
    browser.open(workshop("/jobs"))
    browser.follow(browser.driver.find_element(By.CSS_SELECTOR, "[data-row] a"))
    assert "Run now" not in browser.text
    browser.fill("value", "yes")
    browser.click("Send approval…")
    assert browser.violations() == []
    browser.confirm()
    assert job_details(job.ident).status == "waiting"
    assert browser.violations() == []
    browser.resize(1280)


def test_anything_that_is_pasted_is_found_by_the_palette(workshop: Site, browser: Browser) -> None:
    job = SendMail.add_job("order:7", to="ann@example.com")
    ResizeImage.add_job("photo", path="/photos/holiday.jpg")
    browser.open(workshop("/queues"))

    def ask(text: str) -> None:
        browser.press(Keys.CONTROL + "k")
        field = browser.driver.find_element(By.CSS_SELECTOR, "#palette input")
        wait_until(lambda: browser.driver.switch_to.active_element == field, "the palette")
        field.clear()
        field.send_keys(text)

    ask("ann@example.com")
    wait_until(
        lambda: browser.run("return document.querySelector('#palette input').dataset.found") == "ann@example.com"
    )
    assert browser.violations() == []
    field = browser.driver.find_element(By.CSS_SELECTOR, "#palette input")
    chosen = browser.driver.find_element(By.ID, field.get_attribute("aria-activedescendant") or "")
    assert (chosen.get_attribute("role"), chosen.get_attribute("aria-selected")) == ("option", "true")
    leaves_by(browser, Keys.ENTER)
    assert browser.driver.current_url == workshop(f"/jobs/{job.ident}")
    ask("holiday.jpg")  # which is in a field without an index
    palette = browser.driver.find_element(By.ID, "palette")
    wait_until(lambda: "looked at 2 of 2 jobs" in palette.text, "a look through all jobs")
    assert "ResizeImage" in palette.text
    browser.press(Keys.ESCAPE)
    assert not browser.driver.find_element(By.ID, "palette").is_displayed()
    assert browser.complaints() == []


@contextmanager
def slow(site: Site) -> Iterator[None]:
    """Stop Redis again and again, so that a look through jobs takes long."""
    is_over, pid = Event(), int(site.client.info("server")["process_id"])

    def stop() -> None:
        while not is_over.wait(0.005):
            os.kill(pid, signal.SIGSTOP)
            is_over.wait(0.25)
            os.kill(pid, signal.SIGCONT)

    thread = Thread(target=stop)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_a_look_through_many_jobs_says_how_far_it_is_and_goes_on_by_itself(workshop: Site, browser: Browser) -> None:
    oldest = ResizeImage.add_job("photo", path="/photos/holiday.jpg")
    ResizeImage.add_jobs([f"photo:{number}" for number in range(5_000)], path="/photos/1.jpg")
    browser.open(workshop("/queues"))
    browser.press(Keys.CONTROL + "k")
    field = browser.driver.find_element(By.CSS_SELECTOR, "#palette input")
    wait_until(lambda: browser.driver.switch_to.active_element == field, "the palette")
    palette = browser.driver.find_element(By.ID, "palette")
    with slow(workshop):
        field.send_keys("holiday.jpg")
        wait_until(lambda: f"ResizeImage:{oldest.pk.get()}" in palette.text, "the oldest job, found last")
    wait_until(lambda: "looked at 5,001 of 5,001 jobs" in palette.text, "the end")
    asked = "return performance.getEntriesByType('resource').filter(it => it.name.includes('/find/through')).length"
    assert browser.run(asked) > 1
    leaves_by(browser, Keys.ENTER)
    assert browser.driver.current_url == workshop(f"/jobs/{oldest.ident}")


def test_a_delayed_job_says_why_and_is_edited_in_three_clicks(workshop: Site, browser: Browser) -> None:
    SendMail.add_job("later", to="ann@example.com", delayed_for=timedelta(hours=1))
    browser.open(workshop("/jobs"))
    browser.follow(browser.driver.find_element(By.CSS_SELECTOR, "[data-row] a"))
    assert "Why? It is delayed until" in browser.text
    assert not browser.driver.find_elements(By.XPATH, "//button[normalize-space()='Run again']")
    browser.find("Edit", "a").click()
    wait_until(lambda: browser.driver.find_element(By.NAME, "field.to").is_displayed(), "the form")
    browser.fill("field.to", "bob@example.com")
    browser.click("Change")
    browser.confirm()
    assert [job.ident for job in JobFilter("bob@example.com").page().found]
    browser.click("Run now")
    assert JobFilter("bob@example.com", "status=waiting").count().number == 1


def test_a_day_is_one_click_away_and_how_long_two_queues_make_wait_two(shop: Site, browser: Browser) -> None:
    browser.open(shop("/"))
    browser.follow(browser.find("24 h", "a"))
    assert "by 15 minutes" in browser.text
    browser.open(shop("/"))
    browser.follow(browser.find("Queues", "a"))  # where they are beside each other
    heading = [each.text for each in browser.driver.find_elements(By.CSS_SELECTOR, "thead th")]
    for name in ("images", "mails"):
        row = browser.find(name, "a").find_element(By.XPATH, "./ancestor::tr")
        cells = dict(zip(heading, (each.text for each in row.find_elements(By.CSS_SELECTOR, "th, td")), strict=True))
        assert cells["95 % waited"].startswith("under "), cells
    browser.follow(browser.find("images", "a"))  # and the second click leads to one as it changes
    assert "95 %: under" in browser.driver.find_element(By.XPATH, "//*[normalize-space()='Waited']/..").text


def test_a_running_job_is_followed_by_one_click(workshop: Site, browser: Browser) -> None:
    with ResizeImage.add_job("large", path="/photos/large.jpg").claim(owner="web1:12") as claim:
        browser.open(workshop("/jobs"))
        browser.follow(browser.driver.find_element(By.CSS_SELECTOR, "[data-row] a"))
        claim.job.log("half of it is done")
        wait_until(lambda: "half of it is done" in browser.text, "the line of the log, live")
        claim.succeed()
        wait_until(lambda: "Success" in browser.text, "its end, live")


def test_a_wrong_filter_is_mended_where_it_was_typed_and_verbs_say_their_number(
    workshop: Site, browser: Browser
) -> None:
    fail(3)
    browser.open(workshop("/jobs"))
    browser.press("/")
    leaves_by(browser, "stauts=error", Keys.ENTER)
    field = browser.driver.find_element(By.ID, "q")
    assert (field.get_attribute("value"), "is status meant?" in browser.text) == ("stauts=error", True)
    assert browser.violations() == []
    field.clear()
    leaves_by(browser, "/", "status=error", Keys.ENTER)
    browser.press("j")
    browser.press("x")
    browser.press("j")
    browser.press("x")
    wait_until(lambda: "Requeue 2" in browser.text, "the number")
    assert browser.violations() == []
    leaves_by(browser, "r")
    assert "Requeue 2 jobs" in browser.text
    leaves_by(browser, Keys.ESCAPE)
    assert JobFilter(status="error").count().number == 3
    browser.press("j")
    leaves_by(browser, "r")  # of the one that has the focus
    assert "Requeue 1 job" in browser.text
    browser.open(workshop("/jobs?q=status%3Derror&columns=job,identifier,tries"))
    assert [each.text for each in browser.driver.find_elements(By.CSS_SELECTOR, "thead a")] == [
        "Job",
        "Identifier",
        "Tries",
    ]
    leaves_by(browser, "/", Keys.BACKSPACE)
    assert "status=error" not in browser.driver.current_url
    assert {"400 (Bad Request)" in each for each in browser.complaints()} == {True}  # the wrong filter
