"""A real browser, as the tests use it: what it logs and loads, what a keyboard reaches, what axe-core says."""

from __future__ import annotations

import json
import os
import shutil
from base64 import b64decode
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from PIL import Image
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from servers import wait_until

AXE = Path(__file__).with_name("vendor") / "axe.min.js"

# The rules that depend on colours: the others say the same in each theme.
OF_COLOURS = ("color-contrast", "link-in-text-block")

# A name of another site that leads to this host.
REBOUND = "rebound.example"

# How many colours a picture has.
COLOURS = 256

PROGRAMS = {"chromium": ("chromium", "chromium-browser"), "chromedriver": ("chromedriver",)}

# Is true once scripts have run, and htmx has nothing more to load by itself.
IS_READY = """
return document.readyState === "complete" && !document.querySelector(".htmx-request, [hx-trigger=load]");
"""

VIOLATIONS = """
const [rules, done] = arguments;
const options = {resultTypes: ["violations"], ...(rules ? {runOnly: {type: "rule", values: rules}} : {})};
axe.run(document, options).then(found => done(found.violations.map(
  each => `${each.id}: ${each.help}: ${each.nodes.slice(0, 3).map(node => node.html.slice(0, 200)).join(" | ")}`
)), error => done([`axe failed: ${error}`]));
"""

# What can get the focus, but shows no outline when it has it.
WITHOUT_OUTLINE = """
const found = [];
for (const each of document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")) {
  if (each.tabIndex < 0 || each.disabled || !each.checkVisibility() || each.type === "hidden") continue;
  each.focus();
  const style = getComputedStyle(each);
  const isSeen = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  if (document.activeElement !== each || !isSeen) found.push(each.outerHTML.slice(0, 200));
}
return found;
"""

# What makes a page wider than the window: elements that are not inside one that scrolls.
TOO_WIDE = """
const width = document.documentElement.clientWidth;
if (document.documentElement.scrollWidth <= width) return [];
return [...document.querySelectorAll("body *")].filter(
  each => each.getBoundingClientRect().right > width + 1 && !each.closest(".scroll, pre, .skip, .only-read")
).slice(0, 5).map(each => each.outerHTML.slice(0, 200)).concat([`${document.documentElement.scrollWidth} px`]);
"""


def program(name: str) -> str | None:
    """Return the path of the browser, or of its driver; None if it is not installed."""
    return next(filter(None, map(shutil.which, PROGRAMS[name])), None)


class Browser:
    """Chromium without a window, with a profile of its own."""

    def __init__(self, profile: Path) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = program("chromium") or ""
        for argument in (
            "--headless=new",
            f"--user-data-dir={profile}",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            # it asks nobody for updates, and finds no other host than this one
            "--disable-background-networking",
            "--disable-component-update",
            f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
            *(["--no-sandbox"] if os.getuid() == 0 else []),
        ):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        options.set_capability("unhandledPromptBehavior", "ignore")  # a test has to see a dialog
        self.driver = webdriver.Chrome(options, webdriver.ChromeService(program("chromedriver")))
        self.driver.set_page_load_timeout(30)
        self.driver.set_script_timeout(30)
        self.driver.execute_cdp_cmd("Emulation.setLocaleOverride", {"locale": "en-GB"})
        self.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Europe/Paris"})
        self.resize(1280)
        self.theme("light")
        self.driver.get("about:blank")
        self.driver.get_log("performance")  # what the new window loaded

    def close(self) -> None:
        self.driver.quit()

    def open(self, address: str) -> None:
        self.driver.get(address)
        self.settle()

    def settle(self) -> None:
        """Wait until the page has loaded all that it loads by itself."""
        wait_until(lambda: self.run(IS_READY), f"the end of loading of {self.driver.current_url}")

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def resize(self, width: int, height: int = 800) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def theme(self, name: str) -> None:
        """Let the system have a theme, ``light`` or ``dark``, and reduced motion: nothing fades."""
        features = [
            {"name": "prefers-color-scheme", "value": name},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def find(self, text: str, tag: str = "*") -> WebElement:
        """Return the element, a button or a link for example, that has this text and is shown."""
        path = f"//{tag}[normalize-space()={json.dumps(text, ensure_ascii=False)}]"
        found = [each for each in self.driver.find_elements(By.XPATH, path) if each.is_displayed()]
        assert found, f"no {tag} says {text!r} on {self.driver.current_url}"
        return found[-1]

    def click(self, text: str, tag: str = "button") -> None:
        """Click what has this text, and wait for the page that comes then."""
        self.follow(self.find(text, tag))

    def confirm(self) -> None:
        """Say yes to what a page asks, by the button that says what it does."""
        self.follow(self.driver.find_element(By.CSS_SELECTOR, "[data-yes]"))

    def follow(self, element: WebElement) -> None:
        self.run("document.documentElement.dataset.left = 1")
        self.run("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()
        wait_until(lambda: self.run("return !document.documentElement.dataset.left"), "the next page")
        self.settle()

    def fill(self, name: str, text: str) -> None:
        field = next(each for each in self.driver.find_elements(By.NAME, name) if each.is_displayed())
        field.clear()
        field.send_keys(text)

    @property
    def text(self) -> str:
        """What stands on the page."""
        return " ".join(self.driver.find_element(By.TAG_NAME, "main").text.split())

    def complaints(self) -> list[str]:
        """Return what the browser complained about since the last call."""
        return [f"{each['level']}: {each['message']}" for each in self.driver.get_log("browser")]

    def foreign(self) -> list[str]:
        """Return what was requested since the last call, other than from this host."""
        asked = self.requests()
        assert asked
        return [
            url for url in asked if urlsplit(url).hostname != "127.0.0.1" and not url.startswith(("data:", "about:"))
        ]

    def requests(self) -> list[str]:
        """Return the addresses that were requested since the last call."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]

    def violations(self, rules: Sequence[str] | None = None) -> list[str]:
        """Return what axe-core finds wrong; of some rules only, if they are given."""
        if not self.run("return typeof axe === 'object'"):
            self.run(AXE.read_text())
        found: list[str] = self.driver.execute_async_script(VIOLATIONS, rules)
        return found

    def press(self, key: str = Keys.TAB) -> None:
        self.driver.switch_to.active_element.send_keys(key)

    def picture(self) -> bytes:
        """Return what the window shows, as a small PNG."""
        taken = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"]
        written = BytesIO()
        Image.open(BytesIO(b64decode(taken))).quantize(COLOURS).save(written, "PNG", optimize=True)
        return written.getvalue()
