"""What stands in for setuptools while redis-limpyd is imported, so that this takes a sixth of the time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType, SimpleNamespace
from typing import Any


def _configuration(path: str) -> Any:
    from configparser import ConfigParser  # only where redis-limpyd is not installed, but on the path

    parser = ConfigParser()
    parser.read(path)
    return parser


# All that redis-limpyd and its extensions take from setuptools: they ask for their own version.
_TAKEN: dict[str, dict[str, Any]] = {
    "pkg_resources": {
        "get_distribution": lambda name: SimpleNamespace(version=version(name)),
        "DistributionNotFound": PackageNotFoundError,
    },
    "setuptools.config": {"read_configuration": _configuration},
}


@contextmanager
def standing_in_for_setuptools() -> Iterator[None]:
    """Let the block import redis-limpyd without setuptools. Modules that are imported already are used as they are."""
    made = {name: ModuleType(name) for name in _TAKEN.keys() - sys.modules.keys()}
    for name, module in made.items():
        vars(module).update(_TAKEN[name])
    sys.modules.update(made)
    try:
        yield
    finally:
        for name, module in made.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
