"""The parts of a worker are whole when they are made, of few others that are given by name; read in the code."""

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
    "workers/running/interrupting.py: _timer.on_set",
}

# How many parts, or values, one is made of at most.
MOST = 7

# To be mended.
STILL_MORE = {"workers/process/pool.py: WorkerPool"}

# No part, but what is known of a run.
VALUES = {"RunState"}


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


def parameters_of(kind: ast.ClassDef) -> int:
    """How many parameters the constructor of a class has."""
    for each in kind.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            return len(each.args.args) + len(each.args.kwonlyargs) - 1
    if any("dataclass" in ast.unparse(each) for each in kind.decorator_list):
        return sum(isinstance(each, ast.AnnAssign) and "field(" not in ast.unparse(each) for each in kind.body)
    return 0


def test_a_part_is_made_of_seven_others_at_most() -> None:
    found = {
        f"{path.relative_to(FOLDER.parent)}: {node.name}"
        for path in FOLDER.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef) and parameters_of(node) > MOST and node.name not in VALUES
    }
    assert found == STILL_MORE


def test_the_loop_gives_each_part_by_name() -> None:
    tree = ast.parse((FOLDER / "loop.py").read_text("utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func)[0].isupper()]
    assert calls
    assert not [ast.unparse(call) for call in calls if any(isinstance(each, ast.Starred) for each in call.args)]
