"""Each page, in a real browser: it complains about nothing, loads nothing from elsewhere, and everybody can use it."""

from __future__ import annotations

import gzip
from pathlib import Path
from socket import gethostname

import pytest
from browser import OF_COLOURS, TOO_WIDE, WITHOUT_OUTLINE, Browser
from conftest import ROOT, Site
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from visiting import get, pages_of

from limpyd_jobs.contrib.web.pages import PAGES

# Pages that only come after a form was sent: other tests look at them.
AFTER_FORMS = {"/tasks/{pk}", "/requeues/{token}", "/find/through"}

# The pictures of the manual: the address of the page, and the height; 0 for all that is on cards.
PICTURES = {
    "overview": ("/", 0),
    "queues": ("/queues", 560),
    "queue": ("/queues/queue?name=images", 0),
    "jobs": ("/jobs?q=status%3Derror", 800),
    "errors": ("/errors", 480),
    "workers": ("/workers", 0),
    "schedules": ("/schedules", 420),
    "flow": ("/flows/flow?name=month-end%3A2026-11", 0),
    "job": ("/jobs/webshop.SendMail:12", 0),
}

MAX_PICTURE = 150_000

END_OF_CARDS = """
const cards = [...document.querySelectorAll("main .card, main .tile")];
const bottoms = cards.map(each => each.getBoundingClientRect().bottom);
return Math.ceil(Math.max(...bottoms) + scrollY) + 12;
"""

# A picture has the path and the name of no machine.
AT_HOME = """
const [home, host] = arguments, texts = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const text = texts.currentNode;
  text.nodeValue = text.nodeValue.replaceAll(home, "/srv/shop").replaceAll(`${host}:`, "web1:");
}
"""

WIDTH, TABLET, PHONE = 1280, 768, 375


@pytest.fixture(scope="module")
def addresses(_shop: Site) -> dict[str, list[str]]:
    return pages_of(_shop("/"))


def test_a_link_leads_to_each_page(addresses: dict[str, list[str]]) -> None:
    assert {page.path for page in PAGES if page.template} - addresses.keys() <= AFTER_FORMS


@pytest.mark.parametrize("path", [page.path for page in PAGES if page.template and page.path not in AFTER_FORMS])
def test_a_page_is_well_made(path: str, addresses: dict[str, list[str]], browser: Browser) -> None:
    for address in addresses[path][: 2 if path in ("/jobs", "/jobs/{ident}") else 1]:
        browser.open(address)
        assert browser.foreign() == []
        assert browser.complaints() == []
        assert_accessible(browser)
        assert browser.complaints() == []


def assert_accessible(browser: Browser) -> None:
    """Look at a page in both themes, by keyboard, and on smaller screens."""
    assert browser.violations() == []
    browser.theme("dark")
    dark = browser.violations(OF_COLOURS)
    browser.theme("light")
    assert dark == []
    browser.press(Keys.TAB)
    assert browser.run(WITHOUT_OUTLINE) == []
    for width in (PHONE, TABLET):
        browser.resize(width)
        wide = browser.run(TOO_WIDE)
        browser.resize(WIDTH)
        assert wide == [], width


def test_a_page_without_anything_says_what_it_will_show_or_what_to_do_first(workshop: Site, browser: Browser) -> None:
    for path in (page.path for page in PAGES if page.label):
        browser.open(workshop(path))
        browser.resize(PHONE)
        said, wide = browser.driver.find_elements(By.CSS_SELECTOR, "main h2"), browser.run(TOO_WIDE)
        browser.resize(WIDTH)
        assert said, path
        assert wide == [], path
        assert browser.violations() == []


def test_the_keyboard_reaches_everything(shop: Site, browser: Browser) -> None:
    browser.open(shop("/queues"))
    reached = []
    for _ in range(50):
        browser.press()
        reached += browser.run("const at = document.activeElement; return [at.innerText.trim(), at.ariaLabel ?? '']")
    assert reached[0] == "Skip to the content"
    assert {"Overview", "Queues", "Jobs", "Dark theme", "mails", "Pause"} <= {*reached}


@pytest.mark.parametrize("path", ["/jobs", "/errors", "/find"])
def test_the_box_of_a_search_takes_no_more_than_it_needs(path: str, shop: Site, browser: Browser) -> None:
    for width in (PHONE, WIDTH):
        browser.resize(width)
        browser.open(shop(path))
        box = browser.driver.find_element(By.CSS_SELECTOR, "form.box")
        assert box.size["height"] < 200
        assert box.find_element(By.CSS_SELECTOR, ".bar").size["width"] > box.size["width"] - 10


def test_the_theme_that_is_chosen_stays(shop: Site, browser: Browser) -> None:
    browser.open(shop("/queues"))
    before = browser.run("return getComputedStyle(document.documentElement).backgroundColor")
    browser.driver.find_element(By.CSS_SELECTOR, "[aria-label='Dark theme']").click()
    browser.open(shop("/jobs"))
    assert browser.run("return getComputedStyle(document.documentElement).backgroundColor") != before
    assert browser.violations(OF_COLOURS) == []
    browser.driver.find_element(By.CSS_SELECTOR, "[aria-label='Light theme']").click()
    browser.run("localStorage.clear()")


def test_times_are_in_the_zone_of_the_viewer(shop: Site, browser: Browser) -> None:
    browser.open(shop("/jobs/webshop.SendMail:1"))
    assert browser.driver.find_element(By.ID, "zone").text.startswith("Europe/Paris, UTC+")
    time = browser.driver.find_element(By.CSS_SELECTOR, "time:not([data-ago])")
    assert time.get_attribute("title").endswith(" UTC")
    assert time.text != time.get_attribute("title")
    browser.find("Show UTC", "button").click()
    assert time.text == time.get_attribute("title")
    browser.find("Show Europe/Paris", "button").click()
    time.click()
    assert time.get_attribute("title") in browser.driver.find_element(By.ID, "tip").text


def test_the_first_page_is_small(shop: Site, browser: Browser) -> None:
    """With the data of a shop, and as a browser counts it."""
    browser.driver.execute_cdp_cmd("Network.setCacheDisabled", {"cacheDisabled": True})
    browser.open(shop("/"))
    sizes = browser.run("return performance.getEntriesByType('resource').map(each => each.encodedBodySize)")
    browser.driver.execute_cdp_cmd("Network.setCacheDisabled", {"cacheDisabled": False})
    assert len(sizes) >= 5
    assert sum(sizes) + len(gzip.compress(get(shop("/"))[1].encode())) < 150_000


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_of_it_fits_in_the_manual(
    name: str, shop: Site, browser: Browser, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = ROOT / "docs" / "images" if request.config.getoption("--pictures") else tmp_path
    path, height = PICTURES[name]
    browser.resize(WIDTH, height or 800)
    browser.open(shop(path))
    browser.resize(WIDTH, height or browser.run(END_OF_CARDS))
    browser.run(AT_HOME, str(ROOT / "tests" / "web"), gethostname().partition(".")[0])
    picture = browser.picture()
    browser.resize(WIDTH)
    assert len(picture) < MAX_PICTURE
    (folder / f"{name}.png").write_bytes(picture)
