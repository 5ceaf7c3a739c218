"""Reading the source of a module without importing anything, not even the packages of the module."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, resolve_name
from types import ModuleType
from typing import Any, NamedTuple

from limpyd_jobs.classes.imports import NotAllowed

# Packages without jobs, where importing a module may do anything. The first was part of Python before 3.12.
STANDARD_LIBRARY = frozenset({"distutils", "__main__"}) | sys.stdlib_module_names

BLOCKS = (ast.If, ast.Try, ast.ExceptHandler, ast.With)

# Conditions that do not hold while a module is imported.
NEVER = frozenset({"False", "0", "TYPE_CHECKING", "typing.TYPE_CHECKING", "__name__ == '__main__'"})

# Where the decorator is that makes a function a job: its module, and its name there.
OUR_DECORATOR = (__name__.partition(".")[0], "job")

# The line and the column of a statement; the last is after all.
Position = tuple[float, float]
END: Position = (float("inf"), 0)

# How many modules are read at most to find the bases of one class.
READ_LIMIT = 50


def is_standard(module: str) -> bool:
    """Return whether a module is part of the standard library, by its name."""
    return module.partition(".")[0] in STANDARD_LIBRARY


def is_ours(module: str) -> bool:
    """Return whether a module is part of this library, by its name."""
    return module.partition(".")[0] == __name__.partition(".")[0]


def defines_subclass(module: str, name: str, base: type) -> bool:
    """Return whether a module, once imported, would have a subclass of `base` of that name that it defines itself, at
    its top level, or an alias of one (``OldMail = SendMail``).

    The last statement that binds the name counts. What the module imports does not: else any script with ``from myapp
    import SendMail`` would be run for an ident. The bases of the class are followed by their names, through the modules
    that they come from, until a base is imported already, and can be looked up. Bases that are made in another way are
    not found, except the arguments of a call, as in ``class Task(with_metaclass(Meta, Job))``.
    """
    search = _Search(base)
    return search.defines(module, name)


def defines_job_function(module: str, name: str) -> bool:
    """Return whether a module, once imported, would have a function of that name that it defines itself, at its top
    level, and makes a job by our decorator: ``@job``, ``@limpyd_jobs.job(…)``, or under the name that an import gives
    it. The last statement that binds the name counts.

    A decorator that the module has from elsewhere, or makes itself, is not found; nor is a function that is made a job
    in another way.
    """
    search = _Search(object)
    return any(search.is_job_function(node, module) for node in _bindings(search.read(module), name, END))


def bare_folders(module: str) -> list[str]:
    """Return the packages on the way to a module that have no ``__init__``: Python takes any folder for one."""
    names = module.split(".")
    packages = [".".join(names[:number]) for number in range(1, len(names))]
    return [package for package in packages if _is_bare(package)]


def _is_bare(package: str) -> bool:
    imported = sys.modules.get(package)
    spec = _find(package) if imported is None else getattr(imported, "__spec__", None)
    return spec is not None and spec.submodule_search_locations is not None and spec.origin is None


def definitions_of(module: str, name: str) -> int:
    """Return how many functions of a name the source of a module makes jobs, in this way."""
    search = _Search(object)
    nodes = search.read(module).nodes
    return sum(search.is_job_function(node, module) for node, _ in nodes if name in _bound(node))


class _Source(NamedTuple):
    """The statements of a module at its top level, in their order, each with whether it is in no condition; and the
    package where its relative imports begin."""

    nodes: list[tuple[ast.AST, bool]]
    package: str


class _Search:
    """A search for a subclass of `base`. A class is a place: its module, and its name there, which may have dots. In
    its module, a name stands for what was bound to it last before some line."""

    def __init__(self, base: type) -> None:
        self._base = base
        self._sources: dict[str, _Source] = {}
        self._seen: set[tuple[str, str, Position]] = set()

    def finds(self, module: str, name: str, before: Position = END) -> bool:
        """Return whether there is a subclass at a place, as far as the source tells."""
        if is_standard(module) or (module, name, before) in self._seen:
            return False
        self._seen.add((module, name, before))
        found = _imported(module, name)
        if found is not None:
            return issubclass(type(found), type) and issubclass(found, self._base)
        try:
            source = self.read(module)
        except (ImportError, ValueError):  # the latter for modules that were made without a spec
            return False
        nodes = _bindings(source, name.partition(".")[0], before)
        return any(self.finds(*place) for node in nodes for place in _origins(node, name, module, source.package))

    def defines(self, module: str, name: str, before: Position = END) -> bool:
        """Return whether a subclass is defined in a module itself. `ImportError` if there is no source to read."""
        for node in _bindings(self.read(module), name, before):
            if isinstance(node, ast.ClassDef):
                is_defined = self.finds(module, name, before)
            else:  # OldName = NewName
                other = node.value if isinstance(node, ast.Assign) else None
                is_defined = isinstance(other, ast.Name) and self.defines(module, other.id, _position(node))
            if is_defined:
                return True
        return False

    def is_job_function(self, node: ast.AST, module: str) -> bool:
        """Return whether a statement of a module defines a function with our decorator."""
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        called = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
        return any(self._is_our_decorator(name, module, _position(node)) for name in map(ast.unparse, called))

    def _is_our_decorator(self, name: str, module: str, before: Position) -> bool:
        source = self.read(module)
        nodes = _bindings(source, name.partition(".")[0], before)
        return any(place == OUR_DECORATOR for node in nodes for place in _imports(node, name, source.package))

    def read(self, module: str) -> _Source:
        """Return the source of a module, which is read once."""
        if module not in self._sources:
            if len(self._sources) == READ_LIMIT:
                raise NotAllowed(f"More than {READ_LIMIT} modules would be read", name=module)
            spec = _find(module)
            package = module.rpartition(".")[0] if spec.submodule_search_locations is None else module
            self._sources[module] = _Source(_top_level(_parse(module, spec)), package)
        return self._sources[module]


def _imported(module: str, name: str) -> Any:
    """Return the object at a place if it is imported, without running code of a module; else None."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        if not issubclass(type(found), ModuleType):
            return None
        found = vars(found).get(part)
    return found


def _bindings(source: _Source, name: str, before: Position) -> Iterator[ast.AST]:
    """Yield the statements of which one was the last to bind a name before some position: the last one that is in no
    condition, and all after it."""
    for node, is_sure in reversed(source.nodes):
        bound = _bound(node) if _position(node) < before else ()
        if name in bound or "*" in bound:
            yield node
        if name in bound and is_sure:
            return


def _bound(node: ast.AST) -> Iterable[str]:
    """Return the names that a statement binds, or deletes; ``*`` for any."""
    if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    targets = node.targets if isinstance(node, (ast.Assign, ast.Delete)) else ()
    names = [each for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
    return [each.id for each in names if not isinstance(each.ctx, ast.Load)]


def _origins(node: ast.AST, name: str, module: str, package: str) -> Iterator[tuple[str, str, Position]]:
    """Yield the places of which one must be a subclass if a statement defines the name as a subclass."""
    if isinstance(node, ast.ClassDef) and node.name == name:
        yield from ((module, base, _position(node)) for base in _names(node.bases))
    elif isinstance(node, ast.Assign) and not isinstance(node.value, ast.Call):  # OldName = NewName
        if any(isinstance(target, ast.Name) and target.id == name for target in node.targets):
            yield from ((module, other, _position(node)) for other in _names([node.value]))
    else:
        yield from ((*place, END) for place in _imports(node, name, package))


def _imports(node: ast.AST, name: str, package: str) -> Iterator[tuple[str, str]]:
    """Yield the places that a name may be imported from by a statement."""
    first, _, rest = name.partition(".")
    if isinstance(node, ast.ImportFrom):
        for alias in node.names:
            if alias.name == "*" or (alias.asname or alias.name) == first:
                with suppress(ImportError):  # an import from above the top package
                    origin = resolve_name("." * node.level + (node.module or ""), package)
                    yield from _places(origin, name if alias.name == "*" else f"{alias.name}.{rest}".rstrip("."))
    elif isinstance(node, ast.Import) and rest:
        for alias in node.names:
            if (alias.asname or alias.name.partition(".")[0]) == first:
                yield from _places(alias.name if alias.asname else first, rest)


def _places(module: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield the places that a name with dots may stand for: the part before a dot may be a module of a package."""
    yield module, name
    while "." in name:
        part, _, name = name.partition(".")
        module = f"{module}.{part}"
        yield module, name


def _names(expressions: Iterable[ast.expr]) -> Iterator[str]:
    """Yield the names of some bases of a class, with their dots; for a call, the names of its arguments."""
    for expression in expressions:
        if isinstance(expression, ast.Call):
            yield from _names(expression.args)
        elif isinstance(expression, ast.Subscript):
            yield from _names([expression.value])
        elif re.fullmatch(r"[\w.]+", text := ast.unparse(expression)):
            yield text


def _top_level(tree: ast.Module) -> list[tuple[ast.AST, bool]]:
    found: list[tuple[ast.AST, bool]] = []
    blocks: list[ast.AST] = [tree]
    while blocks:
        block = blocks.pop()
        is_skipped = isinstance(block, ast.If) and ast.unparse(block.test) in NEVER
        for node in block.orelse if is_skipped else ast.iter_child_nodes(block):  # type: ignore[attr-defined]
            if isinstance(node, (ast.stmt, ast.ExceptHandler)):
                found.append((node, block is tree))
            if isinstance(node, BLOCKS):
                blocks.append(node)
    return sorted(found, key=lambda each: _position(each[0]))


def _position(node: Any) -> Position:
    return node.lineno, node.col_offset


def _parse(module: str, spec: ModuleSpec) -> ast.Module:
    try:
        get_source: Any = getattr(spec.loader, "get_source", None)
        source = get_source(spec.name) if get_source else None
        if source is not None:
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ImportError(f"The source of {module} cannot be read: {error}", name=module) from error
    raise NotAllowed(f"{module} has no source to read", name=module)


def _find(module: str) -> ModuleSpec:
    """Find a module through its packages. `importlib.util.find_spec` would import these."""
    path: list[str] | None = None
    names = module.split(".")
    for number in range(1, len(names)):
        package = ".".join(names[:number])
        found = getattr(sys.modules.get(package), "__path__", None)
        path = list(found or _find_in(path, package).submodule_search_locations or ())
    return _find_in(path, module)


def _find_in(path: list[str] | None, module: str) -> ModuleSpec:
    """Find a module by the last part of its name, in the folders of its package, or, without these, as Python does."""
    name = module.rpartition(".")[2]
    spec = PathFinder.find_spec(name, path)
    if spec is None and path is None:
        spec = find_spec(name)  # for packages that are installed in editable mode
    if spec is None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)
    return spec
