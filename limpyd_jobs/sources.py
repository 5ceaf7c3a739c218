"""What the source of a module says, read without importing anything, not even the packages the module is in."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, resolve_name
from typing import Any

# Where importing a module may do anything, and no job is. The first was part of it until Python 3.12.
STANDARD_LIBRARY = frozenset({"distutils", "__main__"}) | sys.stdlib_module_names

BLOCKS = (ast.If, ast.Try, ast.ExceptHandler, ast.With)

# How many modules are read at the most to find where one class comes from.
READ_LIMIT = 50


def is_standard(module: str) -> bool:
    """Return whether a module is part of the standard library, by its name."""
    return module.partition(".")[0] in STANDARD_LIBRARY


def defines_class(module: str, name: str) -> bool:
    """Return whether a module, once imported, would have a class of that name at its top level.

    The class has a base, as every job class has. It is defined in the module, or another name of one that is, or
    brought in from a module of which the same holds.

    Raises
    ------
    ImportError
        If the module, or its source, cannot be found or read.
    """
    return _defines(module, name, seen=set())


def _defines(module: str, name: str, seen: set[tuple[str, str]]) -> bool:
    seen.add((module, name))
    spec = _find(module)
    nodes = list(_top_level(_parse(module, spec)))
    if any(isinstance(node, ast.ClassDef) and node.name == name and node.bases for node in nodes):
        return True
    package = module.rpartition(".")[0] if spec.submodule_search_locations is None else module
    return any(
        _leads_to_class(*place, seen)
        for node in nodes
        for place in (*_other_names(node, name, module), *_origins(node, name, package))
    )


def _leads_to_class(module: str, name: str, seen: set[tuple[str, str]]) -> bool:
    if is_standard(module) or (module, name) in seen or len(seen) == READ_LIMIT:
        return False
    try:
        return _defines(module, name, seen)
    except (ImportError, ValueError):  # the latter by modules that were made without a spec
        return False


def _other_names(node: ast.AST, name: str, module: str) -> Iterator[tuple[str, str]]:
    """What the name stands for, if a statement is an assignment to it: ``OldName = NewName``."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        yield from [(module, node.value.id)] if name in names else []


def _origins(node: ast.AST, name: str, package: str) -> Iterator[tuple[str, str]]:
    """The module that a statement brings the name in from, with its name there."""
    if isinstance(node, ast.ImportFrom):
        for alias in node.names:
            if alias.name == "*" or (alias.asname or alias.name) == name:
                with suppress(ImportError):  # from above the topmost package
                    origin = resolve_name("." * node.level + (node.module or ""), package)
                    yield origin, name if alias.name == "*" else alias.name


def _top_level(tree: ast.AST) -> Iterator[ast.AST]:
    blocks = [tree]
    while blocks:
        for node in ast.iter_child_nodes(blocks.pop()):
            yield node
            if isinstance(node, BLOCKS):
                blocks.append(node)


def _parse(module: str, spec: ModuleSpec) -> ast.Module:
    try:
        get_source: Any = getattr(spec.loader, "get_source", None)
        source = get_source(spec.name) if get_source else None
        if source is not None:
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ImportError(f"The source of {module} cannot be read: {error}", name=module) from error
    raise ImportError(f"{module} has no source to read", name=module)


def _find(module: str) -> ModuleSpec:
    """Find a module by way of its packages. `importlib.util.find_spec` would import these."""
    path: list[str] | None = None
    *packages, last = module.split(".")
    for number, part in enumerate(packages, 1):
        found = getattr(sys.modules.get(".".join(packages[:number])), "__path__", None)
        path = list(found or _find_in(path, part).submodule_search_locations or ())
    return _find_in(path, last)


def _find_in(path: list[str] | None, name: str) -> ModuleSpec:
    """Find a module by the last part of its name, in the folders of its package, or, given none, where Python does."""
    spec = PathFinder.find_spec(name, path)
    if spec is None and path is None:
        spec = find_spec(name)  # for packages that are installed in editable mode
    if spec is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return spec
