"""The dashboard in a project of Django, and its lists in the admin, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import hostile
import pytest
from browser import Browser
from conftest import Site
from selenium.common.exceptions import NoAlertPresentException
from selenium.webdriver.common.by import By
from servers import wait_until
from visiting import Reading
from webshop import SendMail

from limpyd_jobs.query import audit_entries, queue_states

KINDS = ("jobs", "errors", "queues", "schedules", "workers")

# A page of another port of the same host: browsers send it with the cookies of this site.
EVIL = """<!doctype html><title>evil</title>
<form id="form" method="post" action="{site}staff/jobs/queues/pause"><input name="queue" value="mails"></form>
<script>
window.done = 0;
const body = new URLSearchParams({{queue: "mails"}}), url = "{site}staff/jobs/queues/pause";
Promise.allSettled([
  fetch(url, {{method: "POST", mode: "no-cors", credentials: "include", body}}),
  fetch(url, {{method: "POST", mode: "cors", credentials: "include", body}}),
  fetch(url, {{method: "POST", mode: "no-cors", credentials: "include", body, referrerPolicy: "no-referrer"}}),
]).then(() => {{ done = 1; }});
</script>"""


@pytest.fixture
def evil(bookshop: Site) -> Iterator[str]:
    """The address of a page of another site."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(EVIL.format(site=bookshop.address).encode())

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def sign_in(site: Site, browser: Browser, name: str, page: str = "/staff/jobs/queues") -> None:
    """Open a page, and sign in where that leads to."""
    browser.driver.delete_all_cookies()
    browser.open(site(page))
    assert "/admin/login/?next=" in browser.driver.current_url
    browser.fill("username", name)
    browser.fill("password", name)
    browser.follow(browser.driver.find_element(By.CSS_SELECTOR, "input[type=submit]"))


def is_paused() -> bool:
    return queue_states("mails")[0].is_paused


def buttons(browser: Browser) -> set[str]:
    return {each.text for each in browser.driver.find_elements(By.TAG_NAME, "button") if each.is_displayed()}


def test_whoever_may_act_pauses_a_queue_after_the_login(bookshop: Site, browser: Browser) -> None:
    SendMail.add_job("one")
    sign_in(bookshop, browser, "eve")
    assert browser.driver.current_url == bookshop("/staff/jobs/queues")
    browser.complaints()
    browser.requests()
    browser.click("Pause")
    assert "mails is paused: running jobs go on" in browser.text
    assert is_paused()
    assert next(iter(audit_entries())).who.startswith("eve by ")
    browser.open(bookshop("/staff/jobs/"))
    assert browser.complaints() == []
    assert browser.foreign() == []


def test_whoever_may_only_look_finds_no_button(bookshop: Site, browser: Browser) -> None:
    SendMail.add_job("one")
    sign_in(bookshop, browser, "ann")
    assert "mails" in browser.text
    assert not {"Pause", "Clear", "Delete"} & buttons(browser)
    sign_in(bookshop, browser, "root")
    assert "Pause" in buttons(browser)


def test_a_member_of_the_staff_without_a_permission_is_refused(bookshop: Site, browser: Browser) -> None:
    sign_in(bookshop, browser, "carl")
    assert "403" in browser.driver.page_source
    browser.open(bookshop("/admin/limpyd_jobs/jobs/"))
    assert "403" in browser.driver.page_source


def test_whoever_signs_out_sees_nothing_more(bookshop: Site, browser: Browser) -> None:
    SendMail.add_job("one")
    sign_in(bookshop, browser, "eve")
    browser.driver.delete_cookie("sessionid")
    browser.follow(browser.find("Pause", "button"))
    assert not is_paused()
    browser.open(bookshop("/staff/jobs/queues"))
    assert "/admin/login/?next=" in browser.driver.current_url


def test_a_page_of_another_site_can_do_nothing(bookshop: Site, browser: Browser, evil: str) -> None:
    SendMail.add_job("one")
    sign_in(bookshop, browser, "eve")
    browser.open(evil)
    wait_until(lambda: browser.run("return window.done"), "what the evil page does")
    assert not is_paused()
    browser.run("document.getElementById('form').submit()")
    wait_until(lambda: browser.driver.current_url == bookshop("/staff/jobs/queues/pause"))
    assert "Requests from other sites are refused" in browser.driver.page_source
    assert not is_paused()
    browser.open(bookshop("/staff/jobs/queues"))  # the session is still there
    browser.click("Pause")
    assert is_paused()
    browser.complaints()


def test_the_admin_leads_to_the_dashboard(bookshop: Site, browser: Browser) -> None:
    job = SendMail.add_job("one")
    sign_in(bookshop, browser, "ann", "/admin/limpyd_jobs/jobs/")
    browser.complaints()
    browser.find(job.ident, "a").click()
    wait_until(lambda: browser.driver.current_url == bookshop(f"/staff/jobs/jobs/{job.ident}"))
    browser.settle()
    assert job.ident in browser.text
    assert browser.complaints() == []


def test_nothing_that_stands_in_redis_runs_in_the_admin(bookshop: Site, browser: Browser) -> None:
    hostile.fill(bookshop.client)
    sign_in(bookshop, browser, "root", "/admin/")
    for kind in KINDS:
        browser.open(bookshop(f"/admin/limpyd_jobs/{kind}/"))
        browser.complaints()
        assert browser.driver.find_elements(By.CSS_SELECTOR, "#result_list tbody tr")
        links = {link for link in Reading(browser.driver.page_source).links if link.startswith("?")}
        for address in ("", *sorted(links)[:6]):
            browser.open(bookshop(f"/admin/limpyd_jobs/{kind}/{address}"))
            with pytest.raises(NoAlertPresentException):
                browser.driver.switch_to.alert  # noqa: B018
            assert browser.run("return typeof canary") == "undefined"
            assert browser.complaints() == []
            assert harm_of(browser.driver.page_source) == [], kind


def unseen(text: str) -> bool:
    return not all(char.isprintable() or char in "\n\t" for char in text)


def harm_of(html: str) -> list[str]:
    """Return what no template of the admin puts in a page."""
    read = Reading(html)
    found = [text for text in read.texts if unseen(text)]
    for tag, attributes in read.elements:
        found += [f"<{tag} {name}>" for name in attributes if name.startswith(("on", "hx-"))]
        found += [f"{name}={value!r}" for name, value in attributes.items() if name != "value" and unseen(value)]
        if tag in ("img", "iframe", "animate"):  # the admin has icons that are of svg
            found.append(f"<{tag}>")
        for name in ("href", "src", "action"):
            address = attributes.get(name, "/")
            if not address.startswith(("/", "?", "#")) or address.startswith("//"):
                found.append(f"<{tag} {name}={address[:100]!r}>")
    return found
