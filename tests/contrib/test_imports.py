"""Integrations use only what is documented for all."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import limpyd_jobs

ROOT = Path(limpyd_jobs.__file__).parent
FILES = sorted((ROOT / "contrib").rglob("*.py"))
DIRECTIVE = re.compile(r"^\.\. (currentmodule|auto\w+):: ([\w.]+)$", re.MULTILINE)


def imports_of(path: Path) -> Iterator[str]:
    """The paths of the names of this library that a module imports, those of other integrations apart."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.startswith("limpyd_jobs"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("limpyd_jobs"):
            yield from (f"{node.module}.{each.name}" for each in node.names if ".contrib" not in (node.module or ""))


def documented() -> Iterator[str]:
    """The paths of all that the reference shows with its docstring."""
    for page in (ROOT.parent / "docs" / "reference").glob("*.rst"):
        module = ""
        for directive, path in DIRECTIVE.findall(page.read_text()):
            if directive == "currentmodule":
                module = path
            else:
                yield from (path, f"{module}.{path}")


DOCUMENTED = {*documented(), *(f"limpyd_jobs.{name}" for name in limpyd_jobs.__all__)}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_an_integration_imports_nothing_but_what_the_reference_documents(path: Path) -> None:
    assert [name for name in imports_of(path) if name not in DOCUMENTED] == []


def test_there_are_integrations() -> None:
    assert sum(len([*imports_of(path)]) for path in FILES) > 15
