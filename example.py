"""Read the whole standard library of this Python, each module in a job of its own, by several workers at once.

Copy from it. From top to bottom: the models (queue, jobs, error), the worker, the adding of jobs, what
can be seen of them, and the program around all that. To make it yours, replace the fields and the `run` of the jobs,
and `add_jobs`.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from limpyd import fields
from redis.exceptions import RedisError

from limpyd_jobs import STATUSES, ConfigurationException, Error, Job, Queue, Worker
from limpyd_jobs.models import BaseJobsModel

HERE = Path(__file__).resolve()

if __name__ == "__main__":
    # A job is stored with the path of its class, for workers to import. "__main__.ReadModule" is something else in each
    # process, "example.ReadModule" is not: so this script hands over to itself as a module. You do not need this if
    # your job classes are in a module of your application, as they should be.
    sys.exit(import_module(HERE.stem).main())

LIBRARY = Path(sysconfig.get_path("stdlib"))
NAMESPACE = "limpyd-jobs-example"  # the beginning of all keys in Redis, so that they can be removed at the end
MAX_RUN = 300  # seconds, after which workers end by themselves, in case none is left to end them
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

WIDTH = 80  # of what is printed

# The priorities in the queue "modules". The large files come first: if the longest job began last, all workers but one
# would have nothing to do at the end.
SIZES = [("large", 50_000, 3), ("medium", 10_000, 2), ("small", 0, 1)]  # name, least size in bytes, priority


# What is stored: subclasses of the models, with fields of their own


class LibraryQueue(Queue):
    namespace = NAMESPACE

    size = fields.InstanceHashField()
    lines = fields.InstanceHashField(default=0)


class LibraryJob(Job):
    """What both kinds of jobs have in common."""

    namespace = NAMESPACE
    abstract = True
    queue_model = LibraryQueue

    package = fields.InstanceHashField(indexable=True)  # so there is collection(package=…)
    lines = fields.InstanceHashField()
    seconds = fields.InstanceHashField()

    def on_success(self, queue: Queue, result: Any) -> None:
        """Keep what the tables at the end are sorted by; the worker calls this after a success."""
        duration = self.duration
        if duration:
            self.seconds.hset(duration.total_seconds())


class ReadModule(LibraryJob):
    """Read one file, whose path inside the library is the identifier."""

    queue_name = "modules"

    sha256 = fields.InstanceHashField()
    functions = fields.SortedSetField()  # "name:line", scored by the number of lines

    def run(self, queue: LibraryQueue) -> str:
        source = (LIBRARY / self.identifier.hget()).read_bytes()
        try:
            functions = find_functions(source)
        except (SyntaxError, ValueError):
            # Python's tests have files with bad syntax. The next try would be no better, so let there be none.
            self.cancel_on_error.hset(1)
            raise
        if functions:
            self.functions.zadd(functions)
        lines = source.count(b"\n")
        self.hmset(lines=lines, sha256=hashlib.sha256(source).hexdigest())
        queue.lines.hincrby(lines)
        return f"{lines} lines"


class NotReady(Exception):
    """A package cannot be summed up yet."""


class SumPackage(LibraryJob):
    """Sum up a package, once its modules are read: a failure until then, so that the worker puts the job back."""

    queue_name = "packages"

    modules = fields.InstanceHashField()

    def run(self, queue: LibraryQueue) -> str:
        package = self.package.hget()
        unread = list(ReadModule.collection(package=package, queued=1))
        if unread:
            raise NotReady(f"{len(unread)} modules to be read")
        read = ReadModule.collection(package=package, status=STATUSES.SUCCESS).values_list("lines", flat=True)
        lines = [int(number) for number in read]
        self.hmset(modules=len(lines), lines=sum(lines))
        return f"{len(lines)} modules"


class LibraryError(Error):
    namespace = NAMESPACE

    package = fields.InstanceHashField(indexable=True)
    line = fields.InstanceHashField()


def find_functions(source: bytes) -> dict[str, int]:
    """Return the number of lines of each function, by its name and line."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the code that is read
        tree = ast.parse(source)
    functions = (node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
    return {f"{node.name}:{node.lineno}": (node.end_lineno or node.lineno) - node.lineno + 1 for node in functions}


# Who does it


class LibraryWorker(Worker):
    queues = ["modules", "packages"]
    queue_model = LibraryQueue
    error_model = LibraryError
    max_loops = 100_000
    max_duration = MAX_RUN
    fetch_priorities_delay = 1
    fetch_delayed_delay = 0.5
    lease = 10  # seconds: the job of a worker that was killed runs again after that
    # A job that failed may run again a second later, and after all others.
    requeue_times = 20
    requeue_priority_delta = -10
    requeue_delay_delta = 1
    metrics = False  # as nothing of this program is to stay in Redis

    def additional_error_fields(
        self, job: Any, queue: Queue, exception: BaseException, trace: str | None = None
    ) -> dict[str, Any]:
        return {"package": job.package.hget(), "line": getattr(exception, "lineno", None) or ""}

    def job_success_message(self, job: Job, queue: Queue, job_result: Any) -> str:
        return f"{super().job_success_message(job, queue, job_result)}: {job_result}"


@contextmanager
def workers(number: int, database: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run worker processes. Yours begin with ``limpyd-jobs-worker --worker-class=myapp.MyWorker --database=…``."""
    command = [
        *(sys.executable, "-m", "limpyd_jobs.scripts.worker", f"--pythonpath={HERE.parent}"),
        *(f"--worker-class={__name__}.LibraryWorker", "--logger-level=100"),  # INFO shows what they do
    ]
    # All users of a machine can read command lines, and there may be a password in the name of the database.
    environment = {**os.environ, "LIMPYD_JOBS_DATABASE": database}
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(number):
            # Each in a session of its own: Ctrl-C is for this process, which then ends the workers as below.
            processes.append(subprocess.Popen(command, env=environment, start_new_session=True))
        yield processes
    finally:
        for one in SIGNALS:
            signal.signal(one, signal.SIG_IGN)  # what is left to do takes a moment, and has to be done
        for process in processes:
            process.terminate()  # once it has finished its job
        for process in processes:
            process.wait()


# What there is to do


def add_jobs() -> int:
    """Add all jobs, and return their number."""
    for name, _, priority in SIZES:
        LibraryQueue.get_queue("modules", priority, size=name)

    paths = [path.relative_to(LIBRARY) for path in sorted(LIBRARY.rglob("*.py")) if path.is_file()]
    modules = {path: package_of(path) for path in paths if not {"site-packages", "dist-packages"} & set(path.parts)}
    for path, package in modules.items():
        size = (LIBRARY / path).stat().st_size
        priority = next(priority for _, least, priority in SIZES if size >= least)
        ReadModule.add_job(path.as_posix(), priority=priority, package=package)

    # In a moment and before all others, when few packages will be ready.
    packages = sorted(set(modules.values()))
    for package in packages:
        SumPackage.add_job(package, priority=9, delayed_for=0.2, package=package)
    return len(modules) + len(packages)


def package_of(path: Path) -> str:
    return path.parts[0] if len(path.parts) > 1 else "(top level)"


# What can be seen of it


def count(**filters: Any) -> int:
    return len(ReadModule.collection(**filters)) + len(SumPackage.collection(**filters))


def watch(total: int, processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Show how far the workers are, until all jobs have ended."""
    is_terminal, tenths, done = sys.stdout.isatty(), -1, -1
    while done < total:
        if all(process.poll() is not None for process in processes):
            sys.exit("The workers ended before their work was done.")
        # Jobs move meanwhile, but what runs now was queued a moment ago: none is counted twice.
        queued, running = count(queued=1), count(status=STATUSES.RUNNING)
        done = total - queued
        width = min(shutil.get_terminal_size().columns or WIDTH, WIDTH) - 1
        line = f"{done}/{total} jobs done, {running} running, {queued - running} to come"[:width]
        if is_terminal:
            print(f"\r{line:<{width}}", end="", flush=True)
        elif done * 10 // total > tenths:
            tenths = done * 10 // total
            print(line, flush=True)
        time.sleep(0.1)
    if is_terminal:
        print()


def report() -> None:
    show("Queues", "name priority size waiting delayed success errors lines", queue_rows())
    show("Largest packages", "package modules lines tries", package_rows())
    show("Slowest jobs", "seconds lines sha256 longest module", slowest_rows(), cut="longest module")
    show("Modules that cannot be read", "module line error", unreadable_rows(), cut="error module")
    kinds = Counter(LibraryError.collection().values_list("type", flat=True))
    show("Errors of all tries", "type number", kinds.items())


def queue_rows() -> Iterator[Sequence[Any]]:
    for queue in LibraryQueue.collection().sort(by="-priority").instances():
        name, priority, size, lines = queue.hmget("name", "priority", "size", "lines")
        lengths = queue.waiting.llen(), queue.delayed.zcard(), queue.success.llen(), queue.errors.llen()
        yield name, int(priority), size or "", *lengths, int(lines)


def package_rows() -> Iterator[Sequence[Any]]:
    largest = SumPackage.collection(status=STATUSES.SUCCESS).sort(by="-lines")
    for package, *numbers in largest.values_list("package", "modules", "lines", "tries")[:5]:
        yield package, *map(int, numbers)


def slowest_rows() -> Iterator[Sequence[Any]]:
    for job in ReadModule.collection(status=STATUSES.SUCCESS).sort(by="-seconds").instances()[:10]:
        module, seconds, lines, sha256 = job.hmget("identifier", "seconds", "lines", "sha256")
        longest = "".join(job.functions.zrevrange(0, 0))
        yield f"{float(seconds):.3f}", int(lines), sha256[:8], longest, module


def unreadable_rows() -> Iterator[Sequence[Any]]:
    for job in ReadModule.collection(status=STATUSES.ERROR).sort(by="identifier", alpha=True).instances():
        for error in LibraryError.collection_for_job(job).instances():
            line, kind, message = error.hmget("line", "type", "message")
            yield job.identifier.hget(), line, f"{kind}: {message}"


def show(title: str, headings: str, rows: Iterable[Sequence[Any]], cut: str = "") -> None:
    """Print a table, its numbers to the right. Some columns may be cut, to keep it within the width of a page."""
    names = headings.split()
    lines = [names, *rows]
    columns = list(zip(*lines, strict=True))
    widths = [max(len(str(cell)) for cell in column) for column in columns]
    aligns = ["<" if isinstance(column[-1], str) else ">" for column in columns]
    for name in cut.split():
        position = names.index(name)
        others = sum(widths) - widths[position] + 2 * len(widths)
        widths[position] = min(widths[position], max(WIDTH - others, len(name)))
    print(f"\n{title}\n")
    for line in lines:
        cells = (
            f"{shortened(cell, width):{align}{width}}" for cell, align, width in zip(line, aligns, widths, strict=True)
        )
        print("  " + "  ".join(cells).rstrip())


def shortened(cell: Any, width: int) -> str:
    text = str(cell)
    return text if len(text) <= width else f"{text[: width - 1]}…"


NEXT_STEPS = """
What to try next:
- Keep all that is stored, on a Redis of yours, to look at it:
    python example.py --keep --database=localhost:6379:0
    limpyd-jobs info
    limpyd-jobs jobs list status=error
- Change the number of workers, or kill one of them meanwhile:
    python example.py --workers=4
- Write jobs of your own: docs/tutorial.rst"""


# The program


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--database",
        metavar="NAME",
        default="embedded://",
        help="the Redis database to use, in any form that limpyd-jobs-worker takes: localhost:6379:0, or "
        "redis://localhost:6379/0 (default: embedded://, a private server that ends with the example)",
    )
    parser.add_argument("--workers", metavar="N", type=int, default=2, help="how many worker processes (default: 2)")
    parser.add_argument("--keep", action="store_true", help=f"keep the keys, {NAMESPACE}:*, until the next example")
    options = parser.parse_args()
    if options.workers < 1:
        parser.error("argument --workers: must be 1 or more")
    try:
        BaseJobsModel.database.from_url(options.database)
    except ConfigurationException as error:
        parser.error(f"argument --database: {error}")
    return options


@contextmanager
def own_keys(keep: bool) -> Iterator[None]:
    """Have the namespace for this run alone; it is empty at the start and, unless it is to be kept, at the end."""
    redis = LibraryQueue.get_connection()
    in_use = f"{NAMESPACE}-in-use"
    if not redis.set(in_use, "yes", nx=True, ex=MAX_RUN):
        sys.exit(f"Another example runs on this database, or was killed there in the last {MAX_RUN} seconds.")
    try:
        remove_keys()
        yield
    finally:
        redis.connection_pool.disconnect()  # Ctrl-C may have come between a command and its answer
        if not keep:
            remove_keys()
        redis.delete(in_use)


def remove_keys() -> None:
    keys = list(LibraryQueue.database.scan_keys(f"{NAMESPACE}:*", count=1000))
    redis = LibraryQueue.get_connection()
    if keys:
        redis.unlink(*keys)
    ours = {ReadModule.get_model_repr(), SumPackage.get_model_repr()}
    known = [name for name in redis.hkeys("limpyd-jobs:classes") if name in ours or f" {NAMESPACE}:" in name]
    if known:
        redis.hdel("limpyd-jobs:classes", *known)


def main() -> int | str:
    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler)  # which raises KeyboardInterrupt
    try:
        options = parse_arguments()
        start = time.monotonic()
        with own_keys(options.keep):
            with workers(options.workers, options.database) as processes:
                watch(add_jobs(), processes)
            report()
        print(f"\n{time.monotonic() - start:.1f} seconds\n{NEXT_STEPS}", flush=True)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:  # of "| head": the output is not read any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except (ConfigurationException, RedisError) as error:
        return f"Redis cannot be used: {error}"
    return 0
