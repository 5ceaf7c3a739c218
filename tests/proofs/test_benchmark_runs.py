"""The benchmarks in short: they run, and write what they should. Nothing is timed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from docutils.core import publish_doctree

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import against  # noqa: E402
import history  # noqa: E402
from measured import Results  # noqa: E402
from measures import COLUMNS, MEASURES  # noqa: E402

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


def test_many_jobs_at_once_are_measured(redis_binary: str, tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "at_once.py"), "--redis-server", redis_binary, "--rounds=1"]
    options = ["--scale=0.02", "--only", "--loads=1", f"--results={tmp_path}"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for name in ("redis-limpyd-jobs 3", "one by one, --prefetch=100, coroutines", "renewing 20 leases", "kB"):
        assert name in done.stdout
    publish_doctree(done.stdout, settings_overrides={"report_level": 2, "halt_level": 2})


def compared(redis_binary: str, commit: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / "history.py"), "--redis-server", redis_binary, "--against", commit]
    return subprocess.run([*command, *options], capture_output=True, text=True, timeout=300)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is not a checkout")
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
class TestAgainstAnotherCommit:
    def test_tells_what_a_job_costs_at_both(self, redis_binary: str) -> None:
        done = compared(redis_binary, "HEAD", "--rounds=1", "--jobs=20", "--tolerance=99")
        assert done.returncode == 0, done.stdout + done.stderr
        rows = done.stdout.splitlines()[3:]
        assert [row.partition("time")[0] for row in rows[:6]] == [
            *("add, wall ", "add, processor ", "add, processor "),
            *("run, prefetch 1, wall ", "run, prefetch 1, processor ", "run, prefetch 1, processor "),
        ]
        assert len(rows) == 12

    def test_fails_if_a_cost_is_higher_than_it_may_be(self) -> None:
        here, there = (SimpleNamespace(name="", values={("add", "wall time"): costs}) for costs in ([3, 4], [2, 2]))
        assert not against.report(here, there, tolerance=0.5)
        assert against.report(here, there, tolerance=0.8)
        assert against.report(there, here, tolerance=0)

    def test_a_commit_that_is_unknown_or_cannot_be_run_is_named(
        self, redis_binary: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        done = compared(redis_binary, "no-such-commit")
        assert done.returncode == 1
        assert done.stderr.startswith("no-such-commit cannot be checked out: fatal: ")
        monkeypatch.setenv("PATH", "")
        with pytest.raises(SystemExit, match="HEAD cannot be checked out, because git cannot be run: "):
            against.compare("HEAD", redis_binary, 1, 1, 0)


def can_import(module: str) -> bool:
    try:
        import_module(module)
    except ImportError:
        return False
    return True
