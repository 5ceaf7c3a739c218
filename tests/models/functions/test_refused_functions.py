"""Functions that cannot be jobs are refused when their module is imported, in one line that names them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from limpyd_jobs import ConfigurationException, Job
from limpyd_jobs.models import job_classes

BEGINNING = "from typing import *\nfrom limpyd_jobs import *\n"

Importing = Callable[..., ModuleType]


@pytest.fixture
def importing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Importing]:
    """Import a module of some lines; again, if it is given a module."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def do(lines: str, again: ModuleType | None = None) -> ModuleType:
        (tmp_path / "refused_module.py").write_text(f"{BEGINNING}{lines}\n")
        importlib.invalidate_caches()
        return importlib.reload(again) if again else importlib.import_module("refused_module")

    before = {*job_classes.base.database._models}
    yield do
    sys.modules.pop("refused_module", None)
    for name in {*job_classes.base.database._models} - before:
        job_classes.base.database._models.pop(name).abstract = True


REFUSED = {
    "a limit that limits nothing": (
        "@job\ndef send(to: Annotated[str, Limit]): ...",
        r"the annotation of 'to' has the class Limit: write Limit\(concurrency=1\), or Limit\(rate='10/s'\)",
    ),
    "a limit of another field": (
        "@job\ndef send(to: Annotated[str, Limit('cc', concurrency=1)]): ...",
        "in the annotation of 'to' names a field: it is of this parameter",
    ),
    "a parameter without annotation": (
        "@job\ndef f(x): ...",
        "the parameter 'x' has no annotation: say what it is, as x: str, or x: Any for JSON",
    ),
    "*args": ("@job\ndef f(*names: str): ...", r"\*names cannot travel: name what it takes, as names: list\[str\]"),
    "**kwargs": ("@job\ndef f(**names: str): ...", r"\*\*names cannot travel: name what it takes"),
    "a type that cannot travel": (
        "class C: ...\n@job\ndef f(x: list[C]): ...",
        "the parameter 'x' cannot travel: values of C cannot travel: give what it is made of",
    ),
    "a type that is no class": (
        "@job\ndef f(x: Callable[[], None]): ...",
        "the parameter 'x' cannot travel: values of .* cannot travel: give what they are made of or found by",
    ),
    "a default that JSON cannot hold": (
        "@job\ndef f(x: Any = object): ...",
        "the default of the parameter 'x' cannot be stored as JSON: .*: let it be None, and make the value in",
    ),
    "a default of another type": (
        "@job\ndef f(x: int = 'a'): ...",
        "the default of the parameter 'x' must be an integer",
    ),
    "a default of None": (
        "@job\ndef f(x: Literal['a'] = None): ...",
        r"the default of the parameter 'x' .*: annotate it as Literal\['a'\] \| None",
    ),
    "an annotation of nothing": (
        "@job\ndef f(x: 'Missing'): ...",
        "the annotation of the parameter 'x' cannot be read: name 'Missing' is not defined. Import what it names",
    ),
    "a lambda": ("f = job(lambda x: 1)", "a lambda has no name by which workers could find it"),
    "a method": ("class C:\n    @job\n    def f(self): ...", r"refused_module.C.f \(.*\): a method cannot be a job"),
    "a static method": ("class C:\n    @job\n    @staticmethod\n    def f(): ...", "a method cannot be a job"),
    "a function in a function": (
        "def outer():\n    @job\n    def f(): ...\nouter()",
        "a function inside another one cannot be a job: define it at the top level",
    ),
    "a class": ("@job\nclass C: ...", "only a function can be a job, not the class C: write it with def"),
    "a partial": ("import functools\nf = job(functools.partial(print))", "only a function can be a job, not a partial"),
    "a builtin": ("f = job(len)", "only a function can be a job"),
    "a generator": ("@job\ndef f(): yield 1", "a generator function cannot be a job: make it an ordinary function"),
    "a job": ("@job\n@job\ndef f(): ...", "refused_module.f is a job already: write @job once"),
    "two functions of one path": (
        "@job\ndef f(): ...\n\n@job\ndef f(): ...",
        r"refused_module.f \(.*refused_module.py, line 6\): another job of this path is defined in line 3",
    ),
    "the program": ("__name__ = '__main__'\n@job\ndef f(): ...", "workers cannot import the program that was started"),
    "an unknown option": ("@job(que='mails')\ndef f(): ...", "@job has no option 'que': is 'queue' meant"),
    "an option of others": ("@job(max_retries=3)\ndef f(): ...", "@job has no option 'max_retries': is 'retry' meant"),
    "an attribute of classes": (
        "@job(thread_safe=False)\ndef f(): ...",
        "give 'thread_safe' to a subclass of Job as an",
    ),
    "no seconds": ("@job(kill_after='soon')\ndef f(): ...", "kill_after is a number of seconds, not 'soon'"),
    "no limits": ("@job(limits=['to'])\ndef f(to: str): ...", "limits is a list of Limit, not ."),
    "another unknown option": ("@job(acks_late=3)\ndef f(): ...", "@job has no option 'acks_late': there are queue, "),
    "schedules without names": (
        "@job(schedules={'cron': '0 3 * * *'})\ndef f(): ...",
        "schedules is a mapping of names, as .*, not {'cron': '0 3",
    ),
    "a wrong queue": ("@job(queue='a,b')\ndef f(): ...", "The name of a queue must be neither empty nor have a comma"),
    "a queue that nobody serves": ("@job(queue=' a')\ndef f(): ...", "No worker serves a queue whose name has white"),
    "a wrong priority": ("@job(priority='high')\ndef f(): ...", "A priority must be an integer"),
    "a wrong retry": ("@job(retry=3)\ndef f(): ...", "A retry policy must be a Retry, or the text of one, not 3"),
    "a wrong time limit": ("@job(timeout='1m')\ndef f(): ...", "timeout is a number of seconds, not '1m'"),
    "a wrong keep_result": ("@job(keep_result='1d')\ndef f(): ...", "keep_result is True, False, a number of seconds"),
    "unique by an unknown name": ("@job(unique='y')\ndef f(x: int): ...", "unique: there is no parameter 'y', but x"),
    "a wrong unique": ("@job(unique=5)\ndef f(x: int): ...", "unique is True, names of parameters, or a function"),
    "a wrong base": ("@job(base=Queue)\ndef f(x: int): ...", "base is a subclass of Job, not "),
    "a base that needs an argument": (
        "class Base(Job):\n    namespace = 'refused'\n    abstract = True\n    to = Argument()\n"
        "@job(base=Base)\ndef f(x: int): ...",
        "Base needs the argument 'to', which no call gives: give it a default",
    ),
}


@pytest.mark.parametrize(("lines", "why"), REFUSED.values(), ids=REFUSED)
def test_it_is_refused_in_one_line(importing: Importing, lines: str, why: str) -> None:
    with pytest.raises(ConfigurationException, match=why) as caught:
        importing(lines)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(("refused_module.", "__main__.f (", "functools.partial(", "builtins.")), text
    assert "refused_module.py, line " in text or "def f" not in lines or "already" in text, text


def test_a_wrapper_that_hides_its_function_is_told_of_wraps(importing: Importing) -> None:
    with pytest.raises(ConfigurationException, match=r"If a decorator below @job made it, that needs functools\.wraps"):
        importing("def hiding(f):\n    def g(): ...\n    return g\n@job\n@hiding\ndef f(): ...")


def test_the_options_are_given_by_name() -> None:
    from limpyd_jobs import job

    with pytest.raises(TypeError, match=r"The options of @job are given by name, as @job\(queue='mails'\)"):
        job("mails")  # type: ignore[call-overload]


def test_a_module_that_is_loaded_again_replaces_its_functions(importing: Importing) -> None:
    module = importing("@job\ndef f(x: int): return 1")
    earlier = module.f
    importing("\n\n@job(queue='other')\ndef f(x: int, y: int = 2): return 2\n", again=module)
    assert module.f is not earlier
    assert job_classes.resolve("refused_module.f") is module.f.job_class
    assert module.f.job_class.queue_name == "other"
    assert [each for each in job_classes.all() if each.__name__ == "f"] == [module.f.job_class]


def test_a_function_of_each_branch_is_one_function(importing: Importing) -> None:
    module = importing("if TYPE_CHECKING:\n    pass\nelse:\n    @job\n    def f(x: int) -> None: ...")
    assert issubclass(module.f.job_class, Job)


def test_annotations_for_type_checkers_only_may_be_what_it_returns(importing: Importing) -> None:
    module = importing("@job\ndef f(x: int) -> 'Missing': ...")
    assert module.f(1) is None
