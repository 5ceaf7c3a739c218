"""Whatever stands in Redis: nothing of it runs in a browser, and nobody is deceived by characters that are not seen."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import urlencode

import pytest
from browser import TOO_WIDE, Browser
from conftest import Site
from hostile import MODEL, PAYLOADS, PRODUCT, SECRET
from selenium.common.exceptions import NoAlertPresentException
from servers import wait_until
from visiting import JSON, Reading, get, pages_of

from limpyd_jobs.contrib.web import pages
from limpyd_jobs.contrib.web.pages import PAGES
from limpyd_jobs.query import JobFilter

TEMPLATES = Path(pages.__file__).parents[1] / "templates"

# Pages that no link leads to: other tests look at them.
AFTER_FORMS = {"/tasks/{pk}", "/requeues/{token}", "/find/through"}

# What templates are made of: nothing else may stand in a page.
_SOURCES = "\n".join(path.read_text() for path in TEMPLATES.glob("*.html"))
TAGS = {*re.findall(r"<([a-z][a-z0-9]*)", _SOURCES.lower()), "time"}
ATTRIBUTES = {
    *re.findall(r"[\s}]([a-z][\w:-]*)(?==\"|[\s>{])", _SOURCES.lower()),
    "content",
    "datetime",
    "title",
    "data-ago",
    "data-clock",
    "data-day",
}

# Attributes that hold an address.
ADDRESSES = {"href", "src", "action", "formaction", "hx-get", "hx-post", "hx-sse:connect"}

# What a form sends back has to be as it is stored. The browser shows it nowhere, or in a field of its own.
SENT_BACK = {("input", "name"), ("input", "value"), ("option", "value"), ("button", "data-word"), ("button", "value")}

MAX_PAGE = 3_000_000


# Each page that was visited: its status, and its text.
Visited = dict[str, tuple[int, str]]


@pytest.fixture(scope="module")
def visited() -> Visited:
    return {}


@pytest.fixture(scope="module")
def addresses(_hostile: Site, visited: Visited) -> dict[str, list[str]]:
    begun = json.loads(get(_hostile("/check/run"), JSON, body="")[1])
    wait_until(lambda: json.loads(get(_hostile(begun["progress"]), JSON)[1])["is_over"], "the end of a check")
    return pages_of(_hostile("/"), 40, visited)


def test_a_check_finds_what_is_hostile(addresses: dict[str, list[str]], hostile_site: Site) -> None:
    assert addresses["/check"]
    assert " found, " in get(hostile_site("/check"))[1]


def harm_of(html: str) -> list[str]:
    """Return what a page has that no template put there, and characters that are not seen."""
    read = Reading(html)
    nonces = {attributes.get("nonce") for tag, attributes in read.elements if tag == "script"}
    found = [f"<{tag}>" for tag, _ in read.elements if tag not in TAGS]
    for tag, attributes in read.elements:
        for name, value in attributes.items():
            if name not in ATTRIBUTES or name.startswith("on") or name == "style":
                found.append(f"<{tag} {name}={value[:100]!r}>")
            if name in ADDRESSES and not re.match(r"/(?!/)|#", value):
                found.append(f"{name}={value[:100]!r}")
            if (tag, name) not in SENT_BACK:
                found += [f"{char!r} in {name}" for char in unseen(value)]
            if name.startswith("hx-") and {attributes.get("hx-nonce")} != nonces:
                found.append(f"{name} without the nonce")
    return [*found, *(f"{char!r} in a text" for text in read.texts for char in unseen(text))]


def unseen(text: str) -> set[str]:
    return {char for char in text if not (char.isprintable() or char in "\n\t")}


@pytest.mark.parametrize("path", [page.path for page in PAGES if page.template])
def test_no_page_has_what_no_template_put_there(path: str, addresses: dict[str, list[str]], visited: Visited) -> None:
    for address in addresses.get(path, ()):
        status, html = visited[address]
        assert status in (200, 400, 404), address
        assert harm_of(html) == [], address
        assert len(html) < MAX_PAGE
        assert str(PRODUCT[0] * PRODUCT[1]) not in html
        assert SECRET not in html


@pytest.mark.parametrize("path", [page.path for page in PAGES if page.template])
def test_programs_are_sent_json(path: str, addresses: dict[str, list[str]]) -> None:
    for address in addresses.get(path, ())[:10]:
        status, text = get(address, JSON)
        assert status in (200, 400, 404), address
        assert json.loads(text)
        assert text.isascii()
        assert SECRET not in text


def test_jobs_of_functions_and_long_jobs_do_no_harm(hostile_site: Site, browser: Browser) -> None:
    jobs = list(JobFilter("class=hostile.attack"))
    assert len(jobs) == 2 * len(PAYLOADS)
    told = ""
    for job in jobs:
        address = hostile_site(f"/jobs/{job.ident}")
        html, text = get(address)[1], get(address, JSON)[1]
        assert harm_of(html) == [], job.ident
        assert SECRET not in html + text
        assert json.loads(text)["job"]["fields"]["api_token"] == "(masked)"
        told += text
    assert told.count("It is too late to begin it") == len(PAYLOADS)
    assert told.count("Its next run goes on where it was") >= len(PAYLOADS) - 1  # the one that is blank says nothing
    for job in jobs[:3]:
        browser.open(hostile_site(f"/jobs/{job.ident}"))
        assert_nothing_ran(browser)
    for address in ("/jobs?queue=functions&limit=100", "/jobs/facets?queue=functions&by=identifier"):
        html = get(hostile_site(address))[1]
        assert harm_of(html) == []
        assert SECRET not in html


@pytest.mark.parametrize("path", [page.path for page in PAGES if page.template and page.path not in AFTER_FORMS])
def test_nothing_runs(path: str, addresses: dict[str, list[str]], visited: Visited, browser: Browser) -> None:
    found = [address for address in addresses[path] if visited[address][0] == 200][:2]
    assert found
    for address in found:
        browser.open(address)
        assert_nothing_ran(browser)
        assert browser.foreign() == []
        browser.resize(375)
        wide = browser.run(TOO_WIDE)
        browser.resize(1280)
        assert wide == [], address


def test_what_a_stream_brings_runs_nothing(hostile_site: Site, browser: Browser) -> None:
    browser.open(hostile_site("/"))
    moment = "return document.querySelector('#looked time').dateTime"
    before = browser.run(moment)
    wait_until(lambda: browser.run(moment) != before, "news of the overview")
    assert_nothing_ran(browser)


def assert_nothing_ran(browser: Browser) -> None:
    with pytest.raises(NoAlertPresentException):
        browser.driver.switch_to.alert  # noqa: B018
    assert browser.run("return typeof canary") == "undefined"
    assert browser.complaints() == []


@pytest.mark.parametrize("name", PAYLOADS)
def test_what_is_typed_and_sent_does_not_run_either(name: str, hostile_site: Site) -> None:
    text = PAYLOADS[name]
    for address in (
        *(f"/jobs?{urlencode({key: text})}" for key in ("q", "queue", "to", "by", "after", "done", text)),
        f"/jobs/facets?{urlencode({'by': text, 'q': text})}",
        f"/jobs/words?{urlencode({'q': text})}",
        f"/{urlencode({'': text})[1:]}",
        f"/jobs/{urlencode({'': text})[1:]}",
        f"/tasks/{urlencode({'': text})[1:]}",
    ):
        status, html = get(hostile_site(address))
        assert status in (200, 400, 403, 404, 414), address
        assert harm_of(html) == [], address
    acts = [act for page in PAGES for act in page.acts if "{" not in act.path]
    for act in acts[[*PAYLOADS].index(name) % 3 :: 3]:  # each of them gets a third of the texts, and each text a third
        form = dict.fromkeys(("queue", "target", "ident", "q", "queue_to", "name", "pk", "model", "worker", text), text)
        status, html = get(hostile_site(act.path), body=urlencode(form))
        assert status < 500, act.path
        assert harm_of(html) == [], act.path


def test_a_page_with_a_confirmation_runs_nothing(hostile_site: Site, browser: Browser) -> None:
    for text in ("script", "double quotes", "htmx"):
        browser.open(hostile_site(f"/jobs?{urlencode({'to': PAYLOADS[text]})}"))
        assert_nothing_ran(browser)
        browser.driver.find_element("name", "all").click()
        browser.find("More", "summary").click()
        browser.fill("queue_to", PAYLOADS[text])
        browser.click("Move")
        assert_nothing_ran(browser)
        assert browser.violations() == []


def test_the_corpus_is_there(hostile_site: Site) -> None:
    assert hostile_site.client.scard(f"{MODEL}:collection") == 5 * len(PAYLOADS) + 2
