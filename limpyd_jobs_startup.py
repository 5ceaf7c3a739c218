"""How redis-limpyd is imported without setuptools, and in a sixth of the time, also before ``limpyd_jobs``.

``limpyd_jobs.pth`` lets each Python of the environment call `begin` when it starts; from Python 3.15 on,
``limpyd_jobs.start`` does. So this module imports nothing before it is needed. For pytest, which comes later, and would
warn that it cannot rewrite the module: PYTEST_DONT_REWRITE
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

# They import setuptools, for their version numbers.
_PACKAGES = ("limpyd", "limpyd_extensions")


def begin() -> None:
    """From now on, redis-limpyd finds a stand-in for setuptools wherever it is imported."""
    if not any(type(each) is _Finder for each in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds redis-limpyd as the other finders do, and lets it be executed with the stand-in."""

    def find_spec(self, name: str, path: "object" = None, target: "object" = None) -> "ModuleSpec | None":
        if name not in _PACKAGES:
            return None
        others = (each for each in sys.meta_path if type(each) is not _Finder)
        found = (each.find_spec(name, path, target) for each in others)  # type: ignore[arg-type]
        spec = next(filter(None, found), None)
        if spec is not None and spec.loader is not None:
            _stand_in_during(spec.loader)
        return spec


def _stand_in_during(loader: "object") -> None:
    execute = loader.exec_module  # type: ignore[attr-defined]

    def exec_module(module: "ModuleType") -> None:
        del loader.exec_module  # type: ignore[attr-defined]  # it is the ordinary loader again
        with standing_in_for_setuptools():
            execute(module)

    loader.exec_module = exec_module  # type: ignore[attr-defined]


class standing_in_for_setuptools:  # noqa: N801
    """Let the block import redis-limpyd without setuptools. Modules that are imported already are used as they are."""

    def __enter__(self) -> None:
        taken = _taken()
        self._made = {name: type(sys)(name) for name in taken.keys() - sys.modules.keys()}
        for name, module in self._made.items():
            vars(module).update(taken[name])
        sys.modules.update(self._made)

    def __exit__(self, *error: object) -> None:
        for name, module in self._made.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]


def _taken() -> "dict[str, dict[str, object]]":
    """Return all that redis-limpyd and its extensions take from setuptools: they ask for their own version."""
    from importlib.metadata import PackageNotFoundError, version
    from types import SimpleNamespace

    return {
        "pkg_resources": {
            "get_distribution": lambda name: SimpleNamespace(version=version(name)),
            "DistributionNotFound": PackageNotFoundError,
        },
        "setuptools.config": {"read_configuration": _configuration},
    }


def _configuration(path: str) -> "object":
    from configparser import ConfigParser  # only where redis-limpyd is not installed, but on the path

    parser = ConfigParser()
    parser.read(path)
    return parser
