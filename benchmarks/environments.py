"""A virtual environment for each peer, made once and kept."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PEERS = HERE / "peers"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "limpyd-jobs-benchmarks"

VERSIONS = """
import importlib.metadata as m, json, platform, sys
versions = {'Python': platform.python_version()}
for name in sys.argv[1:]:
    try:
        versions[name] = m.version(name)
    except m.PackageNotFoundError:
        pass
if not getattr(sys, '_is_gil_enabled', lambda: True)():
    versions['Python'] += ' without GIL'
print(json.dumps(versions))
"""
# The parser of redis-py in C: all peers have it, if this Python does, or none.
HAS_HIREDIS = find_spec("hiredis") is not None

CLIENTS = ["redis", "hiredis", "coredis", "uvloop"]  # what else is worth telling of an environment


class Unavailable(Exception):
    """A peer, or one of its measures, is not available; the message says why."""


@dataclass
class Peer:
    """What the constants of a file in ``peers/`` say. The file is not imported here, where its library is not."""

    name: str
    TITLE: str
    PACKAGE: str
    ADDING: str
    WORKERS: dict[str, str]
    REQUIREMENTS: list[str] = field(default_factory=list)
    NODE_REQUIREMENTS: list[str] = field(default_factory=list)
    STARTS_BOTH: list[str] = field(default_factory=list)
    LEAST_PYTHON: list[int] = field(default_factory=lambda: [3, 11])

    @classmethod
    def read(cls, path: Path) -> Peer:
        """Read a file."""
        known = set(cls.__dataclass_fields__)
        constants: dict[str, Any] = {}
        for statement in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(statement, ast.Assign):
                target, value = statement.targets[0], statement.value
            elif isinstance(statement, ast.AnnAssign) and statement.value:
                target, value = statement.target, statement.value
            else:
                continue
            if isinstance(target, ast.Name) and target.id in known:
                constants[target.id] = ast.literal_eval(value)
        return cls(path.stem, **constants)


def all_peers() -> dict[str, Peer]:
    """Return all peers by name: this library first, the limits last."""
    first, last = "limpyd_jobs_3", "bare"
    paths = sorted(PEERS.glob("*.py"), key=lambda path: (path.stem != first, path.stem.startswith(last), path.stem))
    return {path.stem: Peer.read(path) for path in paths}


@dataclass
class Environment:
    """Where a peer is installed: the command that makes it a subject, what that needs, and which versions are there."""

    command: list[str]
    variables: dict[str, str]
    versions: dict[str, str]


def prepare(peer: Peer, cache: Path, newest: bool = False) -> Environment:
    """Install a peer, unless it is, and return its environment.

    Parameters
    ----------
    peer: Peer
    cache: Path
        The directory of all environments.
    newest: bool, optional
        True takes the newest versions there are today instead of those the file of the peer names.

    Raises
    ------
    Unavailable
        If it cannot be installed.
    """
    requirements = [_unpinned(each) if newest else each for each in (*peer.REQUIREMENTS, *peer.NODE_REQUIREMENTS)]
    key = hashlib.sha256(json.dumps([requirements, sys.version, HAS_HIREDIS]).encode()).hexdigest()[:12]
    directory = cache / f"{peer.name}-{'newest' if newest else key}"
    if peer.NODE_REQUIREMENTS:
        return _prepare_node(peer, directory, requirements)
    return _prepare_python(peer, directory, requirements)


def _unpinned(requirement: str) -> str:
    return re.split(r"(?<!^)==|(?<!^)@", requirement)[0]


def _prepare_python(peer: Peer, directory: Path, requirements: list[str]) -> Environment:
    if list(sys.version_info[:2]) < peer.LEAST_PYTHON:
        least = ".".join(map(str, peer.LEAST_PYTHON))
        raise Unavailable(f"it needs Python {least}: run the benchmark with that one, then all queues have it")
    python = sys.executable
    if requirements:
        python = str(directory / "bin" / "python")
        create = [sys.executable, "-m", "venv", str(directory)]
        pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        parser = [*pip, "install", "hiredis"] if HAS_HIREDIS else [*pip, "uninstall", "--yes", "hiredis"]
        _install(directory, create, [*pip, "install", *requirements], parser)
    told = _run([python, "-c", VERSIONS, peer.PACKAGE, *CLIENTS])
    return Environment([python, str(HERE / "subject.py"), peer.name], {"PYTHONPATH": str(HERE)}, json.loads(told))


def _prepare_node(peer: Peer, directory: Path, requirements: list[str]) -> Environment:
    for program in ("node", "npm"):
        if not shutil.which(program):
            raise Unavailable(f"there is no {program}")
    install = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(directory), *requirements]
    _install(directory, ["node", "--version"], install)
    modules = directory / "node_modules"
    versions = {"Node": _run(["node", "--version"]).strip().lstrip("v")}
    for name in (peer.PACKAGE, "ioredis"):
        if (modules / name / "package.json").exists():
            versions[name] = json.loads((modules / name / "package.json").read_text())["version"]
    return Environment(["node", str(PEERS / f"{peer.name}.cjs")], {"NODE_PATH": str(modules)}, versions)


def _install(directory: Path, *commands: list[str]) -> None:
    ready = directory / ".ready"
    if ready.exists():
        return
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for command in commands:
        _run(command)
    ready.touch()


def _run(command: list[str]) -> str:
    try:
        # elsewhere than in the repository, whose own version would be told for that of any environment
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=PEERS)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{command[0]} takes longer than 600 seconds") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no reason given"]
        raise Unavailable(f"not installed: {lines[-1]}")
    return done.stdout
