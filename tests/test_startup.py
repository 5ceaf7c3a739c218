"""redis-limpyd can be imported without setuptools, and without a warning, also before this library."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]

NEEDED = ("redis", "redis-limpyd", "redis-limpyd-extensions", "future", "setproctitle")

# pkg_resources works from 66.1 on with all Pythons, warns from 67.3 to 81, and is gone from 82 on.
SETUPTOOLS = (None, "66.1.1", "81.0.0", "82.0.0", "")

IMPORTS = ("import limpyd, limpyd_extensions.dynamic, limpyd_jobs", "import limpyd_jobs, limpyd, limpyd_extensions")

# The loader of limpyd is the ordinary one, so what asks it for data and source works.
CHECK = """
import inspect, sys
assert "pkg_resources" not in sys.modules, "setuptools was imported"
assert "pkg_resources" in inspect.getsource(sys.modules["limpyd"])
assert [sys.modules["limpyd"].EXACT_VERSION, sys.modules["limpyd_extensions"].EXACT_VERSION] == sys.argv[1:]
"""


@pytest.mark.proof
def test_limpyd_imports_first_whatever_setuptools_there_is(tmp_path: Path) -> None:
    home = tmp_path / "environment"
    packages = environment_without_us(home)
    wheels = [built(kind, tmp_path / "source") for kind in ("wheel", "editable")]
    versions = [distribution(name).version for name in NEEDED[1:3]]
    for number, setuptools in enumerate(SETUPTOOLS):
        folder = with_setuptools(setuptools, tmp_path / f"setuptools-{number}")
        (packages / "setuptools.pth").write_text(str(folder))
        for wheel in wheels:
            with installed(wheel, packages):
                for imports in IMPORTS:
                    done = run_in(home, "-W", "error", "-c", f"{imports}\n{CHECK}", *versions)
                    assert (done.returncode, done.stderr) == (0, ""), (setuptools, wheel.name, imports)
    # once it is uninstalled, nothing is left that could fail when Python starts
    assert run_in(home, "-c", "").stderr == ""


def environment_without_us(home: Path) -> Path:
    """Make a virtual environment with what we depend on; return where packages are."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    [packages] = home.glob("lib/python*/site-packages")
    for name in NEEDED:
        files = distribution(name).files or ()
        for top in {file.parts[0] for file in files if file.parts[0] not in ("..", "__pycache__")}:
            (packages / top).symlink_to(distribution(name).locate_file(top))
    return packages


def built(kind: str, source: Path) -> Path:
    """Return what pip unpacks beside the other packages."""
    if not source.exists():
        shutil.copytree(ROOT / "limpyd_jobs", source / "limpyd_jobs", ignore=shutil.ignore_patterns("__pycache__"))
        for path in (*ROOT.glob("limpyd_jobs[_.]*"), *ROOT.glob("setup.*"), *ROOT.glob("*.toml"), ROOT / "README.rst"):
            shutil.copy(path, source)
    build = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])('.'))"
    command = [sys.executable, "-W", "ignore", "-c", build, f"build_{kind}"]
    done = subprocess.run(command, cwd=source, check=True, capture_output=True, text=True)
    return source / done.stdout.split()[-1]


def with_setuptools(version: str | None, folder: Path) -> Path:
    """Return a folder with that setuptools; without one if it is None; with the newest if it is empty."""
    folder.mkdir()
    if version is not None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--retries=1"]
        requirement = f"setuptools{version and '=='}{version}"
        done = subprocess.run([*pip, "--target", str(folder), requirement], capture_output=True, text=True)
        if done.returncode and not os.environ.get("CI"):
            pytest.skip(f"setuptools cannot be had: {done.stderr[-500:]}")
        assert done.returncode == 0, done.stderr
    return folder


@contextmanager
def installed(wheel: Path, packages: Path) -> Iterator[None]:
    with ZipFile(wheel) as archive:
        archive.extractall(packages)
        names = {name.split("/")[0] for name in archive.namelist()}
    yield
    for path in (packages / name for name in names):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def run_in(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(home / "bin" / "python"), *arguments]
    return subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True)


def test_it_costs_the_start_of_python_one_small_module() -> None:
    line = (ROOT / "limpyd_jobs.pth").read_text()
    code = f"import sys; sys.path.append('.'); before = {{*sys.modules}}\n{line}print(*sys.modules.keys() - before)"
    command = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["limpyd_jobs_startup"]


def test_a_project_that_is_gone_does_not_trouble_python() -> None:
    line = (ROOT / "limpyd_jobs.pth").read_text()
    done = subprocess.run([sys.executable, "-I", "-S", "-c", line], cwd=ROOT, capture_output=True, check=True)
    assert done.stderr == b""


def test_pytest_does_not_warn_that_it_is_imported_already() -> None:
    assert "limpyd_jobs_startup" in sys.modules
    # which pytest itself does with all modules of a distribution that has a plugin
    pytest.register_assert_rewrite("limpyd_jobs_startup")
