"""example.py, as a newcomer runs it: in a process of its own, on an embedded Redis or on one that others use too."""

from __future__ import annotations

import ast
import hashlib
import os
import pty
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import preloaded
import pytest
import redis
from servers import RedisServer, wait_until

ROOT = Path(__file__).parent.parent
EXAMPLE = [sys.executable, str(ROOT / "example.py")]
TIMEOUT = 120  # seconds
LIBRARY = Path(sysconfig.get_path("stdlib"))

pytestmark = pytest.mark.usefixtures("modules")

NAMESPACE = "limpyd-jobs-example"

Row = dict[str, str]


SMALL_LIBRARY = """
import sysconfig
get_path = sysconfig.get_path
sysconfig.get_path = lambda name, *args, **kwargs: {path!r} if name == "stdlib" else get_path(name, *args, **kwargs)
"""


@pytest.fixture(scope="module")
def modules(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """The files of the library, by what the example calls them: some of them, or with ``--long`` all."""
    found = dict(sorted(modules_of(LIBRARY)))
    if request.config.getoption("--long"):
        yield found
        return
    folder = tmp_path_factory.mktemp("example")
    unreadable = [name for name in found if Path(name).name.startswith("bad")]
    some = {name: found[name] for name in [*[*found][:: len(found) // 100], *unreadable]}
    for name, path in some.items():
        (folder / "library" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "library" / name).symlink_to(path)
    (folder / "sitecustomize.py").write_text(SMALL_LIBRARY.format(path=str(folder / "library")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        yield some


def modules_of(library: Path) -> Iterator[tuple[str, Path]]:
    for folder, folders, names in os.walk(library):
        folders[:] = [name for name in folders if name not in ("site-packages", "dist-packages")]
        paths = [Path(folder, name) for name in names if name.endswith(".py")]
        yield from ((str(path.relative_to(library)), path) for path in paths if path.is_file())


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*EXAMPLE, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT)


def begin(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it where it ends before it looks at the library."""
    return preloaded.run([*EXAMPLE, *arguments], cwd=ROOT, timeout=TIMEOUT)


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run it in a process group of its own, beyond the moment when its workers have run some jobs."""
    with subprocess.Popen(
        [*EXAMPLE, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout
            for line in process.stdout:
                if re.match(r"[1-9]\d*/", line):
                    break
            yield process
        finally:
            process.kill()


def dump(server: RedisServer) -> dict[tuple[int, str], object]:
    """Return all that is in the first databases of a server."""
    found: dict[tuple[int, str], object] = {}
    for db in (0, 1):
        with server.client(db=db, decode_responses=False) as client:
            found |= {(db, key.decode()): client.dump(key) for key in client.scan_iter()}
    return found


def add_what_others_have(server: RedisServer) -> None:
    """Put keys in the first databases that look like ours, but are not."""
    for db in (0, 1):
        with server.client(db=db) as client:
            client.hset("jobs:job:1:hash", mapping={"identifier": "theirs", "status": "w", "queued": "1"})
            client.rpush("jobs:queue:1:waiting", "limpyd_jobs.models.Job:1")
            client.sadd("jobs:job:queued:1", "1")
            client.set(f"{NAMESPACE}s:readmodule:max_pk", "1")
            client.set(f"x{NAMESPACE}:readmodule:max_pk", "1")
            client.set("readmodule:max_pk", "1", px=10**9)


class Output:
    """What it printed on a pipe."""

    def __init__(self, text: str) -> None:
        self.text = text
        parts = re.split(r"\n\n(\S.*)\n\n(?=  )", text)
        self.progress = parts[0].splitlines()
        self.tables = {title: self._rows(body) for title, body in zip(parts[1::2], parts[2::2], strict=True)}

    @staticmethod
    def _rows(body: str) -> list[Row]:
        """Read a table: each column begins, or ends, where its heading does."""
        heading, *lines = body.split("\n\n")[0].splitlines()
        spans = [match.span() for match in re.finditer(r"\S+", heading)]
        gaps = [
            column
            for column in range(max(map(len, [heading, *lines])) + 1)
            if all(line[column : column + 1].strip() == "" for line in [heading, *lines])
        ]
        edges = [0, *(max(gap for gap in gaps if gap < start) for start, _ in spans[1:]), None]
        return [
            {
                name: line[left:right].strip()
                for name, left, right in zip(heading.split(), edges, edges[1:], strict=False)
            }
            for line in lines
        ]

    def sum(self, table: str, column: str, **where: str) -> int:
        """Add up a column, over the rows that have some values."""
        rows = [row for row in self.tables[table] if where.items() <= row.items()]
        return sum(int(row[column]) for row in rows)


@pytest.fixture(scope="module")
def seen(redis_server: RedisServer, modules: dict[str, Path]) -> Iterator[dict[str, object]]:
    """One whole run on a server that others use: all there was before and after, and what it printed."""
    with redis_server.client() as client:
        client.flushall()
        add_what_others_have(redis_server)
        before = dump(redis_server)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("COLUMNS", "300")
            completed = run(f"--database={redis_server.url}")
        yield {"completed": completed, "before": before, "after": dump(redis_server)}
        client.flushall()


@pytest.fixture(scope="module")
def output(seen: dict[str, subprocess.CompletedProcess[str]]) -> Output:
    return Output(seen["completed"].stdout)


def lines_of(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def function_lengths(source: bytes) -> dict[str, int]:
    functions = [node for node in ast.walk(parse(source)) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return {f"{node.name}:{node.lineno}": node.end_lineno - node.lineno + 1 for node in functions}


def parse(source: bytes) -> ast.AST:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


@pytest.mark.proof
class TestAWholeRun:
    def test_it_succeeds_and_complains_of_nothing(self, seen: dict[str, subprocess.CompletedProcess[str]]) -> None:
        assert seen["completed"].stderr == ""
        assert seen["completed"].returncode == 0

    def test_it_leaves_what_others_have_and_nothing_of_its_own(self, seen: dict[str, object]) -> None:
        assert seen["after"] == seen["before"]

    def test_it_fits_in_a_terminal_and_ends_with_what_to_try_next(self, output: Output) -> None:
        assert max(map(len, output.text.splitlines())) <= 80
        _, _, steps = output.text.rpartition("\nWhat to try next:\n")
        assert "    limpyd-jobs info\n" in steps
        assert (ROOT / steps.rpartition("Write jobs of your own: ")[2].strip()).is_file()

    def test_its_progress_is_plain_lines_when_piped(self, output: Output) -> None:
        assert "\r" not in output.text
        assert "\x1b" not in output.text
        lines = [re.match(r"(\d+)/(\d+) jobs done", line) for line in output.progress]
        done, totals = [int(line[1]) for line in lines], [int(line[2]) for line in lines]
        assert done == sorted(set(done))
        assert len(done) <= 11
        assert set(totals) == {done[-1]}

    def test_the_numbers_of_each_line_of_progress_add_up(self, output: Output) -> None:
        for line in output.progress:
            shown = re.fullmatch(r"(\d+)/(\d+) jobs done, (\d+) running, (\d+) to come", line)
            done, total, running, to_come = map(int, shown.groups())
            assert done + running + to_come == total

    def test_each_module_of_the_library_is_a_job(self, output: Output, modules: dict[str, Path]) -> None:
        unreadable = output.tables["Modules that cannot be read"]
        assert output.sum("Queues", "success", name="modules") == len(modules) - len(unreadable)
        assert {row["module"] for row in unreadable} <= modules.keys()

    def test_each_package_is_a_job(self, output: Output, modules: dict[str, Path]) -> None:
        packages = {name.partition("/")[0] if "/" in name else "(top level)" for name in modules}
        assert output.sum("Queues", "success", name="packages") == len(packages)
        assert int(output.progress[-1].partition("/")[0]) == len(modules) + len(packages)

    def test_its_queues_are_empty_at_the_end(self, output: Output) -> None:
        assert output.sum("Queues", "waiting") == 0
        assert output.sum("Queues", "delayed") == 0

    def test_the_lines_of_the_queues_are_those_on_disk(self, output: Output, modules: dict[str, Path]) -> None:
        unreadable = {row["module"] for row in output.tables["Modules that cannot be read"]}
        assert output.sum("Queues", "lines") == sum(
            lines_of(path) for name, path in modules.items() if name not in unreadable
        )

    def test_the_priority_of_a_module_is_that_of_its_size(self, output: Output, modules: dict[str, Path]) -> None:
        sizes = [path.stat().st_size for path in modules.values()]
        expected = {
            "large": sum(size >= 50_000 for size in sizes),
            "medium": sum(10_000 <= size < 50_000 for size in sizes),
            "small": sum(size < 10_000 for size in sizes),
        }
        for row in output.tables["Queues"]:
            if row["size"]:
                assert int(row["success"]) + int(row["errors"]) == expected[row["size"]]

    def test_the_largest_packages_are_those_on_disk(self, output: Output, modules: dict[str, Path]) -> None:
        unreadable = {row["module"] for row in output.tables["Modules that cannot be read"]}
        lines: dict[str, list[int]] = {}
        for name in modules.keys() - unreadable:
            package = name.partition("/")[0] if "/" in name else "(top level)"
            lines.setdefault(package, []).append(lines_of(modules[name]))
        rows = output.tables["Largest packages"]
        assert sorted(map(sum, lines.values()), reverse=True)[:5] == [int(row["lines"]) for row in rows]
        for row in rows:
            assert (int(row["modules"]), int(row["lines"])) == (len(lines[row["package"]]), sum(lines[row["package"]]))

    def test_the_slowest_jobs_tell_what_is_on_disk(self, output: Output, modules: dict[str, Path]) -> None:
        rows = output.tables["Slowest jobs"]
        assert len(rows) == 10
        seconds = [float(row["seconds"]) for row in rows]
        assert seconds == sorted(seconds, reverse=True)
        for row in rows:
            sources = [
                path.read_bytes() for name, path in modules.items() if name.startswith(row["module"].rstrip("…"))
            ]
            [source] = {each for each in sources if row["sha256"] == hashlib.sha256(each).hexdigest()[:8]}
            assert int(row["lines"]) == source.count(b"\n")
            lengths, shown = function_lengths(source), row["longest"].rstrip("…")
            found = [length for name, length in lengths.items() if name.startswith(shown)]
            assert not lengths or max(lengths.values()) in found

    def test_a_module_that_cannot_be_read_is_tried_once(self, output: Output) -> None:
        rows = output.tables["Modules that cannot be read"]
        assert output.sum("Queues", "errors", name="modules") == len(rows)
        assert len({row["module"] for row in rows}) == len(rows)
        for row in rows:
            with pytest.raises((SyntaxError, ValueError)):
                parse((LIBRARY / row["module"]).read_bytes())

    def test_a_package_that_is_not_ready_is_tried_again(self, output: Output) -> None:
        not_ready = output.sum("Errors of all tries", "number", type="NotReady")
        assert not_ready > 0
        assert output.sum("Queues", "errors", name="packages") == not_ready
        assert output.sum("Queues", "errors") == output.sum("Errors of all tries", "number")
        assert output.sum("Largest packages", "tries") > len(output.tables["Largest packages"])


@pytest.mark.proof
def test_on_embedded_redis_and_a_terminal_it_shows_live_progress_and_leaves_nothing() -> None:
    with tempfile.TemporaryDirectory(prefix="example-") as directory:
        main, terminal = pty.openpty()
        with subprocess.Popen(
            EXAMPLE, cwd=ROOT, stdout=terminal, stderr=terminal, env={**os.environ, "TMPDIR": directory}
        ) as process:
            os.close(terminal)
            text = read_all(main)
            assert process.wait(TIMEOUT) == 0, text
        done = [int(number) for number in re.findall(r"\r(\d+)/\d+ jobs done", text)]
        assert done == sorted(done)  # how many there are depends on how fast it is
        output = Output(text.rpartition("\r1")[2].replace("\r", ""))
        assert done[-1] == output.sum("Queues", "success") + len(output.tables["Modules that cannot be read"])
        wait_until(lambda: os.listdir(directory) == [], "end of the embedded server")


SHOW_MANY = """
import example
from limpyd_jobs import STATUSES

numbers = {"queued": 7 * 10**18, STATUSES.RUNNING: 3 * 10**18}
example.count = lambda status="queued", queued=1: numbers[status]
example.time.sleep = lambda seconds: numbers.update(dict.fromkeys(numbers, 0))


class Worker:
    def poll(self):
        return None


example.watch(10**19, [Worker()])
"""


@pytest.mark.parametrize(("columns", "width"), [("0", 79), ("300", 79), ("40", 39)])
def test_no_line_of_progress_is_wider_than_a_page_or_the_terminal(
    monkeypatch: pytest.MonkeyPatch, columns: str, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    lines = preloaded.run([sys.executable, "-c", SHOW_MANY], cwd=ROOT).stdout.splitlines()
    assert lines == [
        f"{3 * 10**18}/{10**19} jobs done, {3 * 10**18} running, {4 * 10**18} to come"[:width],
        f"{10**19}/{10**19} jobs done, 0 running, 0 to come"[:width],
    ]


SHOW_WIDE = """
import example

rows = [("0.001", 12345, "0a1b2c3d", "a_function" * 6, "test/folder" * 7)]
example.show("Slowest jobs", "seconds lines sha256 longest module", rows, cut="longest module")
"""


def test_no_table_is_wider_than_a_page() -> None:
    lines = preloaded.run([sys.executable, "-c", SHOW_WIDE], cwd=ROOT).stdout.splitlines()
    assert max(map(len, lines)) == 80


def read_all(terminal: int) -> str:
    """Read until all who write to the terminal have ended."""
    chunks: list[bytes] = []
    try:
        while chunk := os.read(terminal, 65536):
            chunks.append(chunk)
    except OSError:  # how Linux says that there is no more
        pass
    os.close(terminal)
    return b"".join(chunks).decode().replace("\r\n", "\n")


def ctrl_c(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGINT)


def ask_to_end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)


def hang_up(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGHUP)


def read_no_more(process: subprocess.Popen[str]) -> None:
    process.stdout.close()


# All signals come to the same code, and others send Ctrl-C too.
ENDS = [
    pytest.param(ctrl_c, 130, marks=pytest.mark.only_long),
    pytest.param(hang_up, 130, marks=pytest.mark.only_long),
    (ask_to_end, 130),
    (read_no_more, 141),
]


@pytest.mark.proof
@pytest.mark.parametrize(("end", "status"), ENDS)
def test_ended_before_its_time_it_leaves_what_others_have_and_nothing_of_its_own(
    redis_server: RedisServer,
    redis_client: redis.Redis,
    end: Callable[[subprocess.Popen[str]], None],
    status: int,
) -> None:
    add_what_others_have(redis_server)
    before, clients = dump(redis_server), len(redis_client.client_list())
    with running(f"--database={redis_server.url}", "--workers=1") as process:
        end(process)
        assert process.wait(TIMEOUT) == status
        assert process.stderr.read() == ""
    assert dump(redis_server) == before
    wait_until(lambda: len(redis_client.client_list()) <= clients, "end of all workers")


@pytest.mark.proof
def test_it_cleans_up_however_often_ctrl_c_is_pressed(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    with running(f"--database={redis_server.url}") as process:
        while process.poll() is None:
            ctrl_c(process)
            try:
                process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
        assert process.returncode == 130
        assert process.stderr.read() == ""
    assert redis_client.keys() == []


@pytest.mark.proof
def test_what_is_kept_stays_until_the_next_run(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    with running(f"--database={redis_server.url}", "--keep", "--workers=1") as process:
        ctrl_c(process)
        assert process.wait(TIMEOUT) == 130
    kept = redis_client.keys()
    assert f"{NAMESPACE}:readmodule:collection" in kept
    assert all(key.startswith((f"{NAMESPACE}:", "limpyd-jobs:")) for key in kept)
    assert redis_client.scard(f"{NAMESPACE}:readmodule:queued:1") > 0
    for words in (["info"], ["jobs", "list", "status=error"]):  # as it says at its end
        command = [str(Path(sys.executable).with_name("limpyd-jobs")), *words, f"--database={redis_server.url}"]
        done = preloaded.run(command, cwd=ROOT, timeout=TIMEOUT)
        assert (done.returncode, done.stderr) == (0, "")
        assert words != ["info"] or "modules" in done.stdout

    with running(f"--database={redis_server.url}", "--workers=1") as process:
        assert redis_client.get(f"{NAMESPACE}:readmodule:max_pk") == str(len(kept_modules(redis_client)))
        ctrl_c(process)
        assert process.wait(TIMEOUT) == 130
    assert redis_client.keys() == []


def kept_modules(client: redis.Redis) -> list[str]:
    return client.keys(f"{NAMESPACE}:readmodule:*:hash")


@pytest.mark.proof
def test_it_does_not_disturb_another_example_on_the_same_database(
    redis_server: RedisServer, redis_client: redis.Redis
) -> None:
    redis_client.set(f"{NAMESPACE}-in-use", "yes")
    redis_client.set(f"{NAMESPACE}:readmodule:max_pk", "1")
    before = dump(redis_server)
    completed = begin(f"--database={redis_server.url}")
    assert completed.returncode == 1
    assert re.fullmatch(r"Another example runs .*\n", completed.stderr)
    assert dump(redis_server) == before


@pytest.mark.proof
@pytest.mark.long
def test_a_redis_that_goes_away_ends_it(redis_binary: str) -> None:
    with RedisServer(redis_binary) as server, running(f"--database={server.url}", "--workers=1") as process:
        server.kill()
        assert process.wait(TIMEOUT) == 1
        said_by_a_worker_that_begins = r"(?:.*error: cannot use Redis: .*\n)*"
        assert re.fullmatch(said_by_a_worker_that_begins + r"Redis cannot be used: .*\n", process.stderr.read())


def test_a_redis_that_is_not_there_is_said_in_one_line(tmp_path: Path) -> None:
    completed = begin(f"--database=unix://{tmp_path}/nobody.sock")
    assert (completed.returncode, completed.stdout) == (1, "")
    assert re.fullmatch(r"Redis cannot be used: .*\n", completed.stderr)


@pytest.mark.parametrize("argument", ["--database=localhost:x", "--workers=0", "--workers=many", "surplus"])
def test_a_wrong_argument_is_refused(argument: str) -> None:
    completed = begin(argument)
    assert (completed.returncode, completed.stdout) == (2, "")
    assert re.search(r"^example\.py: error: .*\n\Z", completed.stderr, re.MULTILINE)


def test_help_tells_the_options() -> None:
    completed = begin("--help")
    assert completed.returncode == 0
    assert re.findall(r"^  (--\w+)", completed.stdout, re.MULTILINE) == ["--database", "--workers", "--keep"]
