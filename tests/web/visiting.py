"""Pages of the dashboard as a plain client gets them, found by following links; and what stands in them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from urllib.error import HTTPError
from urllib.parse import unquote, urljoin, urlsplit
from urllib.request import Request, urlopen

from limpyd_jobs.contrib.web.pages import PAGES
from limpyd_jobs.contrib.web.protocol import Page

HTML, JSON = "text/html", "application/json"


def get(address: str, accept: str = HTML, body: str | None = None) -> tuple[int, str]:
    """Return the status and the text of a page; with a body, of what comes after a form was sent."""
    data = None if body is None else body.encode()
    try:
        with urlopen(Request(address, data, {"Accept": accept}), timeout=30) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


class Reading(HTMLParser):
    """The elements, the attributes and the texts of a page."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, Mapping[str, str]]] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def links(self) -> Iterator[str]:
        for tag, attributes in self.elements:
            if tag == "a" and "href" in attributes:
                yield attributes["href"]
            if "hx-get" in attributes:
                yield attributes["hx-get"]


def pages_of(root: str, most: int = 4, visited: dict[str, tuple[int, str]] | None = None) -> dict[str, list[str]]:
    """Follow the links from the overview on; return addresses by the path of their page, which may have parameters.

    A page that no link leads to has no address, one with many links to it at most some. The status and the text of each
    are in `visited` afterwards.
    """
    pages = {} if visited is None else visited
    patterns = {page.path: _pattern_of(page) for page in PAGES if page.template}
    found: dict[str, list[str]] = defaultdict(list)
    seen, to_visit = {root}, [root]
    for address in to_visit:
        path = unquote(urlsplit(address).path, errors="surrogateescape")
        page = next((each for each, pattern in patterns.items() if pattern.fullmatch(path)), None)
        if page is None or len(found[page]) >= most:
            continue
        found[page].append(address)
        pages[address] = get(address)
        for link in Reading(pages[address][1]).links:
            target = urljoin(address, link).partition("#")[0]
            if target not in seen and urlsplit(target).netloc == urlsplit(root).netloc:
                seen.add(target)
                to_visit.append(target)
    return dict(found)


def _pattern_of(page: Page) -> re.Pattern[str]:
    parts = re.split(r"\{\w+(?::(\w+))?\}", page.path)
    texts, kinds = parts[::2], parts[1::2]
    wildcards = [".+" if kind == "path" else "[^/]+" for kind in kinds] + [""]
    return re.compile("".join(re.escape(text) + wild for text, wild in zip(texts, wildcards, strict=True)), re.DOTALL)
