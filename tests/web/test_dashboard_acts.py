"""What users do in the dashboard, as they do it: with a mouse, a keyboard and a look at what comes then."""

from __future__ import annotations

from threading import Thread

from browser import Browser
from conftest import Site
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from servers import wait_until
from webshop import ResizeImage, SendMail, Translate

from limpyd_jobs import STATUSES, Error, Queue, Schedule, Worker, WorkerPresence
from limpyd_jobs.query import JobFilter, limit_keys, queue_states


def fail(number: int) -> None:
    for each in range(number):
        with ResizeImage.add_job(f"photo:{each}").claim(owner="web1:12") as claim:
            claim.fail(ValueError("not an image"))


def test_a_queue_is_paused_and_resumed(workshop: Site, browser: Browser) -> None:
    SendMail.add_job("one")
    browser.open(workshop("/queues"))
    browser.click("Pause")
    assert "mails is paused: running jobs go on" in browser.text
    assert queue_states("mails")[0].is_paused
    browser.click("Unpause")
    assert "mails is resumed" in browser.text
    assert not queue_states("mails")[0].is_paused


def test_all_jobs_that_match_are_requeued(workshop: Site, browser: Browser) -> None:
    """More than a page has, and none of the others."""
    fail(60)
    SendMail.add_job("one").cancel()
    browser.open(workshop("/jobs"))
    field = browser.driver.find_element(By.ID, "q")
    field.send_keys("status=error queue=im")
    wait_until(lambda: browser.driver.find_elements(By.CSS_SELECTOR, "button[data-word='queue=images']"))
    browser.find("queue=images", "button").click()
    assert field.get_attribute("value") == "status=error queue=images "
    browser.run("document.documentElement.dataset.left = 1")
    field.send_keys(Keys.ENTER)
    wait_until(lambda: browser.run("return !document.documentElement.dataset.left"), "the jobs that are found")
    browser.settle()
    assert "60 jobs" in browser.text
    browser.driver.find_element(By.NAME, "all").click()
    browser.click("Requeue all…")
    assert "Requeue 60 jobs" in browser.text
    assert browser.violations() == []
    assert JobFilter(status="error").count().number == 60
    browser.confirm()
    assert "Requeue of 60 jobs" in browser.text
    assert browser.violations() == []
    assert JobFilter(status="waiting").count().number == 60


def test_selected_jobs_are_deleted(workshop: Site, browser: Browser) -> None:
    SendMail.add_jobs(["one", "two", "three"])
    browser.open(workshop("/jobs"))
    for box in browser.driver.find_elements(By.NAME, "ident")[:2]:
        box.click()
    wait_until(lambda: "Delete 2…" in browser.text, "the number")
    browser.click("Delete 2…")
    assert "Delete 2 jobs for good?" in browser.text
    assert "What stays: their errors" in browser.text
    browser.click("No, keep them", "a")
    assert JobFilter().count().number == 3
    browser.driver.find_element(By.CSS_SELECTOR, "input[data-all]").click()
    wait_until(lambda: "Delete 3…" in browser.text, "the number")
    browser.click("Delete 3…")
    browser.confirm()
    assert "3 done" in browser.text
    assert JobFilter().count().number == 0


def test_jobs_of_a_queue_are_moved_and_cleared(workshop: Site, browser: Browser) -> None:
    SendMail.add_jobs(["one", "two"])
    browser.open(workshop("/queues"))
    browser.click("mails", "a")
    browser.find("Move…", "summary").click()
    browser.fill("target", "others")
    browser.click("Count")
    assert "There is no queue others yet" in browser.text
    browser.confirm()
    assert "2 done" in browser.text
    browser.open(workshop("/queues/queue?name=others"))
    browser.click("Clear…")
    browser.confirm()
    assert JobFilter().count().number == 0
    browser.click("Delete…")
    browser.confirm()
    assert len(queue_states()) == 1


def test_a_job_is_shown_live(workshop: Site, browser: Browser) -> None:
    job = ResizeImage.add_job("photo")
    claim = job.claim(owner="web1:12")
    browser.open(workshop(f"/jobs/{job.ident}"))
    assert "Running" in browser.text
    job.log("the first line")
    job.progress(0.5, "half of it")
    wait_until(lambda: "the first line" in browser.text and "half of it" in browser.text, "the log and the progress")
    claim.succeed()
    wait_until(lambda: "Success" in browser.text, "the end of the job")
    assert browser.complaints() == []


def test_a_job_is_requeued_and_canceled(workshop: Site, browser: Browser) -> None:
    fail(1)
    [job] = ResizeImage.collection().instances()
    browser.open(workshop(f"/jobs/{job.ident}"))
    browser.click("Run again")
    assert job.status.hget() == STATUSES.WAITING
    browser.click("Cancel…")
    browser.confirm()
    assert "1 done" in browser.text
    assert job.status.hget() == STATUSES.CANCELED


def test_from_an_alarm_to_the_requeued_jobs_are_two_clicks(workshop: Site, browser: Browser) -> None:
    """And the jobs of another cause stay."""
    for number in range(5):
        ResizeImage.add_job(f"photo:{number}", path=f"/photos/{number}.txt")
    Worker("images", max_loops=5, logger_level=60).run()
    with ResizeImage.add_job("other").claim(owner="web1:12") as claim:
        claim.fail(MemoryError())
    browser.open(workshop("/"))
    assert "6 jobs of images failed, and none succeeded" in browser.text
    requeue = By.CSS_SELECTOR, ".worst [data-key=r]"
    wait_until(lambda: browser.driver.find_elements(*requeue), "the button")  # a live part may be swapped just now
    browser.follow(browser.driver.find_element(*requeue))
    assert "Requeue 5 jobs" in browser.text
    browser.confirm()
    assert "Requeue of 5 jobs" in browser.text
    assert (JobFilter(status="waiting").count().number, JobFilter(status="error").count().number) == (5, 1)


def test_jobs_of_a_cause_are_requeued_at_a_rate_and_its_errors_deleted(workshop: Site, browser: Browser) -> None:
    fail(3)
    browser.open(workshop("/errors"))
    browser.click("ValueError", "a")
    browser.fill("rate", "1/m")
    browser.click("Requeue 3…")
    browser.confirm()
    assert "Requeue of 3 jobs" in browser.text
    browser.click("Stop")
    wait_until(lambda: "Stopped" in browser.text, "the end")
    assert JobFilter(status="error").count().number == 2
    browser.open(workshop("/errors"))
    browser.click("ValueError", "a")
    browser.driver.find_element(By.CSS_SELECTOR, "[aria-label='More verbs']").click()
    browser.click("Delete the errors…")
    browser.confirm()
    assert len(Error.collection()) == 0


def test_a_worker_is_asked_to_be_quiet_and_to_stop(workshop: Site, browser: Browser) -> None:
    Queue.get_queue("mails")
    worker = Worker("mails", max_duration=60, lease=4, logger_level=60)
    thread = Thread(target=worker.run)
    thread.start()
    try:
        wait_until(WorkerPresence.alive, "a worker")
        for verb, status in (("Quiet", "quiet"), ("Resume", "idle")):
            browser.open(workshop("/workers"))
            assert "Quiet" not in browser.text  # before one is chosen
            browser.driver.find_element(By.NAME, "worker").click()
            browser.click(verb)
            assert "1 worker asked" in browser.text
            wait_until(lambda status=status: [each.status for each in WorkerPresence.alive()] == [status], status)
        browser.open(workshop("/workers"))
        browser.driver.find_element(By.NAME, "worker").click()
        browser.click("Stop…")
        browser.confirm()
        thread.join(30)
        assert not thread.is_alive()
        browser.open(workshop("/audit"))
        assert all(verb in browser.text for verb in ("quiet", "resume", "stop"))
    finally:
        worker.end_forced = True
        thread.join(30)


def test_a_schedule_is_paused_resumed_run_and_edited(workshop: Site, browser: Browser) -> None:
    Schedule.add("nightly", SendMail, cron="0 3 * * *")
    browser.open(workshop("/schedules"))
    for button, told in (("Pause", "Paused"), ("Resume", "Active")):
        browser.click(button)
        assert told in browser.text
    browser.click("Run now")
    assert JobFilter(status="waiting").count().number == 1
    browser.open(workshop("/schedules/schedule?name=nightly"))
    browser.find("Edit", "summary").click()
    browser.fill("cron", "30 4 * * *")
    browser.click("Change")
    assert browser.complaints() == []
    browser.open(workshop("/schedules/schedule?name=nightly"))
    assert "04:30:00 UTC" in browser.driver.page_source


def test_what_is_stored_is_checked_and_repaired(workshop: Site, browser: Browser) -> None:
    job = SendMail.add_job("one")
    [queue] = Queue.collection().instances()
    queue.waiting.delete()
    browser.open(workshop("/check"))
    browser.click("Check now")
    wait_until(lambda: _reloaded(browser, workshop("/check"), "1 found, 0 repaired"), "the end of the check")
    assert browser.violations() == []
    browser.click("Repair…")
    browser.confirm()
    wait_until(lambda: _reloaded(browser, workshop("/check"), "1 found, 1 repaired"), "the end of the repair")
    assert queue.waiting.lmembers() == [job.ident]


def _reloaded(browser: Browser, address: str, text: str) -> bool:
    browser.open(address)
    return text in browser.text


def test_entries_are_put_back_from_quarantine_and_dropped(workshop: Site, browser: Browser) -> None:
    job = SendMail.add_job("one")
    [queue] = Queue.collection().instances()
    queue.waiting.delete()
    queue.quarantine.rpush(job.ident, "not an ident")
    browser.open(workshop("/quarantine"))
    browser.driver.find_element(By.CSS_SELECTOR, f"[aria-label='Select {job.ident}']").click()
    browser.click("Put back…")
    browser.confirm()
    assert queue.waiting.lmembers() == [job.ident]
    browser.open(workshop("/quarantine"))
    browser.driver.find_element(By.CSS_SELECTOR, "[aria-label='Select not an ident']").click()
    browser.click("Drop…")
    browser.confirm()
    assert queue.quarantine.lmembers() == []


def test_a_limit_is_paused_resumed_and_has_another_number(knowing_site: Site, browser: Browser) -> None:
    jobs = [Translate.add_job(model="large", tokens="1") for _ in range(3)]
    for job in jobs[:2]:
        job.claim(owner="web1:1:aaaaaaaaaaaa", lease=3600)
    for verb, state, said in (("Pause", "paused", "begins until it is resumed"), ("Resume", "full", "is resumed")):
        browser.open(knowing_site("/limits"))
        browser.click(verb)
        assert [key.state for key in limit_keys()] == [state]
        assert said in browser.text
    browser.find("Set…", "button").click()
    assert browser.violations() == []
    browser.fill("concurrency", "5")
    assert browser.driver.find_element(By.ID, "live-button").text == "Paused", "while a form is filled in"
    browser.click("Set")
    assert [(key.allowed, key.set) for key in limit_keys()] == [(5, {"concurrency": "5"})]
    browser.find("Set…", "button").click()
    browser.fill("concurrency", "many")
    browser.click("Set")
    assert "concurrency must be a whole number" in browser.text
    browser.open(knowing_site("/audit"))
    assert all(verb in browser.text for verb in ("limit pause", "limit resume", "limit set"))
    assert browser.complaints() == []
