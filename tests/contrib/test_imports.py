"""Integrations use only what is declared for them, and import downwards."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from cases import each

import limpyd_jobs
from limpyd_jobs import check, integration, query, shards, views

ROOT = Path(limpyd_jobs.__file__).parent
FILES = sorted((ROOT / "contrib").rglob("*.py"))
PUBLIC: tuple[Any, ...] = (limpyd_jobs, integration, query, check, shards, views)


def declared_by(module: Any) -> set[str]:
    """The names that a module declares: all that it imports `as` themselves, or has in ``__all__``."""
    imports = [node for node in ast.parse(Path(module.__file__).read_text()).body if isinstance(node, ast.ImportFrom)]
    return {each.name for node in imports for each in node.names if each.asname == each.name} or {*module.__all__}


DECLARED = {f"{module.__name__}.{name}" for module in PUBLIC for name in declared_by(module)}


def imports_of(path: Path) -> Iterator[str]:
    """The paths of the names of this library that a module imports, also inside of functions, or only for types."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.startswith("limpyd_jobs"))
        elif isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("limpyd_jobs")):
            yield from (f"{node.module}.{each.name}" for each in node.names)


@each("path", FILES)
def test_an_integration_imports_nothing_but_what_is_declared(path: Path) -> None:
    ours = {name for name in imports_of(path) if not name.startswith("limpyd_jobs.contrib.")}
    assert ours - DECLARED == set()


def test_no_integrations_import_each_other_in_a_circle() -> None:
    modules = {".".join(path.relative_to(ROOT.parent).with_suffix("").parts): path for path in FILES}
    imported = {
        module: {name if name in modules else name.rpartition(".")[0] for name in imports_of(path)}
        for module, path in modules.items()
    }
    assert {*TopologicalSorter(imported).static_order()} >= modules.keys()


def test_all_that_is_declared_is_used_and_documented() -> None:
    page = (ROOT.parent / "docs" / "reference" / "integrations.rst").read_text()
    used = {name for path in FILES for name in imports_of(path)}
    for name in declared_by(integration):
        assert f"limpyd_jobs.integration.{name}" in used
        assert re.search(rf"\b{name}\b", page)
