"""What a page of another site can do to a user of the dashboard, in a real browser: nothing."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit

import pytest
from browser import REBOUND, Browser
from conftest import Site
from servers import wait_until
from webshop import SendMail

from limpyd_jobs.query import queue_states

# A page of another site, ``localhost``, which the user of the dashboard on ``127.0.0.1`` visits.
EVIL = """<!doctype html><title>evil</title>
<iframe id="frame" src="{site}queues"></iframe>
<iframe name="target"></iframe>
<form id="form" method="post" action="{site}queues/pause" target="target"><input name="queue" value="mails"></form>
<script>
window.loaded = []; window.done = 0;
const note = (what) => () => loaded.push(what);
for (const path of ["jobs/words", "static/none.js"]) {{
  const script = document.createElement("script");
  script.onload = note(path);
  script.src = "{site}" + path;
  document.head.append(script);
}}
const body = new URLSearchParams({{queue: "mails"}});
Promise.allSettled([
  fetch("{site}queues").then(note("read")),
  fetch("{site}queues/pause", {{method: "POST", mode: "no-cors", credentials: "include", body}}),
  fetch("{site}queues/pause", {{method: "POST", mode: "cors", body}}),
]).then(() => {{ document.getElementById("form").submit(); setTimeout(() => {{ done = 1; }}, 300); }});
</script>"""


@pytest.fixture
def evil(workshop: Site) -> Iterator[str]:
    """The address of a page of another site."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(EVIL.format(site=workshop.address).encode())

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://localhost:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_another_site_neither_frames_nor_reads_nor_changes_anything(
    evil: str, workshop: Site, browser: Browser
) -> None:
    SendMail.add_job("one")
    browser.complaints()
    browser.requests()
    browser.driver.get(evil)
    wait_until(lambda: browser.run("return window.done"), "the end of the attack")
    assert browser.run("return window.loaded") == []
    assert not queue_states("mails")[0].is_paused
    assert browser.requests().count(workshop("/queues/pause")) >= 3
    assert "frame-ancestors 'none'" in "\n".join(browser.complaints())
    browser.driver.switch_to.frame("frame")
    assert "mails" not in browser.driver.page_source
    browser.driver.switch_to.default_content()
    browser.driver.get("about:blank")


def test_a_name_that_leads_here_by_rebinding_is_refused(workshop: Site, browser: Browser) -> None:
    SendMail.add_job("one")
    browser.driver.get(f"http://{REBOUND}:{urlsplit(workshop.address).port}/queues")
    assert "not in the list of hosts" in browser.driver.page_source
    assert "mails" not in browser.driver.page_source
    browser.complaints()
    browser.driver.get("about:blank")
    browser.requests()
