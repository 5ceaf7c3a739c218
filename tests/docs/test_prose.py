"""The manual can be read aloud: short lines in its sources, short paragraphs, and no oblique "told"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from docutils import nodes
from pages import DOCUMENTS, PAGES, read_page

MAX_CHARACTERS = 125  # of a line in the source
MAX_WORDS = 100  # of a paragraph, or an item of a list
SIGNATURE = re.compile(r"``.+``|:\w+: .+")  # cannot be wrapped


@pytest.fixture(params=sorted(PAGES), scope="module")
def page(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def document(page: str) -> nodes.document:
    return DOCUMENTS[page] if page in DOCUMENTS else read_page(page)


def test_no_line_of_prose_is_long(page: str, document: nodes.document):
    code = {line.strip() for block in document.findall(nodes.literal_block) for line in block.astext().splitlines()}
    long = [line.strip() for line in PAGES[page].splitlines() if len(line) > MAX_CHARACTERS]
    assert [line for line in long if line not in code and not SIGNATURE.fullmatch(line)] == []


def test_no_paragraph_is_long(document: nodes.document):
    texts = [paragraph.astext() for paragraph in paragraphs_of(document)]
    assert [text for text in texts if len(text.split()) > MAX_WORDS] == []


def test_nothing_is_told(document: nodes.document):
    texts = [text for paragraph in paragraphs_of(document) for text in paragraph.findall(nodes.Text)]
    assert [text for text in texts if re.search(r"\btold\b", text) and not isinstance(text.parent, nodes.literal)] == []


def paragraphs_of(document: nodes.document) -> Iterator[nodes.paragraph]:
    """The paragraphs of a page, without those of the changelog and of tables of measures, which it includes."""
    files = {Path(document["source"]).name, "CONTRIBUTING.rst"}
    return (each for each in document.findall(nodes.paragraph) if Path(each.source or "").name in files)
