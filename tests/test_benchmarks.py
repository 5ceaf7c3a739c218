"""The benchmarks in short: they run and write what they should. And by counts, what a job costs. Nothing is timed."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from statistics import median

import pytest
from docutils.core import publish_doctree

from limpyd_jobs.models import BaseJobsModel

ROOT = Path(__file__).parent.parent
BENCHMARKS = ROOT / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import growth  # noqa: E402
import history  # noqa: E402
from environments import Peer, Unavailable, all_peers, prepare  # noqa: E402
from measured import Results, Row  # noqa: E402
from measures import COLUMNS, MEASURES  # noqa: E402
from report import details, summary  # noqa: E402
from server import Server  # noqa: E402

OURS = "limpyd_jobs_3"
PLOTS = ["adding", "running", "latency", "memory", "commands", "round_trips"]


def run(redis_binary: str, results: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / "run.py"), "--redis-server", redis_binary, "--results", str(results)]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def written(request: pytest.FixtureRequest, redis_binary: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that a run of our own entry wrote, with tiny sizes; with ``--long`` with all kinds of workers."""
    directory = tmp_path_factory.mktemp("results")
    options = ["--scale=0.01", "--rounds=1", "--no-plots", "--only", OURS, "bare_rpush"]
    if not request.config.getoption("--long"):
        options += ["--variants", "default"]
    done = run(redis_binary, directory, *options)
    assert done.returncode == 0, done.stderr
    assert "round 1 run_2: redis-limpyd-jobs 3" in done.stderr
    assert done.stdout.strip() == (directory / "table.rst").read_text(encoding="utf-8").strip()
    return directory


class TestARun:
    def test_measures_everything_of_a_worker_as_it_comes(self, written: Path) -> None:
        row = Results.read(written / "benchmarks.json").entries[0]
        assert (row.peer, row.variant) == (OURS, "default")
        missing = {*COLUMNS} - {*row.values} - {"bulk"}  # whose reason is told, if the version has none
        assert missing - {"idle_cpu", "worker_cpu"} == set()  # which Linux tells only
        assert {column: len(values) for column, values in row.values.items()} == dict.fromkeys(row.values, 1)
        assert row.values.keys() == row.bare.keys()
        assert all(row.values[name][0] > 0 for name in ("add", "run_1", "run_2", "latency_p50", "latency_p99"))

    def test_tells_why_where_there_is_no_number(self, written: Path) -> None:
        for row in Results.read(written / "benchmarks.json").entries:
            for name, measure in MEASURES.items():
                for column in set(measure.columns) & set(row.values):
                    assert name not in row.failures, column
            assert all(row.failures.values())

    def test_counts_one_round_trip_for_adding_a_job(self, written: Path) -> None:
        row = Results.read(written / "benchmarks.json").entries[0]
        assert row.values["add_round_trips"] == row.values["add_commands"] == [1]

    def test_describes_the_machine_and_each_entry_without_names_and_paths(self, written: Path) -> None:
        text = (written / "benchmarks.json").read_text(encoding="utf-8")
        raw = json.loads(text)
        assert set(raw) == {"format", "date", "machine", "settings", "entries"}
        assert set(raw["machine"]) == {"processor", "cores", "system", "Python", "Redis", "transport"}
        assert all(entry["versions"] and entry["adding"] and entry["working"] for entry in raw["entries"])
        assert str(Path.home()) not in text
        assert str(ROOT) not in text

    @pytest.mark.parametrize("name", ["table.rst", "details.rst"])
    def test_writes_tables_that_render(self, written: Path, name: str) -> None:
        text = (written / name).read_text(encoding="utf-8")
        publish_doctree(text, settings_overrides={"report_level": 1, "halt_level": 1})
        assert "redis-limpyd-jobs 3" in text

    def test_draws_plots(self, written: Path, tmp_path: Path) -> None:
        pytest.importorskip("matplotlib")
        from plots import draw_results

        draw_results(Results.read(written / "benchmarks.json"), tmp_path)
        assert {path.name for path in tmp_path.iterdir()} == {
            f"{name}.{suffix}" for name in PLOTS for suffix in ("png", "svg")
        }

    def test_is_remembered_with_what_another_machine_finds_as_well(self, written: Path, tmp_path: Path) -> None:
        for _ in range(2):
            history.remember(Results.read(written / "benchmarks.json"), tmp_path)
        first, second = history.read(tmp_path)
        assert first == second
        assert {"add", "run_1", "run_2", "add_round_trips", "run_commands"} <= first["workers"]["default"].keys()
        pytest.importorskip("matplotlib")
        from plots import draw_history

        draw_history([first, second], tmp_path)
        assert (tmp_path / "history.png").stat().st_size


def results_of(rows: list[Row]) -> Results:
    machine = dict.fromkeys(["processor", "cores", "Redis", "Python"], "some")
    return Results("2026-01-01", machine, {"rounds": 1, "scale": 1}, rows)


class TestAPeer:
    @pytest.mark.parametrize("peer", all_peers().values(), ids=lambda peer: peer.name)
    def test_is_a_file_that_says_what_it_is_and_has_the_functions(self, peer: Peer) -> None:
        assert all([peer.TITLE, peer.PACKAGE, peer.ADDING, peer.WORKERS])
        if not peer.NODE_REQUIREMENTS:
            tree = ast.parse((BENCHMARKS / "peers" / f"{peer.name}.py").read_text(encoding="utf-8"))
            functions = {each.name for each in tree.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))}
            assert {"setup", "add", "work"} <= functions

    @pytest.mark.only_long
    def test_that_cannot_be_installed_is_shown_with_the_reason(self, tmp_path: Path) -> None:
        peer = Peer("peer", "Peer", "peer", "`add`", {"default": ""}, REQUIREMENTS=["/nowhere/at/all"])
        with pytest.raises(Unavailable, match=r"not installed: .*nowhere"):
            prepare(peer, tmp_path)
        results = results_of([])
        results.add_missing(peer, "not installed: no such thing in /home/ann/.cache/python3.12")
        assert "- Peer: ``not installed: no such thing in python3.12``" in summary(results)

    def test_that_wins_a_column_is_shown_winning_it_and_a_limit_is_not(self) -> None:
        def row(title: str, is_limit: bool = False, **values: float) -> Row:
            found = {name: [value] for name, value in values.items()}
            return Row(title, "default", title, "", "", {}, is_limit, found, found)

        rows = [row("ours", add=5, bytes=7), row("theirs", add=6, bytes=8), row("limit", is_limit=True, add=9, bytes=1)]
        text = summary(results_of(rows))
        assert "**6**" in text
        assert "**7**" in text
        assert text.count("**") == 4


def test_all_tables_are_made_of_what_was_measured() -> None:
    results = Results.read(BENCHMARKS / "results" / "benchmarks.json")
    for name, text in (("table.rst", summary(results)), ("details.rst", details(results))):
        assert (BENCHMARKS / "results" / name).read_text(encoding="utf-8") == text


JOBS = 10  # of which the costs are counted


@pytest.fixture
def server(redis_binary: str) -> Iterator[Server]:
    """A server as benchmarks use it, with the models on it."""
    with Server(redis_binary) as server:
        database = BaseJobsModel.database
        database.connect(url=server.url)
        yield server
        database.connection.close()
        database.reset()


def cost(server: Server, load: growth.Load) -> dict[str, float]:
    """The commands of a job. Not the round trips: these are counted as reads, of which a new connection has some.

    The median of five counts: what a worker does each second, or its heartbeat, may fall into one.
    """
    counts = [growth.count(server, load, JOBS) for _ in range(5)]
    return {"add_commands": median(each[1] for each in counts), "run_commands": median(each[3] for each in counts)}


def sent(server: Server, action: Callable[[int, growth.Load], None], load: growth.Load) -> float:
    """How many commands a client sends for each job more."""
    numbers = []
    for jobs in (JOBS, 2 * JOBS):
        with server.counting() as counts:
            action(jobs, load)
        numbers.append(counts.commands)
    return (numbers[1] - numbers[0]) / JOBS


class TestTheCostOfAJob:
    """In counts of what is sent to Redis, and of what scripts call there."""

    def test_is_one_round_trip_to_add_and_one_to_run(self, server: Server) -> None:
        load = growth.one_queue()
        growth.add(1, load)  # scripts are loaded, and the class of the jobs is known
        growth.run(1, load)
        assert sent(server, growth.add, load) == 1
        assert sent(server, growth.run, load) == 1

    def test_leaves_out_what_a_new_connection_takes(self, server: Server) -> None:
        load = growth.one_queue()
        growth.add(1, load)
        BaseJobsModel.database.connection.connection_pool.disconnect()
        with server.counting() as counts:
            growth.add(3, load)
        assert counts.commands == 3

    @pytest.mark.parametrize("options", [{}, {"delayed_for": growth.DAY}], ids=["waiting", "delayed"])
    def test_is_the_same_beside_ten_jobs_and_beside_two_thousand(self, server: Server, options: dict[str, int]) -> None:
        load = growth.one_queue()
        growth.fill(10, load, **options)
        few = cost(server, load)
        growth.fill(1_990, load, **options)
        assert cost(server, load) == few

    def test_is_the_same_beside_finished_jobs_that_are_kept(self, server: Server) -> None:
        load = growth.one_queue()
        few = cost(server, load)
        growth.fill(300, load)
        growth.run(300, load)
        assert cost(server, load) == few

    @pytest.mark.parametrize("several", [growth.several_names, growth.several_priorities])
    def test_in_two_hundred_queues_is_a_look_or_more_for_each_stretch_of_empty_ones(
        self, server: Server, several: growth.Several
    ) -> None:
        one = cost(server, several(1))
        server.empty()
        many = cost(server, several(200))
        assert many["add_commands"] == one["add_commands"]
        # the first 4 lists are looked into, the others asked about in 4 stretches, and one of these by halves
        assert many["run_commands"] <= one["run_commands"] + 4 + 4 + 6


def test_integrations_are_measured_beside_their_own_stores(redis_binary: str) -> None:
    command = [sys.executable, str(BENCHMARKS / "integrations.py"), "--redis-server", redis_binary]
    done = subprocess.run([*command, "--jobs=3", "--many=5", "--rounds=1"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for system, module, ratios in [
        ("APScheduler", "apscheduler.jobstores.redis", 11),
        ("TaskFlow", "taskflow.jobs.backends.impl_redis", 5),
    ]:
        if can_import(module):
            assert done.stdout.partition(f"\n{system} ")[2].count("x") >= ratios
        else:
            assert f"{system} is not measured, because not all of it can be imported: " in done.stdout
    publish_doctree(done.stdout, settings_overrides={"report_level": 2, "halt_level": 2})


def can_import(module: str) -> bool:
    try:
        import_module(module)
    except ImportError:
        return False
    return True
