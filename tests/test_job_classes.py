"""From the class paths of idents to classes, of jobs only."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from limpyd_jobs import Job, Queue
from limpyd_jobs.job_classes import JobClasses, path_of, resolve
from limpyd_jobs.models import job_classes


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
    @pytest.mark.parametrize("cls", [Base, First, Second, Third])
    def test_a_subclass_or_the_base_itself_is_found_by_its_path(self, cls: type) -> None:
        assert resolve(path_of(cls), Base) is cls

    def test_a_class_is_found_by_another_name_too(self) -> None:
        assert resolve(here("MovedFirst"), Base) is First

    @pytest.mark.parametrize("name", ["NoModel", "not_a_class", "here", "pytest"])
    def test_anything_else_raises_valueerror(self, name: str) -> None:
        with pytest.raises(ValueError, match=f"{name}.* is not a subclass of Base"):
            resolve(here(name), Base)

    def test_a_queue_is_no_job(self) -> None:
        with pytest.raises(ValueError, match="not a subclass of Job"):
            resolve(path_of(Queue), Job)

    @pytest.mark.parametrize("path", ["", "First", ".", ".First", f"{__name__}."])
    def test_what_is_no_path_raises_valueerror(self, path: str) -> None:
        with pytest.raises(ValueError, match="not the path of a class"):
            resolve(path, Base)

    def test_a_name_that_its_module_lacks_raises_attributeerror(self) -> None:
        with pytest.raises(AttributeError, match="Missing"):
            resolve(here("Missing"), Base)

    @pytest.mark.parametrize("path", ["no_such_module.Job", "limpyd_jobs.no_such_module.Job"])
    def test_a_module_that_is_not_there_raises_importerror(self, path: str) -> None:
        with pytest.raises(ImportError):
            resolve(path, Base)


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
        assert classes.meet(here("Third")) is Third
        assert classes.known[here("Third")] is Third

    def test_knows_a_class_by_its_own_path_too_once_it_was_met_by_another(self) -> None:
        classes = JobClasses(Base, limit=3)
        assert classes.meet(here("MovedFirst")) is First
        assert classes.known[here("MovedFirst")] is classes.known[here("First")] is First

    def test_remembers_so_many_at_the_most(self) -> None:
        classes = JobClasses(Base, limit=3)
        for name in ("First", "Third", "MovedFirst", "Second", "Third", "First"):
            classes.meet(here(name))
            assert len(classes.known) <= 3
            assert here(name) in classes.known

    def test_what_threads_hold_of_it_never_changes(self) -> None:
        classes = JobClasses(Base, limit=3)
        before = classes.known
        copy = dict(before)
        for name in ("First", "Second", "Third", "MovedFirst"):
            classes.meet(here(name))
        assert before == copy

    @pytest.mark.parametrize("path", [here("NoModel"), here("Missing"), "no_such_module.Job", "nothing"])
    def test_remembers_nothing_that_is_not_a_class_of_its_kind(self, path: str) -> None:
        classes = JobClasses(Base)
        before = dict(classes.known)
        with pytest.raises((ValueError, AttributeError, ImportError)):
            classes.meet(path)
        assert dict(classes.known) == before

    def test_of_the_jobs_knows_job(self) -> None:
        assert job_classes.meet("limpyd_jobs.models.Job") is Job


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
        "exits": "class Job(object): pass\nraise SystemExit(3)",
    }
    SETUP = """
        import sys
        from limpyd_jobs import Job, Queue, transitions
        from limpyd_jobs.models import job_classes
        from limpyd_jobs.transitions import ClaimRequest

        def arguments():
            request = ClaimRequest(["key"], "token", 60, job_classes.known)
            return [argument for argument in request.arguments() if str(argument).endswith(("Job", "Good", "Unusable"))]
    """

    def test_a_class_whose_indexes_we_cannot_work_with_does_not_keep_the_others_from_being_run(
        self, tmp_path: Path
    ) -> None:
        code = f"{self.SETUP}\n        import good_jobs, odd_jobs\n        print('good_jobs.Good' in arguments())"
        assert self.run(code, tmp_path, self.MODULES) == "True"

    @pytest.mark.parametrize("path", ["odd_jobs.Unusable", "odd_jobs.AbstractJob", "exits.Job"])
    def test_an_ident_of_a_class_that_is_unusable_does_not_keep_the_others_from_being_run(
        self, tmp_path: Path, path: str
    ) -> None:
        code = f"""{self.SETUP}
        import good_jobs
        arguments()
        try:
            job_classes.meet({path!r})
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
