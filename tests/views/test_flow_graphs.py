"""The graph of a flow: what comes after what, by levels; many jobs are put together, and none is left out."""

from __future__ import annotations

import pytest
from flow_kinds import Page, Report

from limpyd_jobs import Flow, FlowNode, chain
from limpyd_jobs.flows import flows_of
from limpyd_jobs.views import FlowGraph, flow_graph, flow_rows, flows_named, place_in_flow
from limpyd_jobs.views.flows import MOST_BOXES, graph_of

pytestmark = pytest.mark.usefixtures("redis_client")


def node(number: int, after: str = "", kind: str = "Page", status: str = "s") -> FlowNode:
    return FlowNode(number, f"{kind} {number}", f"app.{kind}:{number}", status, after=after)


def shape(graph: FlowGraph) -> list[tuple[str, int, int]]:
    return [(box.name, box.level, box.row) for box in graph.boxes]


def test_a_job_stands_behind_all_that_it_comes_after() -> None:
    with Flow("report:7") as flow:
        first = flow.add(Page.prepare(), name="first")
        second = flow.add(Page.prepare(), name="second", after=first)
        flow.add(Report.prepare(), name="third", after=[first, second])
    flow._nodes[0].job.claim().succeed()
    graph = flow_graph(flow.id)
    assert shape(graph) == [("first", 0, 0), ("second", 1, 0), ("third", 2, 0)]
    assert graph.edges == [(0, 1), (0, 2), (1, 2)]
    assert graph.states == {"waiting": 1, "waiting for others": 1, "success": 1}
    assert [*graph.before(graph.nodes[2], 1)] == [["first"], 1]


def test_boxes_of_a_level_stand_beside_what_they_come_after() -> None:
    graph = graph_of([node(1), node(2), node(3, "2"), node(4, "1")])
    assert shape(graph)[2:] == [("Page 3", 1, 1), ("Page 4", 1, 0)]


def test_many_jobs_are_put_together_by_level_and_class_what_failed_first() -> None:
    nodes = [node(number) for number in range(1, 5001)]
    nodes[7] = node(8, status="e")
    nodes += [node(5001, "1-5000", "Report"), node(5002, "1-2500", "Mail")]
    graph = graph_of(nodes)
    assert graph.is_grouped
    assert [(box.name, box.number, box.state, box.level) for box in graph.boxes] == [
        ("Page", 5000, "error", 0),
        ("Mail", 1, "success", 1),
        ("Report", 1, "success", 1),
    ]
    assert graph.edges == [(0, 1), (0, 2)]


@pytest.mark.parametrize("classes", [1, 100])
def test_a_graph_is_never_too_large_to_read_and_counts_all(classes: int) -> None:
    nodes = [node(number, f"{number - 1}"[: number - 1], f"K{number % classes}") for number in range(1, 3001)]
    graph = graph_of(nodes)
    assert len(graph.boxes) <= MOST_BOXES
    assert sum(box.number for box in graph.boxes) == 3000
    assert len({box.level for box in graph.boxes}) > 1


def test_edges_that_another_program_wrote_do_no_harm() -> None:
    graph = graph_of([node(1, "2"), node(2, "1"), node(3, "9-7,1-999999999,x")])
    assert [box.level for box in graph.boxes] == [0, 1, 2]
    assert graph_of([]).boxes == []


def test_of_flows_that_run_those_in_which_something_failed_come_first() -> None:
    chain(Page.prepare(), name="ended").cancel()
    with Flow("bad") as bad:
        bad.add(Page.prepare())
        bad.add(Report.prepare())
    bad._nodes[0].job.claim().fail(ValueError("no paper"))
    chain(Page.prepare(), name="good")
    assert [each.name for each in flow_rows()] == ["bad", "good", "ended"]
    assert [each.name for each in flow_rows("OO")] == ["good"]
    assert {*flow_rows()} == {*flows_of()}


def test_a_flow_is_found_by_its_id_its_name_or_a_part_of_it() -> None:
    with Flow() as other:
        other.add(Page.prepare())
    flow = chain(Page.prepare(), name="report:7")
    for text in ("report:7", flow.id, "PORT"):
        assert [each.id for each in flows_named(text, 5)] == [flow.id]
    assert flows_named("nightly", 5) == []


def test_a_job_knows_its_place_in_its_flow() -> None:
    assert place_in_flow(Page.add_job().ident) is None
    with Flow() as flow:
        pages = [flow.add(Page.prepare()) for _ in range(7)]
        flow.add(Report.prepare(), after=pages)
    place = place_in_flow(flow._nodes[7].job.ident)
    assert place is not None
    assert (place.flow.id, place.node.name, len(place.before), place.others_before) == (flow.id, "Report", 5, 2)
    first = place_in_flow(pages[0].job.ident)
    assert first is not None
    assert [each.name for each in first.after] == ["Report"]
