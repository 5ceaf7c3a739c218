"""``limpyd-jobs flows``: jobs that begin once others have ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from limpyd_jobs.commandline.options import for_verbs
from limpyd_jobs.commands.shared.options import COMMON_OPTIONS, JSON, JSONL, UNAUDITED
from limpyd_jobs.commands.shared.verbs import Verb, VerbCommand
from limpyd_jobs.exceptions import LimpydJobsException
from limpyd_jobs.flows import Flow, FlowNode, FlowSummary, flows_of

COLUMNS = ("flow", "state", "jobs", "open", "failed", "made (UTC)", "ended (UTC)", "id")
NODE_COLUMNS = ("number", "name", "state", "ident", "reason")


class Flows(VerbCommand):
    """Exit status: 0; 2 if the command line is wrong, or names a flow that does not exist, or no longer."""

    refusals = (*VerbCommand.refusals, LimpydJobsException)
    summary = "Show jobs that begin once others have ended, and cancel or requeue them together"
    words = """[list|show|cancel|requeue] [NAME] [options]

  list           those that run, and those that have ended and are kept, the last ones first
  show NAME      the jobs of one, by its name or its id
  cancel NAME    cancel all jobs of it that have not ended
  requeue NAME   put back the jobs of it that failed or were canceled; those after them wait for them again

Without a word, it lists."""
    examples = ("limpyd-jobs flows", "limpyd-jobs flows show report:7", "limpyd-jobs flows requeue report:7")
    option_list = (*COMMON_OPTIONS, *for_verbs("cancel requeue", UNAUDITED), JSON, JSONL)

    def verbs(self) -> Mapping[str, Verb]:
        return {"list": self._list, "show": self._show, "cancel": self._cancel, "requeue": self._requeue}

    def _list(self, words: Sequence[str]) -> None:
        if words:
            self.parser.error(f"unexpected argument: {words[0]!r}; list takes none")
        found = flows_of()
        self.print_list(found, COLUMNS, map(_row, found), ("ended (UTC)", "made (UTC)", "id"))

    def _show(self, words: Sequence[str]) -> None:
        nodes = self._flow("show", words).nodes()
        self.print_list(nodes, NODE_COLUMNS, map(_row_of_node, nodes), ("reason",))

    def _cancel(self, words: Sequence[str]) -> int:
        flow = self._flow("cancel", words)
        with self.audited("flows cancel", flow.name or flow.id, needs_room=True, refusals=self.refusals):
            was_open = flow.cancel()
        return self._print("canceled" if was_open else "had ended before")

    def _requeue(self, words: Sequence[str]) -> int:
        flow = self._flow("requeue", words)
        with self.audited("flows requeue", flow.name or flow.id, needs_room=True, refusals=self.refusals):
            flow.requeue()
        return self._print(f"{flow.state().open} jobs are open")

    def _flow(self, verb: str, words: Sequence[str]) -> Flow:
        if len(words) != 1:
            self.parser.error(f"{verb} needs the name or the id of a flow after it")
        return Flow.find(words[0])

    def _print(self, outcome: str) -> int:
        if not self.print_as_json({"outcome": outcome}):
            print(outcome)
        return 0


def _row(flow: FlowSummary) -> tuple[object, ...]:
    added, ended = (date.isoformat(" ", "seconds") if date else "" for date in (flow.added, flow.ended))
    state = "canceled" if flow.canceled and flow.state == "ended" else flow.state
    return flow.name or flow.id, state, flow.size, flow.open, flow.failed, added, ended, flow.id


def _row_of_node(node: FlowNode) -> tuple[object, ...]:
    return node.number, node.name, node.state, node.ident, node.reason
