"""The pages of the README and the manual: their texts, their blocks of code, their tables."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from docutils import nodes
from docutils.core import publish_doctree
from docutils.parsers.rst import Directive, directives, roles

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.rst", *sorted((ROOT / "docs").rglob("*.rst"))]
}
TUTORIALS = ("docs/tutorial.rst", "docs/tutorial_django.rst")  # see test_tutorial.py
MANUAL = "\n".join(PAGES.values())
RUN_COMMAND = "import sys; sys.argv[0] = 'limpyd-jobs-worker'; from limpyd_jobs.scripts.worker import main; main()"
RUN_JOBS = "from limpyd_jobs.scripts.jobs import main; main()"

# Lets the workers of the pages be there.
REGISTER = """
import json
from limpyd_jobs import WorkerPresence
from limpyd_jobs.records import presences

def register(name, **details):
    host, pid, pk = name.split(":")
    fields = {"kind": "worker", "name": name, "host": host, "pid": pid, "details": json.dumps(details)}
    presences.keep(WorkerPresence, pk, fields, 600, WorkerPresence.get_connection(), takes_orders="1")

job = ["myapp.jobs.SendMail:812", "welcome:812", "2026-10-02 00:51:24"]
told = {"queues": ["mails"], "status": "busy", "running": [job], "done": 8120, "failed": 3, "memory": 52_000_000}
register("mailhost:19122:5f0c4f0f8d2a", **told)
register("web1:4711:0bdf4916ec17", queues=["mails", "news"], status="idle", done=91, memory=48_000_000)
"""

# Makes the errors that the manual shows.
FAIL = """
from limpyd_jobs import Worker
from myapp.jobs import SendMail

SendMail.add_jobs([{"identifier": f"welcome:{number}", "to": to} for number, to in enumerate(["bob", "bob", "tom"])])
Worker("mails", max_loops=3).run()
"""

# Makes a flow of the name that the manual shows.
FLOW = """
from limpyd_jobs import Flow
from myapp.jobs import SendMail

with Flow("report:7") as flow:
    first = flow.add(SendMail.prepare(to="ann@example.com"))
    flow.add(SendMail.prepare(to="bob@example.com"), after=first)
"""

# Makes the trashed posting that the manual shows.
TRASH = """
from limpyd_jobs.contrib.taskflow import LimpydJobBoard

board = LimpydJobBoard("orders", {})
board.connect()
job = board.post("a book")
board.claim(job, "me")
board.trash(job, "me")
board.close()
"""


class Block(NamedTuple):
    """A code block: its language, its text, the page it is on, and the title it stands under."""

    language: str
    text: str
    page: str
    section: str

    @property
    def file(self) -> str | None:
        """The path of the Python file that the block is, if it is one."""
        match = re.match(r"# (myapp/\w+\.py)\n", self.text)
        return match and match[1]


def titles_above(node: nodes.Node) -> Iterator[str]:
    while node.parent:
        if isinstance(node, nodes.section):
            yield node[0].astext()
        node = node.parent


class OfSphinx(Directive):
    """A directive that docutils alone does not know, and which holds no block to be run."""

    has_content = True
    optional_arguments = 100

    def run(self) -> list[nodes.Node]:
        return []


def read_page(path: str) -> nodes.document:
    settings = {"report_level": 5, "syntax_highlight": "none", "doctitle_xform": False}
    return publish_doctree(PAGES[path], source_path=str(ROOT / path), settings_overrides=settings)


for name in ("ref", "term"):
    roles.register_generic_role(name, nodes.emphasis)
for name in (
    "autoclass",
    "autoexception",
    "autofunction",
    "currentmodule",
    "glossary",
    "help",
    "literalinclude",
    "metrics",
    "modules",
    "parameters",
    "toctree",
    "verbs",
):
    directives.register_directive(name, OfSphinx)
DOCUMENTS = {path: read_page(path) for path in PAGES if path not in TUTORIALS}


def read_blocks() -> Iterator[Block]:
    for page, document in DOCUMENTS.items():
        for node in document.findall(nodes.literal_block):
            yield Block(node["classes"][-1], node.astext(), page, next(titles_above(node), page))


BLOCKS = [*read_blocks()]
FILES = [block for block in BLOCKS if block.file]
PROGRAMS = [block for block in BLOCKS if block.language == "python" and not block.file]
SHELL = [block for block in BLOCKS if block.language == "bash"]
UNITS = [block for block in BLOCKS if block.language == "ini"]
TEXTS = [block for block in BLOCKS if block.language == "text"]


def commands_of(block: Block) -> Iterator[list[str]]:
    for line in block.text.splitlines():
        for command in re.split(r" && | \| ", line):
            yield shlex.split(command)


COMMANDS = [command for block in SHELL for command in commands_of(block)]


def literals(node: nodes.Node) -> list[str]:
    return [literal.astext() for literal in node.findall(nodes.literal)]


def read_table(title: str) -> dict[str, nodes.Node]:
    """The table under a title: its second column by its first."""
    documents = DOCUMENTS.values()
    (table,) = (table for each in documents for table in each.findall(nodes.table) if title in titles_above(table))
    (body,) = table.findall(nodes.tbody)
    return {first.astext(): second for first, second in body.findall(nodes.row)}


def numbers_aside(text: str) -> str:
    return re.sub(r"\d+", "0", re.sub(r"\d+:\d+:\d+([.,]\d+)?", "0:00:00", text))
