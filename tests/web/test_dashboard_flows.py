"""Flows in a real browser: found by their names, their graphs live, at each width and by keyboard."""

from __future__ import annotations

from browser import TOO_WIDE, Browser
from conftest import Site
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from servers import wait_until
from webshop import Report, SendMail

from limpyd_jobs import Flow, chain

BOXES = """
return [...document.querySelectorAll('.graph .node')].filter(each => each.checkVisibility()).map(each => each.innerText)
"""

# The lines that do not go from the bottom of a box to the top of another one, or pass through a box.
WRONG_LINES = """
const graph = [...document.querySelectorAll('.graph')].find(each => each.checkVisibility());
const boxes = [...graph.querySelectorAll('foreignObject')].map(
  each => ['x', 'y', 'width', 'height'].map(name => each[name].baseVal.value));
return [...graph.querySelectorAll('path')].filter(path => {
  const length = path.getTotalLength(), at = place => path.getPointAtLength(place), start = at(0), end = at(length);
  const touches = (point, side) => boxes.some(
    ([x, y, width, height]) => point.x > x && point.x < x + width && Math.abs(point.y - (y + side * height)) < 1);
  const isIn = point => boxes.some(([x, y, width, height]) =>
    point.x > x + 1 && point.x < x + width - 1 && point.y > y + 1 && point.y < y + height - 1);
  const points = [...Array(Math.ceil(length / 3)).keys()].map(number => at(3 * number));
  return !touches(start, 1) || !touches(end, 0) || points.some(isIn);
}).map(path => path.getAttribute('d'));
"""


def a_flow() -> Flow:
    return chain(Report.prepare(), SendMail.prepare(to="ann@example.com"), name="report:7")


def test_a_flow_is_found_by_its_name_and_its_graph_leads_to_its_jobs(workshop: Site, browser: Browser) -> None:
    flow = a_flow()
    browser.open(workshop("/"))
    browser.driver.find_element(By.TAG_NAME, "body").send_keys(Keys.CONTROL, "k")
    browser.driver.switch_to.active_element.send_keys("report:7")
    wait_until(lambda: "Flow report:7" in browser.run("return document.getElementById('palette').innerText"))
    browser.run("document.documentElement.dataset.left = 1")
    browser.press(Keys.ENTER)
    wait_until(lambda: browser.run("return !document.documentElement.dataset.left"), "the page of the flow")
    browser.settle()
    assert browser.run(BOXES) == ["Report\nwaiting", "SendMail\nwaiting for others\n, after Report"]
    for key in ("j", "j", Keys.ENTER):
        browser.press(key)
    wait_until(lambda: f"/jobs/{flow.nodes()[1].ident}" in browser.driver.current_url)
    browser.settle()
    browser.click("report:7", "a")
    assert "/flows/flow" in browser.driver.current_url


def test_a_graph_changes_as_jobs_end(workshop: Site, browser: Browser) -> None:
    flow = a_flow()
    browser.open(workshop(f"/flows/flow?name={flow.id}"))
    flow._nodes[0].job.claim().succeed()
    wait_until(lambda: browser.run(BOXES) == ["Report\nsuccess", "SendMail\nwaiting\n, after Report"])
    assert browser.complaints() == []


def test_a_graph_fits_on_a_phone_and_can_be_tapped(shop: Site, browser: Browser) -> None:
    for width in (375, 1280):
        browser.resize(width)
        for name in ("month-end:2026-11", "catalogue"):
            browser.open(shop(f"/flows/flow?name={name}"))
            assert browser.run(TOO_WIDE) == []
            boxes = [each for each in browser.driver.find_elements(By.CSS_SELECTOR, ".node") if each.is_displayed()]
            assert len(boxes) == {"month-end:2026-11": 7, "catalogue": 2}[name]
            assert all(each.size["height"] >= 44 for each in boxes)
            assert browser.violations() == []


def test_on_a_phone_a_line_goes_from_below_a_box_to_above_another_and_through_none(
    workshop: Site, browser: Browser
) -> None:
    with Flow("wide") as flow:
        first = flow.add(Report.prepare())
        second = [flow.add(Report.prepare(), after=first) for _ in range(5)]
        third = [flow.add(Report.prepare(), after=each) for each in second]
        flow.add(Report.prepare(), after=[*third, *second[:2], first])
    browser.resize(390)
    browser.open(workshop("/flows/flow?name=wide"))
    lines = browser.run(
        "return [...document.querySelectorAll('.graph')].find(each => each.checkVisibility()).outerHTML"
    )
    wrong = browser.run(WRONG_LINES)
    browser.resize(1280)
    assert lines.count("<path") == 18
    assert wrong == []
