"""What is installed, other than in place, is the whole library; and no file needs one that needs it."""

from __future__ import annotations

import ast
import configparser
import re
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from email import message_from_bytes
from functools import cache
from graphlib import TopologicalSorter
from hashlib import sha256
from operator import itemgetter
from pathlib import Path
from zipfile import ZipFile

import pytest
from cases import each
from docutils import nodes
from docutils.core import publish_doctree
from limpyd.exceptions import DoesNotExist

import limpyd_jobs

ROOT = Path(__file__).parents[1]

PAGES_OF_THE_PROJECT = {"Homepage", "Documentation", "Changelog", "Issues", "Security"}

# What the source has beside the code and the manual, which is made of some of it.
BESIDE_THE_CODE = {
    *("CHANGELOG.rst", "CONTRIBUTING.rst", "LICENSE", "README.rst", "SECURITY.rst"),
    *("benchmarks/results/table.rst", "example.py", "scripts/states.py"),
}

# Folders with files of others, each with a list of them.
VENDORED = ("limpyd_jobs/contrib/web/static/vendor", "tests/web/vendor")


@cache
def imported_by(path: Path) -> list[str]:
    """The files of this library that a file imports, also inside functions, or for types only."""
    found = []
    for node in statements_in(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "limpyd_jobs":
            for each in node.names:
                package = (node.module or "").replace(".", "/")
                names = (f"{package}/{each.name}.py", f"{package}/{each.name}/__init__.py", f"{package}.py")
                found.append(next((name for name in names if (ROOT / name).exists()), f"{package}/__init__.py"))
    return found


def statements_in(node: ast.AST) -> Iterator[ast.AST]:
    """All statements, without the expressions in them, which are many."""
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        inner = getattr(node, name, None)
        for statement in inner if isinstance(inner, list) else ():
            yield statement
            yield from statements_in(statement)


@pytest.mark.proof
def test_a_wheel_has_all_files(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".?*", "*.egg-info", "__pycache__", "build", "dist"))
    beside = {"limpyd_jobs.pth", "limpyd_jobs.start", "limpyd_jobs_pytest.py", "limpyd_jobs_startup.py"}
    files = {path.relative_to(source).as_posix() for path in (source / "limpyd_jobs").rglob("*") if path.is_file()}
    options = ["--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", str(target)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(source)], check=True)
    [wheel] = target.glob("redis_limpyd_jobs-*.whl")
    archive = ZipFile(wheel)
    installed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert installed == {*files, *beside}
    [metadata] = (message_from_bytes(archive.read(name)) for name in archive.namelist() if name.endswith("/METADATA"))
    assert metadata["Author"]
    assert {url.partition(", ")[0] for url in metadata.get_all("Project-URL", ())} >= PAGES_OF_THE_PROJECT

    # Installed in place it is a path, which mypy and pyright follow; a hook of the import system hides its types.
    build = "from setuptools import build_meta; build_meta.build_editable('.'); build_meta.build_sdist('.')"
    subprocess.run([sys.executable, "-W", "ignore", "-c", build], cwd=source, check=True, capture_output=True)
    [wheel] = source.glob("*.whl")
    archive = ZipFile(wheel)
    in_place = {name: archive.read(name).decode().strip() for name in archive.namelist() if ".dist-info/" not in name}
    assert [in_place.pop(name) for name in [*in_place] if name.startswith("__editable__")] == [str(source)]
    assert in_place.keys() == {"limpyd_jobs.pth", "limpyd_jobs.start"}
    [archive_of_source] = source.glob("*.tar.gz")
    with tarfile.open(archive_of_source) as tar:
        names = {name.partition("/")[2] for name in tar.getnames() if tar.getmember(name).isfile()}
    assert {*beside, *BESIDE_THE_CODE} <= names
    manual = {path.relative_to(source).as_posix() for path in (source / "docs").rglob("*") if path.is_file()}
    assert {name for name in names if name.startswith("docs/")} == {each for each in manual if "/_build/" not in each}
    assert not [name for name in names if name.startswith("tests/") or name.endswith(".pyc")]


def test_all_links_of_the_project_lead_to_files_that_there_are() -> None:
    metadata = configparser.ConfigParser()
    metadata.read(ROOT / "setup.cfg")
    urls = dict(line.split(" = ") for line in metadata["metadata"]["project_urls"].split("\n") if line)
    paths = [url.partition("/HEAD/")[2] for url in urls.values() if "/HEAD/" in url]
    assert urls.keys() == PAGES_OF_THE_PROJECT
    assert all(url.startswith(urls["Homepage"]) for url in urls.values())
    assert len(paths) == 3
    assert all((ROOT / path).exists() for path in paths)


def test_the_readme_leads_from_the_package_index_to_pages_that_there_are() -> None:
    document = publish_doctree((ROOT / "README.rst").read_text(encoding="utf-8"))
    links = [each["refuri"] for each in document.findall(nodes.reference)]
    links += [each["uri"] for each in document.findall(nodes.image)]
    ours = [link for link in links if "/HEAD/" in link]
    assert len(ours) > 30
    assert [link for link in links if not link.startswith("https://")] == []
    assert [link for link in ours if not (ROOT / link.partition("/HEAD/")[2]).is_file()] == []


@each("folder", VENDORED)
def test_files_of_others_are_those_of_the_versions_that_are_listed(folder: str) -> None:
    path = ROOT / folder / "SHA256SUMS"
    listed = dict(line.split("  ")[::-1] for line in path.read_text().splitlines() if line and line[0] != "#")
    found = {each.name: sha256(each.read_bytes()).hexdigest() for each in path.parent.iterdir() if each != path}
    assert found == listed


def test_no_setuptools_is_asked_for_that_lets_a_page_write_files() -> None:
    asked = re.findall(r'setuptools>=([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert [tuple(map(int, version.split("."))) >= (78, 1, 1) for version in asked] == [True]


def test_the_package_has_its_version_and_what_is_raised_for_a_record_that_is_not_there() -> None:
    assert limpyd_jobs.__version__ == limpyd_jobs.EXACT_VERSION
    with pytest.raises(limpyd_jobs.DoesNotExist):
        raise DoesNotExist


def test_import_says_nothing() -> None:
    # not even what pkg_resources, which redis-limpyd imports, says to whoever does
    subprocess.run([sys.executable, "-W", "error", "-c", "import limpyd_jobs"], check=True)


def modules_after(code: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return {*done.stdout.split()}


def test_who_adds_jobs_imports_nothing_that_runs_or_shows_them() -> None:
    others = "import sys, redis, limpyd_extensions.dynamic; print(*sys.modules)"
    imported = modules_after("import sys; from limpyd_jobs import Job, Queue, job; print(*sys.modules)")
    imported -= modules_after(others)  # which differ with Python and redis-py
    ours = [name.split(".")[1] for name in imported if name.startswith("limpyd_jobs.")]
    assert len(ours) <= 117  # half of what a worker imports
    assert not {*ours} & {"commandline", "commands", "contrib", "query", "schedules", "workers"}
    assert not imported & {"multiprocessing", "optparse", "setproctitle", "sysconfig", "zoneinfo"}


NAMES = """
import pickle, pydoc
import limpyd_jobs
assert {"Worker", "Schedule"} <= {*dir(limpyd_jobs)} - {*vars(limpyd_jobs)}
assert limpyd_jobs.workers.Worker is limpyd_jobs.Worker is vars(limpyd_jobs)["Worker"]
assert pickle.loads(pickle.dumps(limpyd_jobs.Schedule)) is limpyd_jobs.Schedule
assert {*limpyd_jobs.__all__} <= {*dir(limpyd_jobs)}
assert "class Worker(" in pydoc.render_doc(limpyd_jobs, renderer=pydoc.plaintext)
assert limpyd_jobs.events.subscribe and limpyd_jobs.shards.Shards
assert not hasattr(limpyd_jobs, "Wroker")
from limpyd_jobs import *
assert all(globals()[name] is getattr(limpyd_jobs, name) for name in limpyd_jobs.__all__)
"""


def test_what_is_imported_later_is_there_as_if_it_had_been() -> None:
    subprocess.run([sys.executable, "-c", NAMES], check=True)


def test_imports_make_no_circle() -> None:
    files = {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "limpyd_jobs").rglob("*.py")}
    imports = {name: [*imported_by(path)] for name, path in files.items()}
    TopologicalSorter(imports).prepare()  # it raises `CycleError`, with the files
    of_search = {each for name, some in imports.items() if "/search/" in name for each in some}
    assert not [each for each in of_search if each.startswith(("limpyd_jobs/models/", "limpyd_jobs/query/"))]


# What needs no Redis, and is used everywhere: one floor, the lowest.
VALUES = {
    *("arguments.py", "dates.py", "exceptions.py", "functions.py", "idents.py", "indexes.py", "observing"),
    *("retrying.py", "statuses.py", "texts.py", "threads.py", "version.py"),
}


def test_the_package_has_few_floors_and_no_way_up() -> None:
    folders: dict[str, set[str]] = {}
    for path in (ROOT / "limpyd_jobs").rglob("*.py"):
        folder = floor_of(path.relative_to(ROOT).as_posix())
        folders.setdefault(folder, set()).update(map(floor_of, imported_by(path)))
    face = folders.pop("__init__.py")
    folders["contrib"] = folders["contrib"] - {"__init__.py"} | face
    assert "__init__.py" not in set().union(*folders.values())
    floors: dict[str, int] = {}
    for folder in TopologicalSorter({name: some - {name} for name, some in folders.items()}).static_order():
        floors[folder] = max((floors[each] for each in folders[folder] - {folder}), default=-1) + 1
    assert floors["values"] == 0
    assert max(floors.values()) < 14, sorted(floors.items(), key=itemgetter(1))


def floor_of(path: str) -> str:
    """The folder or the module, right below the package, that a file is in."""
    folder = path.split("/")[1]
    return "values" if folder in VALUES else folder


def test_the_core_is_small_and_needs_nothing_of_the_outer_rooms() -> None:
    [rooms] = re.findall(r":but: (.+)", (ROOT / "docs" / "explanation" / "design.rst").read_text())
    files = [path for path in (ROOT / "limpyd_jobs").rglob("*") if path.suffix in (".lua", ".py")]
    core = [path for path in files if path.relative_to(ROOT).parts[1] not in rooms.split()]
    used = {name.split("/")[1] for path in core if path.suffix == ".py" for name in imported_by(path)}
    assert not used & {*rooms.split()}
    assert sum(path.read_text().count("\n") for path in core) <= 54_110


def test_no_folder_has_so_many_modules_that_one_must_search_in_it() -> None:
    numbers = Counter(path.parent for path in (ROOT / "limpyd_jobs").rglob("*.py"))
    del numbers[ROOT / "limpyd_jobs" / "commands"]  # one for each command
    del numbers[ROOT / "limpyd_jobs" / "contrib" / "web" / "pages"]  # one for each page
    assert max(numbers.values()) <= 15, numbers.most_common(1)
