"""The manual can be read aloud: short lines in its sources, short paragraphs and sentences, the subject first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from docutils import nodes
from pages import DOCUMENTS, PAGES, ROOT, read_page

MAX_CHARACTERS = 125  # of a line in the source
MAX_WORDS = 100  # of a paragraph, or an item of a list
MAX_WORDS_OF_SENTENCE = 45  # beside literals
OBLIQUE = re.compile(
    r"\b[Tt](?:old|ells?|elling)\b"  # write what says, shows or names it
    r"|\b[Ww]hoever\b|(?:^|[.;:] )Who (?:asks|can|gets|reads|writes)\b"  # write who does it
    r"|\b(?:So|Neither|Nor) (?:is|are|was|were|does|do|did|has|have|can|will|must)\b"  # write the subject first
)
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


@pytest.mark.parametrize("path", ["CONTRIBUTING.rst", "SECURITY.rst"])
def test_no_line_of_a_page_beside_the_manual_is_long(path: str):
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(line) > MAX_CHARACTERS] == []


def test_no_paragraph_is_long(document: nodes.document):
    texts = [paragraph.astext() for paragraph in paragraphs_of(document)]
    assert [text for text in texts if len(text.split()) > MAX_WORDS] == []


def test_no_sentence_is_long(document: nodes.document):
    sentences = [sentence for text in texts_of(document) for sentence in re.split(r"(?<=[.?!])\)?\s", text)]
    assert [text for text in sentences if len(re.sub(r"\S*`\S*", "", text).split()) > MAX_WORDS_OF_SENTENCE] == []


def test_no_sentence_is_oblique(document: nodes.document):
    assert [text for text in texts_of(document) if OBLIQUE.search(text)] == []


def texts_of(document: nodes.document) -> Iterator[str]:
    """The texts of the paragraphs of a page, each literal as one word: `."""
    for paragraph in paragraphs_of(document):
        texts = ("`" if isinstance(each.parent, nodes.literal) else each for each in paragraph.findall(nodes.Text))
        yield " ".join("".join(texts).split())


def paragraphs_of(document: nodes.document) -> Iterator[nodes.paragraph]:
    """The paragraphs of a page, without those of the changelog and of tables of measures, which it includes."""
    files = {Path(document["source"]).name, "CONTRIBUTING.rst", "SECURITY.rst"}
    return (each for each in document.findall(nodes.paragraph) if Path(each.source or "").name in files)
