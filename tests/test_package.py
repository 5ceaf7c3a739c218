"""What is installed, other than in place, is the whole library."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).parents[1]


def test_a_wheel_has_all_files(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    shutil.copytree(ROOT / "limpyd_jobs", source / "limpyd_jobs", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("limpyd_jobs_pytest.py", "setup.py", "setup.cfg", "pyproject.toml", "README.rst"):
        shutil.copy(ROOT / name, source)
    files = {path.relative_to(source).as_posix() for path in (source / "limpyd_jobs").rglob("*") if path.is_file()}
    options = ["--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", str(target)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(source)], check=True)
    [wheel] = target.glob("redis_limpyd_jobs-*.whl")
    installed = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert installed == {*files, "limpyd_jobs_pytest.py"}


def test_import_says_nothing() -> None:
    # not even what pkg_resources, which redis-limpyd imports, says to whoever does
    subprocess.run([sys.executable, "-W", "error", "-c", "import limpyd_jobs"], check=True)
