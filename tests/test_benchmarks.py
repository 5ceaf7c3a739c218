"""What the benchmarks are made of; and by counts, what a job costs. Nothing is timed."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cases import each
from servers import free_port

from limpyd_jobs import Worker
from limpyd_jobs.classes.job_classes import path_of
from limpyd_jobs.models import BaseJobsModel, job_classes

ROOT = Path(__file__).parent.parent
BENCHMARKS = ROOT / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import growth  # noqa: E402
import inside  # noqa: E402
from environments import Peer, Unavailable, all_peers, prepare  # noqa: E402
from limits_and_flows import above  # noqa: E402
from measured import Results, Row  # noqa: E402
from report import details, summary  # noqa: E402
from server import Server  # noqa: E402


def results_of(rows: list[Row]) -> Results:
    machine = dict.fromkeys(["processor", "cores", "Redis", "Python"], "some")
    return Results("2026-01-01", machine, {"rounds": 1, "scale": 1}, rows)


class TestAPeer:
    @each("peer", all_peers().values())
    def test_is_a_file_that_says_what_it_is_and_has_the_functions(self, peer: Peer) -> None:
        assert all([peer.TITLE, peer.PACKAGE, peer.ADDING, peer.WORKERS])
        if not peer.NODE_REQUIREMENTS:
            tree = ast.parse((BENCHMARKS / "peers" / f"{peer.name}.py").read_text(encoding="utf-8"))
            functions = {each.name for each in tree.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))}
            assert {"setup", "add", "work"} <= functions

    def test_of_a_newer_python_is_shown_with_the_reason(self, tmp_path: Path) -> None:
        peer = Peer("peer", "Peer", "peer", "`add`", {"default": ""}, LEAST_PYTHON=[9, 1])
        with pytest.raises(Unavailable, match=r"it needs Python 9.1: run the benchmark with that one"):
            prepare(peer, tmp_path)

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


class TestJobsAboveTheirLimit:
    def test_are_counted_key_by_key(self) -> None:
        spans = [(1, 0.0, 2.0), (1, 1.0, 3.0), (1, 1.5, 4.0), (2, 1.0, 2.0), (1, 5.0, 6.0)]
        assert [above(spans, most) for most in (1, 2, 3)] == [2, 1, 0]

    def test_are_none_if_one_begins_as_another_ends(self) -> None:
        assert above([(1, 0.0, 1.0), (1, 1.0, 2.0)], 1) == 0

    def test_are_found_by_what_their_code_wrote(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(inside, "DIRECTORY", tmp_path)
        with inside.span(1), inside.span(1), inside.span(2):
            pass
        assert above(inside.read_spans(tmp_path), 1) == 1


def test_all_tables_are_made_of_what_was_measured() -> None:
    results = Results.read(BENCHMARKS / "results" / "benchmarks.json")
    for name, text in (("table.rst", summary(results)), ("details.rst", details(results))):
        assert (BENCHMARKS / "results" / name).read_text(encoding="utf-8") == text


JOBS = 10  # of which the costs are counted


@pytest.fixture
def server(redis_binary: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server as benchmarks use it, with the models on it. Workers do nothing there by the clock, and know no classes
    of other tests, which may have limits."""
    monkeypatch.setattr(job_classes, "_resolved", {path_of(growth.Nothing): growth.Nothing})
    monkeypatch.setattr("server.free_port", free_port)
    monkeypatch.setattr("limpyd_jobs.workers.loop.FIRST_SIGN", 3600.0)
    for name in ("fetch_priorities_delay", "fetch_delayed_delay", "lease"):
        monkeypatch.setattr(Worker, name, 3600)
    with Server(redis_binary) as server:
        database = BaseJobsModel.database
        database.connect(url=server.url)
        yield server
        database.connection.close()
        database.reset()


def cost(server: Server, load: growth.Load) -> dict[str, float]:
    """The commands of a job. Not the round trips: these are counted as reads, of which a new connection has some."""
    _, add_commands, _, run_commands = growth.count(server, load, JOBS)
    return {"add_commands": add_commands, "run_commands": run_commands}


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

    @pytest.mark.matrix(1)
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
