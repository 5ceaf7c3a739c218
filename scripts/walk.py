"""Trace the way of a job through the files of this package, and count: ``python scripts/walk.py``.

It starts a Redis of its own, and prints for each walk, in this order:

entries   calls that go from one file of the package into another
files     how many files they touch
folders   how many folders these files are in
climbs    pairs of files whose call goes upwards: the called file imports the calling one, directly or not
calls     calls of functions of the package

A walk of running jobs is the way from the first line of one job's code to the first line of the next one's: of many
such ways, the median by calls. If several run at once, it is all that the thread of the worker does for some jobs:
entries and calls are divided by their number, and files and climbs are those of at least every second job, without
what the worker does once a second. That of a command begins when its command line is read. ``python
scripts/walk.py run --show`` prints one walk, call by call.
"""

from __future__ import annotations

import argparse
import ast
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, TypeVar

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from servers import RedisServer  # noqa: E402

from limpyd_jobs import Job, Queue, Worker  # noqa: E402
from limpyd_jobs.models import BaseJobsModel  # noqa: E402
from limpyd_jobs.redis.embedded import find_server  # noqa: E402
from limpyd_jobs.scripts.jobs import COMMANDS  # noqa: E402

PACKAGE = ROOT / "limpyd_jobs"
T = TypeVar("T")

JOBS = 60  # of each walk; the first half warms up


class Step(NamedTuple):
    """A call: the file and the function it comes from, and those it goes to. Empty for code outside of the package."""

    source: str
    target: str
    name: str
    depth: int


@dataclass
class Tracer:
    """Notes the calls of functions of the package in this thread, in walks that `mark` divides."""

    def __post_init__(self) -> None:
        self.walks: list[list[Step]] = [[]]

    def __enter__(self) -> Tracer:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        sys.setprofile(None)

    def mark(self) -> None:
        self.walks.append([])

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and (target := file_of(frame.f_code.co_filename)):
            source, depth = caller_of(frame)
            self.walks[-1].append(Step(source, target, frame.f_code.co_qualname, depth))

    @property
    def median(self) -> list[Step]:
        """The walk of median length of the second half of them; the last one is cut off by the end."""
        steady = self.walks[len(self.walks) // 2 : -1] or self.walks
        return sorted(steady, key=len)[len(steady) // 2]


def caller_of(frame: FrameType) -> tuple[str, int]:
    """The file of the package that called, and how many of its frames are below."""
    source, depth, below = "", 0, frame.f_back
    while below is not None:
        file = file_of(below.f_code.co_filename)
        source, depth, below = source or file, depth + bool(file), below.f_back
    return source, depth


@cache
def file_of(path: str) -> str:
    """The name of a file of the package, below its folder; empty for any other file."""
    return path.removeprefix(f"{PACKAGE}/") if path.startswith(f"{PACKAGE}/") else ""


# -- What imports what


@cache
def imported_by(file: str) -> frozenset[str]:
    """The files that a file of the package imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((PACKAGE / file).read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("limpyd_jobs"):
            found.update(files_of(node.module, [alias.name for alias in node.names]))
    return frozenset(found - {file, ""})


def files_of(module: str, names: list[str]) -> Iterator[str]:
    folder = ROOT / module.replace(".", "/")
    if not folder.is_dir():
        yield file_of(f"{folder}.py")
        return
    for name in names:
        part, package = folder / f"{name}.py", folder / name / "__init__.py"
        yield file_of(str(next((each for each in (part, package) if each.exists()), folder / "__init__.py")))


@cache
def below(file: str) -> frozenset[str]:
    """All files that a file imports, directly or not."""
    found: set[str] = set()
    waiting = [file]
    while waiting:
        new = imported_by(waiting.pop()) - found
        found |= new
        waiting += new
    return frozenset(found)


def climbs(source: str, target: str) -> bool:
    return source in below(target) and target not in below(source)


# -- The walks


class Errand(Job):
    """A job that does nothing, except that its code divides the walks."""

    namespace = "walk"
    queue_name = "walk"
    tracer: Tracer

    def run(self, queue: Queue) -> None:
        self.tracer.mark()


class AsyncErrand(Errand):
    async def run(self, queue: Queue) -> None:  # type: ignore[override]
        self.tracer.mark()


def run(job_class: type[Errand] = Errand, jobs: int = JOBS, **parameters: Any) -> Tracer:
    job_class.get_connection().flushdb()  # of our own server
    job_class.add_jobs([f"job:{number}" for number in range(2 * jobs)])
    logging.getLogger("limpyd-jobs").addHandler(logging.NullHandler())  # so that its lines are made
    Errand.tracer = tracer = Tracer()
    with tracer:
        Worker(queues="walk", max_loops=jobs, terminate_gracefuly=False, **parameters).run()
    return tracer


def run_many(job_class: type[Errand]) -> tuple[list[Step], int]:
    walks = run(job_class, 10 * JOBS, concurrency=100).walks
    steady = walks[len(walks) // 4 : 3 * len(walks) // 4]
    return [step for walk in steady for step in walk], len(steady)


def add() -> tuple[list[Step], int]:
    tracer = Tracer()
    for number in range(JOBS):
        with tracer:
            Errand.add_job(f"added:{number}")
        tracer.mark()
    return tracer.median, 1


def requeue() -> tuple[list[Step], int]:
    for turn in range(2):  # the first time, all classes and scripts become known
        for number in range(5):
            Errand.add_job(f"failed:{turn}:{number}").status.hset("e")
        tracer = Tracer()
        command = traced(COMMANDS["jobs"], tracer)("limpyd-jobs jobs", ["requeue", "status=error", "--yes"])
        with redirect_stdout(StringIO()):
            command.execute()
    return tracer.walks[0], 1


def traced(command: Any, tracer: Tracer) -> Any:
    """Return a command that is traced once its command line is read."""

    class Traced(command):  # type: ignore[misc]
        def run(self) -> int:
            with tracer:
                return int(super().run())

    return Traced


WALKS: dict[str, Callable[[], tuple[list[Step], int]]] = {
    "add": add,
    "run": lambda: (run().median, 1),
    "run-async": lambda: (run(AsyncErrand).median, 1),
    "run-prefetch": lambda: (run(prefetch=100).median, 1),
    "run-many": lambda: run_many(Errand),
    "run-many-async": lambda: run_many(AsyncErrand),
    "requeue": requeue,
}


def often(things: Iterable[T], jobs: int) -> set[T]:
    """Return those that come for at least every second job."""
    return {thing for thing, number in Counter(things).items() if number >= jobs / 2}


def figures(walk: list[Step], jobs: int) -> str:
    entries = [step for step in walk if step.source and step.source != step.target]
    files = often((file for step in walk for file in {step.source, step.target} - {""}), jobs)
    folders = {file.rpartition("/")[0] for file in files}
    up = {pair for pair in often(((step.source, step.target) for step in entries), jobs) if climbs(*pair)}
    numbers = round(len(entries) / jobs), len(files), len(folders), len(up), round(len(walk) / jobs)
    return " / ".join(map(str, numbers))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("walks", nargs="*", choices=[*WALKS, []], help="which walks; all without any")
    parser.add_argument("--show", action="store_true", help="print the calls, each below the one that it comes from")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", "__main__.*is defined in the program itself")
    with RedisServer(find_server()) as server:
        BaseJobsModel.database.connect(unix_socket_path=server.socket, db=0)
        for name in options.walks or WALKS:
            walk, jobs = WALKS[name]()
            print(f"{name:<16}{figures(walk, jobs)}", flush=True)
            if options.show:
                lowest = min(step.depth for step in walk)
                for step in walk:
                    print(f"{'  ' * (step.depth - lowest)}{step.target} {step.name}")
        BaseJobsModel.database.connection.close()


if __name__ == "__main__":
    main()
