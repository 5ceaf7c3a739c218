"""The parts of a worker are whole when they are made: no other part gives them an attribute later."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from limpyd_jobs import workers

FOLDER = Path(workers.__file__).parent

# What several parts share on purpose: the face of the worker, whose attributes are documented; the state of a run of
# the worker; what is known of one job.
SHARED = {"worker", "_worker", "_state", "run", "runs", "_told", "job", "logger"}

# To be mended: each of these should be a method.
STILL_ASSIGNED = {
    "workers/concurrent/limits.py: _timer.on_set",
    "workers/concurrent/many_at_once.py: _awaiting.before",
    "workers/concurrent/many_at_once.py: _awaiting.run_of_hook",
}


def assigned(tree: ast.AST) -> Iterator[ast.expr]:
    """The targets of all assignments."""
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            yield from target.elts if isinstance(target, ast.Tuple) else [target] if target is not None else []


def parts_given_an_attribute() -> Iterator[str]:
    for path in FOLDER.rglob("*.py"):
        for target in assigned(ast.parse(path.read_text("utf-8"))):
            match target:
                case ast.Attribute(value=ast.Attribute(value=ast.Name(id="self"), attr=part), attr=name):
                    if part not in SHARED:
                        yield f"{path.relative_to(FOLDER.parent)}: {part}.{name}"


def test_no_part_is_given_an_attribute_by_another() -> None:
    assert set(parts_given_an_attribute()) == STILL_ASSIGNED
