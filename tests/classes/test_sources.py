"""What the source of a module says, read without importing anything."""

from __future__ import annotations

import compileall
import sys
import zipfile
from collections.abc import Iterator
from importlib.util import spec_from_file_location
from pathlib import Path

import pytest
from cases import each

from limpyd_jobs.classes.sources import bare_folders, defines_subclass, is_standard


class Base:
    """What the classes are to derive from; imported, unlike them."""


class NoBase:
    pass


def is_found(module: str, name: str) -> bool:
    return defines_subclass(module, name, Base)


LEAVES_A_TRACE = "open(__file__ + '.imported', 'w').close()\nfrom test_sources import Base\n"

DEFINITIONS = {
    "a class": "class Task(Base): pass",
    "a class of its base's name": "class Base(Base): pass\nclass Task(Base): pass",
    "a class of a class": "class Other(Base): pass\nclass Task(Mixin, Other): pass",
    "a class of a generic one": "class Task(Base[int]): pass",
    "a class with another one's metaclass": "class Task(six.with_metaclass(Meta, Base)): pass",
    "a class of another name of its base": "Other = Base\nclass Task(Other): pass",
    "a base that is brought in": "from sources_origin import Origin\nclass Task(Origin): pass",
    "a base that is brought in by another name": "from sources_origin import Origin as O\nclass Task(O): pass",
    "a base that is brought in with all": "from sources_origin import *\nclass Task(Origin): pass",
    "a base of a module": "import sources_origin\nclass Task(sources_origin.Origin): pass",
    "a base of a module by another name": "import sources_package.sources_origin as o\nclass Task(o.Origin): pass",
    "a base of a module of a package": (
        "import sources_package.sources_origin\nclass Task(sources_package.sources_origin.Origin): pass"
    ),
    "a base of a module that is brought in": "from . import sources_origin\nclass Task(sources_origin.Origin): pass",
    "a class among others": "import os\nx = 1\nclass Other: pass\n@decorated\nclass Task(Base, Mixin): pass",
    "in a try": "try:\n    import x\nexcept ImportError:\n    class Task(Base): pass",
    "in an else": "if x:\n    pass\nelif y:\n    pass\nelse:\n    class Task(Base): pass",
    "in a with": "with suppress(E):\n    class Task(Base): pass",
    "in Latin-1": "# coding: latin-1\nclass Task(Base): '\xe9'",
    "another name": "class New(Base): pass\nTask = Old = New",
    "of its own name, brought in": "from sources_origin import Origin as Task\nclass Task(Task): pass",
    "of its own name, from beside": "from .sources_origin import Task\nclass Task(Task): pass",
    "of its own name, with all": "from sources_origin import *\nclass Task(Task): pass",
    "of its own name, by way of another": "from sources_way import Task\nclass Task(Task): pass",
    "of its own name, after a star of no use": (
        "from sys import *\nfrom nowhere import *\nfrom sources_origin import Task\nclass Task(Task): pass"
    ),
    "in a condition, else brought in": "if x:\n    class Task(Base): pass\nelse:\n    from x import Task",
    "a base that is bound anew later": "class Task(Base): pass\nBase = object",
    "other uses of the name": "class Task(Base): pass\nTask.x = 1\nOther = Task\nif x:\n    del Task",
}

NO_DEFINITIONS = {
    "nothing": "",
    "a class of another name": "class Other(Base): pass",
    "another base": "from test_sources import NoBase\nclass Task(NoBase): pass",
    "a base that is of no use": "class Other: pass\nclass Task(Other): pass",
    "a base of the standard library": "from collections import UserDict\nclass Task(UserDict): pass",
    "a base of nowhere": "from nowhere_at_all import Other\nclass Task(Other): pass",
    "a base that is not there": "import sources_origin\nclass Task(sources_origin.Missing): pass",
    "a base that is a module": "import sources_origin\nclass Task(sources_origin): pass",
    "a base that a call makes": "class Task(make('Base')): pass",
    "itself as its base": "class Task(Task): pass",
    "a circle of bases": "class Other(Task): pass\nclass Task(Other): pass",
    "no base": "class Task: pass",
    "a function": "def Task(): pass",
    "a class in a function": "def make():\n    class Task(Base): pass",
    "a class in a class": "class Outer:\n    class Task(Base): pass",
    "a text": "'''\nclass Task(Base): pass\n'''",
    "a call": "Task = make()",
    "a name of nothing": "Task = Other",
    "itself": "Task = Task",
    "a circle": "A = Task\nTask = A",
    "brought in": "from sources_origin import Task",
    "brought in from beside": "from .sources_origin import Task",
    "brought in with all": "from sources_origin import *",
    "another name of what is brought in": "from sources_origin import Origin\nTask = Origin",
    "in a condition that never holds": "if False:\n    class Task(Base): pass",
    "in the program": "if __name__ == '__main__':\n    class Task(Base): pass",
    "a base that was bound anew": "Base = object\nclass Task(Base): pass",
    "bound anew": "class Task(Base): pass\nTask = open",
    "deleted": "class Task(Base): pass\ndel Task",
    "brought in later": "class Task(Base): pass\nfrom os import path as Task",
    "brought in from the standard library": "from subprocess import Popen as Task",
    "brought in from a C extension": "from _json import Scanner as Task",
    "brought in from nowhere": "from nowhere_at_all import Task",
    "brought in from above": "from ....... import Task",
    "brought in and not defined there": "from sources_origin import Missing as Task",
    "a module of the name": "import sources_origin as Task",
    "in circles": "from sources_circle import Task",
}

UNREADABLE = {
    "a syntax error": b"class Task(Base: pass",
    "NUL": b"class Task(Base): pass\0",
    "bytes that are not UTF-8": b"class Task(Base): '\xe9'",
    "an unknown encoding": b"# coding: x-nothing\nclass Task(Base): pass",
    "deeply nested": b"x = " + b"(" * 5000 + b"\nclass Task(Base): pass",
}


@pytest.fixture(autouse=True)
def nothing_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield
    assert not [name for name in set(sys.modules) - before if name.startswith("sources_")]
    assert [*tmp_path.rglob("*.imported")] == []


def write(path: Path, source: str | bytes) -> None:
    """Write a module that leaves a trace if it is imported, with the packages it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(source, str):
        first, newline, rest = source.partition("\n") if source.startswith("# coding") else ("", "", source)
        source = f"{first}{newline}{LEAVES_A_TRACE}{rest}".encode("latin-1")
    path.write_bytes(source)


@pytest.fixture
def origins(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "sources_package"):
        write(folder / "sources_origin.py", "class Origin(Base): pass\nclass Task(Origin): pass")
    write(tmp_path / "sources_package" / "__init__.py", "")
    write(tmp_path / "sources_way.py", "from sources_origin import Task")
    write(
        tmp_path / "sources_circle.py", "from sources_circle import Task\nfrom sources_package.sources_it import Task"
    )


@pytest.mark.usefixtures("origins")
@each("source", DEFINITIONS.values())
def test_a_class_is_found_wherever_it_is_defined(tmp_path: Path, source: str) -> None:
    write(tmp_path / "sources_package" / "sources_it.py", source)
    assert is_found("sources_package.sources_it", "Task")


@pytest.mark.usefixtures("origins")
@each("source", NO_DEFINITIONS.values())
def test_anything_else_is_no_class(tmp_path: Path, source: str) -> None:
    write(tmp_path / "sources_package" / "sources_it.py", source)
    assert not is_found("sources_package.sources_it", "Task")


@pytest.mark.parametrize("source", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_what_cannot_be_read_raises_importerror(tmp_path: Path, source: bytes) -> None:
    write(tmp_path / "sources_it.py", source)
    with pytest.raises(ImportError, match="sources_it cannot be read"):
        is_found("sources_it", "Task")


def test_a_long_chain_of_conditions_is_read(tmp_path: Path) -> None:
    conditions = "if 0: pass\n" + "elif 0: pass\n" * 500
    write(tmp_path / "sources_it.py", f"{conditions}else:\n    class Task(Base): pass")
    assert is_found("sources_it", "Task")


def test_a_long_chain_of_modules_is_not_followed_to_its_end(tmp_path: Path) -> None:
    for number in range(100):
        write(tmp_path / f"sources_{number}.py", f"from sources_{number + 1} import Task")
    write(tmp_path / "sources_100.py", "class Task(Base): pass")
    for number in (0, 90):
        write(tmp_path / f"sources_of_{number}.py", f"from sources_{number} import Task\nclass Task(Task): pass")
    assert is_found("sources_of_90", "Task")
    assert not is_found("sources_of_0", "Task")


@pytest.mark.parametrize("inits", [("a", "a/b"), ("a",), ("a/b",), ()])
def test_packages_with_and_without_an_init_are_not_imported_on_the_way(tmp_path: Path, inits: tuple[str, ...]) -> None:
    write(tmp_path / "sources_top" / "a" / "b" / "c.py", "class Task(Base): pass")
    for folder in inits:
        write(tmp_path / "sources_top" / folder / "__init__.py", "")
    assert is_found("sources_top.a.b.c", "Task")


@pytest.mark.parametrize(("inits", "bare"), [(("", "a", "a/b"), []), (("", "a/b"), ["sources_top.a"]), ((), None)])
def test_folders_without_an_init_on_the_way_are_named(
    tmp_path: Path, inits: tuple[str, ...], bare: list[str] | None
) -> None:
    write(tmp_path / "sources_top" / "a" / "b" / "c.py", "class Task(Base): pass")
    for folder in inits:
        write(tmp_path / "sources_top" / folder / "__init__.py", "")
    assert bare_folders("sources_top.a.b.c") == (
        ["sources_top", "sources_top.a", "sources_top.a.b"] if bare is None else bare
    )


def test_a_class_of_a_package_itself_is_found(tmp_path: Path) -> None:
    write(tmp_path / "sources_top" / "__init__.py", "from .jobs import Other\nclass Task(Other): pass")
    write(tmp_path / "sources_top" / "jobs.py", "class Other(Base): pass")
    assert is_found("sources_top", "Task")


def test_a_package_that_is_imported_is_searched_where_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = type(sys)("moved_package")
    package.__path__ = [str(tmp_path / "elsewhere")]
    monkeypatch.setitem(sys.modules, "moved_package", package)
    write(tmp_path / "elsewhere" / "jobs.py", "class Task(Base): pass")
    assert is_found("moved_package.jobs", "Task")


def test_a_module_in_a_zip_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as packed:
        packed.writestr("sources_zipped/__init__.py", "raise SystemExit")
        packed.writestr("sources_zipped/jobs.py", "from test_sources import Base\nclass Task(Base): pass")
    monkeypatch.syspath_prepend(str(tmp_path / "packed.zip"))
    assert is_found("sources_zipped.jobs", "Task")


def test_a_package_that_is_found_by_other_means_than_the_path_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is installed in editable mode."""

    class Finder:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> object:
            init = tmp_path / "elsewhere" / "__init__.py"
            return spec_from_file_location(name, init) if name == "sources_editable" else None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    write(tmp_path / "elsewhere" / "__init__.py", "")
    write(tmp_path / "elsewhere" / "jobs.py", "class Task(Base): pass")
    assert is_found("sources_editable.jobs", "Task")


def test_compiled_modules_without_a_source_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "sources_it.py", "class Task(Base): pass")
    compileall.compile_file(tmp_path / "sources_it.py", legacy=True, quiet=2)
    (tmp_path / "sources_it.py").unlink()
    with pytest.raises(ImportError, match="no source"):
        is_found("sources_it", "Task")


def test_a_folder_of_that_name_is_no_module_with_a_class(tmp_path: Path) -> None:
    (tmp_path / "sources_folder").mkdir()
    with pytest.raises(ImportError, match="no source"):
        is_found("sources_folder", "Task")


@pytest.mark.parametrize("module", ["nowhere_at_all", "nowhere_at_all.jobs", "limpyd_jobs.nowhere", "sources_it.below"])
def test_what_is_not_there_raises_importerror(tmp_path: Path, module: str) -> None:
    write(tmp_path / "sources_it.py", "class Task(Base): pass")
    with pytest.raises(ModuleNotFoundError, match="No module named"):
        is_found(module, "Task")


@pytest.mark.parametrize("module", ["os", "os.path", "antigravity", "xml.etree", "_json", "distutils.core"])
def test_the_standard_library_is_known_by_its_names(module: str) -> None:
    assert is_standard(module)


@pytest.mark.parametrize("module", ["limpyd_jobs", "limpyd_jobs.os", "osx", "redis"])
def test_other_modules_are_not_of_the_standard_library(module: str) -> None:
    assert not is_standard(module)
