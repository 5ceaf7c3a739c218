"""From the class paths of idents to classes, of jobs only."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cases import each

from limpyd_jobs import ConfigurationException, Job, Queue
from limpyd_jobs.classes.job_classes import OWN_CLASSES, JobClasses, path_of, resolve_path
from limpyd_jobs.models import job_classes
from limpyd_jobs.models.job_record import JobRecord


class Base:
    abstract = False


class First(Base):
    pass


class Second(Base):
    class Inner(Base):
        pass


class Third(First):
    pass


class NoModel:
    pass


MovedFirst = First
not_a_class = First()


def here(name: str) -> str:
    return f"{__name__}.{name}"


class TestResolve:
    @each("cls", [Base, First, Second, Third])
    def test_a_subclass_or_the_base_itself_is_found_by_its_path(self, cls: type) -> None:
        assert resolve_path(path_of(cls), Base) is cls

    def test_a_class_is_found_by_another_name_too(self) -> None:
        assert resolve_path(here("MovedFirst"), Base) is First

    @each("name", ["NoModel", "not_a_class", "here", "pytest"])
    def test_anything_else_raises_valueerror(self, name: str) -> None:
        with pytest.raises(ValueError, match=f"{name}.* is not a subclass of Base"):
            resolve_path(here(name), Base)

    def test_a_queue_is_no_job(self) -> None:
        with pytest.raises(ValueError, match="not a subclass of Job"):
            resolve_path(path_of(Queue), Job)

    @each("path", ["", "First", ".", ".First", f"{__name__}."])
    def test_what_is_no_path_raises_valueerror(self, path: str) -> None:
        with pytest.raises(ValueError, match="not the path of a class"):
            resolve_path(path, Base)

    def test_a_name_that_its_module_lacks_raises_attributeerror(self) -> None:
        with pytest.raises(AttributeError, match="Missing"):
            resolve_path(here("Missing"), Base)

    @each("path", ["no_such_module.Job", "limpyd_jobs.no_such_module.Job"])
    def test_a_module_that_is_not_there_raises_importerror(self, path: str) -> None:
        with pytest.raises(ImportError):
            resolve_path(path, Base)

    def test_what_a_module_makes_up_is_not_asked_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def make_up(name: str) -> Any:
            raise AssertionError(name)

        monkeypatch.setattr(sys.modules[__name__], "__getattr__", make_up, raising=False)
        with pytest.raises(AttributeError):
            resolve_path(here("Missing"), Base)

    def test_what_is_no_class_is_not_asked_whether_it_is_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Lazy:
            @property
            def __class__(self) -> Any:
                raise AssertionError

        monkeypatch.setattr(sys.modules[__name__], "lazy", Lazy(), raising=False)
        with pytest.raises(ValueError, match="not a subclass"):
            resolve_path(here("lazy"), Base)

    def test_what_is_in_the_place_of_a_module_is_left_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "no_module", Second)  # type: ignore[arg-type]
        with pytest.raises(AttributeError):
            resolve_path("no_module.Inner", Base)


def test_the_path_of_a_class_is_its_module_and_its_name() -> None:
    assert path_of(Job) == Job.get_model_repr() == "limpyd_jobs.models.Job"
    assert path_of(First) == here("First")


class TestJobClasses:
    def test_knows_what_is_imported_from_the_start(self) -> None:
        known = JobClasses(Base).known
        assert {known[path_of(cls)] for cls in (Base, First, Second, Third)} == {Base, First, Second, Third}

    def test_does_not_know_abstract_classes(self) -> None:
        class Abstract(Base):
            abstract = True

        class Concrete(Abstract):
            abstract = False

        known = JobClasses(Base).known
        assert Abstract not in known.values()
        assert Concrete in known.values()

    def test_meets_a_class_by_its_path(self) -> None:
        classes = JobClasses(Base)
        assert classes.resolve(here("Third")) is Third
        assert classes.known[here("Third")] is Third

    def test_knows_a_class_by_its_own_path_too_once_it_was_met_by_another(self) -> None:
        classes = JobClasses(Base, limit=3)
        assert classes.resolve(here("MovedFirst")) is First
        assert classes.known[here("MovedFirst")] is classes.known[here("First")] is First

    def test_remembers_so_many_at_the_most(self) -> None:
        classes = JobClasses(Base, limit=3)
        for name in ("First", "Third", "MovedFirst", "Second", "Third", "First"):
            classes.resolve(here(name))
            assert len(classes.known) <= 3
            assert here(name) in classes.known

    def test_what_threads_hold_of_it_never_changes(self) -> None:
        classes = JobClasses(Base, limit=3)
        before = classes.known
        copy = dict(before)
        for name in ("First", "Second", "Third", "MovedFirst"):
            classes.resolve(here(name))
        assert before == copy

    @each("path", [here("NoModel"), here("Missing"), "no_such_module.Job", "nothing"])
    def test_remembers_nothing_that_is_not_a_class_of_its_kind(self, path: str) -> None:
        classes = JobClasses(Base)
        before = dict(classes.known)
        with pytest.raises((ValueError, AttributeError, ImportError)):
            classes.resolve(path)
        assert dict(classes.known) == before

    def test_of_the_jobs_knows_job(self) -> None:
        assert job_classes.resolve("limpyd_jobs.models.Job") is Job


HOSTILE = {
    "os.system": ValueError,
    "subprocess.Popen": ValueError,
    "builtins.__import__": ValueError,
    "builtins.eval": ValueError,
    "antigravity.X": ValueError,
    "this.Job": ValueError,
    "idlelib.idle.Job": ValueError,
    "limpyd_jobs.models.Queue": ValueError,
    "limpyd_jobs.models.BaseJobsModel": ValueError,
    "limpyd_jobs.models.adding": ValueError,
    "limpyd_jobs.models": ValueError,
    "limpyd_jobs.models.Job.run": ModuleNotFoundError,
    "limpyd_jobs.models.Missing": AttributeError,
    "__main__.Missing": AttributeError,
    "__import__": ValueError,
    "": ValueError,
    ".": ValueError,
    "..": ValueError,
    "..os.system": ValueError,
    ".models.Job": ValueError,
    "limpyd_jobs..models.Job": ValueError,
    "limpyd_jobs.models.": ValueError,
    "limpyd_jobs/models.Job": ValueError,
    "../hostile.Task": ValueError,
    "hostile-module.Task": ValueError,
    "hostile .Task": ValueError,
    "hostile\n.Task": ValueError,
    "hostile\0.Task": ValueError,
    "hostile.Task\0": ValueError,
    "hostile.Task()": ValueError,
    "hostile.\udc80": ValueError,
    "1.2": ValueError,
    "a." * 100_000 + "Task": ValueError,
    "é" * 1000 + ".Task": ImportError,
    "é.Tâsk": ImportError,
    "hostile.Missing": AttributeError,
    "hostile.function": AttributeError,
    "hostile.value": AttributeError,
    "hostile.NoBase": AttributeError,
    "hostile.NoJob": AttributeError,
    "hostile.Outer.Task": ImportError,
    "hostile.os": AttributeError,
    "hostile.Popen": AttributeError,
    "hostile.below.Task": ImportError,
    "hostile_package.jobs.Missing": AttributeError,
    "hostile_package.missing.Task": ImportError,
    "hostile_package.Task": AttributeError,
    "hostile_broken.Task": ImportError,
    "hostile_package.__main__.Task": ValueError,
    "hostile_package.__main__.below.Task": ValueError,
    "hostile_uploads.evil.Task": ImportError,
    "hostile_package.uploads.evil.Task": ImportError,
}

HOSTILE_SOURCE = """
open(__file__ + ".imported", "w").close()

import os
from subprocess import Popen

value = 1

def function(): pass

class NoBase: pass

class NoJob(NoBase): pass

class Outer(NoBase):
    class Task(NoBase): pass
"""

A_JOB = "from limpyd_jobs import Job\nclass Task(Job): pass"


class TestHostilePaths:
    """Whoever can write to Redis can write any path: nothing is imported, nothing is called."""

    @pytest.fixture(autouse=True)
    def modules(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        (tmp_path / "hostile_package").mkdir()
        for name in ("hostile", "hostile-module", "hostile_package/__init__", "hostile_package/jobs"):
            (tmp_path / f"{name}.py").write_text(HOSTILE_SOURCE)
        (tmp_path / "hostile_package" / "__main__.py").write_text(f"{HOSTILE_SOURCE}\n{A_JOB}")
        for folder in ("hostile_uploads", "hostile_package/uploads"):
            (tmp_path / folder).mkdir()
            (tmp_path / folder / "evil.py").write_text(f"{HOSTILE_SOURCE}\n{A_JOB}")
        (tmp_path / "hostile_broken.py").write_text(f"{HOSTILE_SOURCE}\nclass Task(")
        monkeypatch.syspath_prepend(str(tmp_path))
        ast.unparse(ast.Constant(1))  # pytest does, for which Python 3.15 imports a part of the module
        before = set(sys.modules)
        yield
        assert set(sys.modules) == before
        assert [*tmp_path.rglob("*.imported")] == []

    @each(("path", "exception"), HOSTILE.items())
    def test_import_nothing_and_are_refused(self, path: str, exception: type[Exception]) -> None:
        for call in (JobClasses(Job).resolve, lambda path: Job.get_from_ident(f"{path}:1")):
            with pytest.raises(exception) as raised:
                call(path)
            assert len(str(raised.value)) < 3000

    def test_the_program_of_an_allowed_package_is_not_run(self) -> None:
        classes = JobClasses(Job)
        classes.allow("hostile_package")
        with pytest.raises(ValueError, match="to import it is to run it"):
            classes.resolve("hostile_package.__main__.Task")

    def test_what_was_put_in_a_folder_of_an_allowed_package_is_not_run(self) -> None:
        classes = JobClasses(Job)
        classes.allow("hostile_package")
        with pytest.raises(ImportError, match="uploads is a folder without an __init__"):
            classes.resolve("hostile_package.uploads.evil.Task")


def test_what_is_installed_of_ours_is_for_the_application_to_import(monkeypatch: pytest.MonkeyPatch) -> None:
    path = "limpyd_jobs.contrib.apscheduler.executor.ScheduledRun"
    for name in [name for name in sys.modules if name.startswith("limpyd_jobs.contrib.apscheduler")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match="import it in the application"):
        resolve_path(path, Job)
    assert "limpyd_jobs.contrib.apscheduler" not in sys.modules


def test_an_abstract_class_has_no_jobs() -> None:
    with pytest.raises(ValueError, match="is abstract, so there are no jobs of it"):
        resolve_path(path_of(JobRecord), JobRecord)


class TestAllow:
    @pytest.fixture
    def classes(self) -> JobClasses[Base]:
        return JobClasses(Base)

    @pytest.mark.parametrize("modules", [__name__, f"a.b, {__name__},", ["x", __name__], (__name__,), None])
    def test_classes_of_the_modules_are_resolved(self, classes: JobClasses[Base], modules: Any) -> None:
        classes.allow(modules)
        assert classes.resolve(here("Third")) is Third
        assert here("First") in classes.known

    @pytest.mark.parametrize("modules", ["other", f"{__name__}.below", __name__[:-1], f"{__name__}s", here("First")])
    def test_others_are_not_even_if_they_are_imported_and_met_before(
        self, classes: JobClasses[Base], modules: str
    ) -> None:
        classes.resolve(here("First"))
        classes.allow(modules)
        assert not classes.known
        with pytest.raises(ImportError, match="none of the modules that jobs may come from: "):
            classes.resolve(here("First"))

    def test_what_is_below_a_package_is_of_it(self) -> None:
        classes = JobClasses(Job)
        classes.allow("limpyd_jobs")
        assert classes.resolve("limpyd_jobs.models.Job") is Job
        known = {path for path in classes.known if not path.startswith("limpyd_jobs.contrib.")} - {*OWN_CLASSES}
        assert known == {"limpyd_jobs.models.Job"}  # our integrations have classes, if another test imported them

    def test_a_class_that_one_of_them_brings_in_must_be_of_them_itself(
        self, classes: JobClasses[Base], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        module = type(sys)("old_place")
        module.First = First  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "old_place", module)
        classes.allow("old_place")
        with pytest.raises(ImportError, match=here("First")):
            classes.resolve("old_place.First")
        classes.allow(["old_place", __name__])
        assert classes.resolve("old_place.First") is First

    def test_no_limit_any_more(self, classes: JobClasses[Base]) -> None:
        classes.allow("other")
        classes.allow(None)
        assert classes.resolve(here("First")) is First

    def test_of_the_jobs_holds_for_idents_too(self) -> None:
        job_classes.allow("other")
        try:
            with pytest.raises(ImportError, match="jobs may come from: other"):
                Job.get_from_ident("limpyd_jobs.models.Job:1")
        finally:
            job_classes.allow(None)

    @each(
        "modules",
        ["", ",", " , ", [], (), [""], 1, b"a", [1], [None], {"a"}, "a b", "a..b", ".a", "a.", "a/b", "a:b", "\0"],
    )
    def test_what_names_no_module_is_refused(self, classes: JobClasses[Base], modules: Any) -> None:
        with pytest.raises(ConfigurationException):
            classes.allow(modules)
        assert classes.resolve(here("First")) is First


class TestAProcess:
    """What one class of an application does to the others; in a process of its own."""

    def run(self, code: str, tmp_path: Path, modules: dict[str, str]) -> str:
        for name, source in modules.items():
            (tmp_path / f"{name}.py").write_text(textwrap.dedent(source), "utf-8")
        done: Any = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return str(done.stdout).strip()

    MODULES = {
        "good_jobs": """
            from limpyd_jobs import Job

            class Good(Job):
                namespace = "good"
        """,
        "odd_jobs": """
            from limpyd import fields
            from limpyd.indexes import TextRangeIndex
            from limpyd_jobs import Job

            class AbstractJob(Job):
                abstract = True
                namespace = "odd"

            class ConcreteJob(AbstractJob):
                pass

            class Unusable(Job):
                namespace = "odd"
                identifier = fields.InstanceHashField(indexable=True, indexes=[TextRangeIndex])
        """,
        "exits": "from limpyd_jobs import Job\nclass Mine(Job): pass\nraise SystemExit(3)",
    }
    SETUP = """
        import sys
        from limpyd_jobs import Job, Queue, transitions
        from limpyd_jobs.models import job_classes
        from limpyd_jobs.transitions import ClaimRequest

        def arguments():
            request = ClaimRequest(["key"], "token", 60, job_classes.known)
            return [line.partition(" ")[0] for line in request.words()[3].splitlines()]
    """

    @pytest.mark.proof
    def test_a_class_whose_indexes_we_cannot_work_with_does_not_keep_the_others_from_being_run(
        self, tmp_path: Path
    ) -> None:
        code = f"{self.SETUP}\n        import good_jobs, odd_jobs\n        print('good_jobs.Good' in arguments())"
        assert self.run(code, tmp_path, self.MODULES) == "True"

    @pytest.mark.matrix(1)
    @pytest.mark.parametrize("path", ["odd_jobs.Unusable", "odd_jobs.AbstractJob", "exits.Mine"])
    def test_an_ident_of_a_class_that_is_unusable_does_not_keep_the_others_from_being_run(
        self, tmp_path: Path, path: str
    ) -> None:
        code = f"""{self.SETUP}
        import good_jobs
        arguments()
        try:
            job_classes.resolve({path!r})
        except (ImportError, ValueError):
            pass
        print("good_jobs.Good" in arguments())
        """
        assert self.run(code, tmp_path, self.MODULES) == "True"

    def test_a_concrete_class_of_an_abstract_one_is_known(self, tmp_path: Path) -> None:
        modules = {**self.MODULES, "odd_jobs": self.MODULES["odd_jobs"].split("class Unusable")[0]}
        code = f"{self.SETUP}\n        import odd_jobs\n        print(arguments())"
        found = self.run(code, tmp_path, modules)
        assert "odd_jobs.ConcreteJob" in found
        assert "odd_jobs.AbstractJob" not in found

    APPLICATION = {
        "app_jobs": """
            import app_base

            class SendMail(app_base.Base):
                namespace = "app"

            OldMail = SendMail
        """,
        "app_base": """
            from limpyd_jobs import Job

            class Base(Job):
                abstract = True
        """,
        "app_script": "from app_jobs import SendMail\nSendMail.add_job('a')",
        "app_lying": """
            from limpyd_jobs import Job

            class Mine(Job):
                pass

            globals()["Mine"] = object
        """,
    }

    @pytest.mark.matrix(1)
    @pytest.mark.parametrize("path", ["app_jobs.SendMail", "app_jobs.OldMail"])
    def test_a_class_of_an_application_that_is_not_imported_yet_is_found(self, tmp_path: Path, path: str) -> None:
        code = f"{self.SETUP}\n        print(job_classes.resolve({path!r}).get_model_repr())"
        assert self.run(code, tmp_path, self.APPLICATION) == "app_jobs.SendMail"

    def test_a_script_that_imports_a_job_class_is_not_run(self, tmp_path: Path) -> None:
        code = f"""{self.SETUP}
        try:
            job_classes.resolve("app_script.SendMail")
        except AttributeError:
            print("app_script" in sys.modules)
        """
        assert self.run(code, tmp_path, self.APPLICATION) == "False"

    def test_a_class_that_turns_out_to_be_no_job_is_refused(self, tmp_path: Path) -> None:
        code = f"""{self.SETUP}
        try:
            job_classes.resolve("app_lying.Mine")
        except ValueError as error:
            print(error)
        """
        assert self.run(code, tmp_path, self.APPLICATION) == "'app_lying.Mine' is not a subclass of Job"

    def test_a_class_of_the_program_itself_is_found(self, tmp_path: Path) -> None:
        code = f"""{self.SETUP}
        class Mine(Job):
            namespace = "mine"

        job_classes.allow("__main__")
        print(job_classes.resolve("__main__.Mine") is Mine)
        """
        assert self.run(code, tmp_path, {}) == "True"

    @pytest.mark.matrix(1)
    @pytest.mark.parametrize(
        "first",
        ["job_classes.allow('app.jobs')", "job_classes.allow('app')", "job_classes.load('app')", "import app.jobs"],
    )
    def test_a_class_in_a_folder_without_an_init_is_found_if_that_is_named_or_imported(
        self, tmp_path: Path, first: str
    ) -> None:
        (tmp_path / "app").mkdir()
        modules = {"app/jobs": "from limpyd_jobs import Job\nclass Mine(Job):\n    namespace = 'app'"}
        code = f"{self.SETUP}\n        {first}\n        print(job_classes.resolve('app.jobs.Mine').get_model_repr())"
        assert self.run(code, tmp_path, modules) == "app.jobs.Mine"

    def test_a_class_of_another_module_than_the_allowed_is_not_imported(self, tmp_path: Path) -> None:
        code = f"""{self.SETUP}
        job_classes.allow("app_base")
        try:
            job_classes.resolve("app_jobs.SendMail")
        except ImportError:
            print("app_jobs" in sys.modules)
        """
        assert self.run(code, tmp_path, self.APPLICATION) == "False"

    @pytest.mark.proof
    def test_no_directory_is_named_to_start_from_where_python_looks_in_none(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PYTHONSAFEPATH", "1")
        code = "from limpyd_jobs.classes.imports import where_to_look\nprint(where_to_look())"
        assert self.run(code, tmp_path, {}).endswith("with --pythonpath: PYTHONSAFEPATH leaves the current one out")
