"""``limpyd-jobs flows``: jobs that begin once others have ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from limpyd_jobs.commandline.options import for_verbs
from limpyd_jobs.commands.shared.options import COMMON_OPTIONS, JSON, JSONL, UNAUDITED
from limpyd_jobs.commands.shared.verbs import Verb, VerbCommand
from limpyd_jobs.exceptions import LimpydJobsException
from limpyd_jobs.flows import Flow, FlowNode, FlowSummary
from limpyd_jobs.views import cancel_flow, flow_rows, requeue_flow, shown_state

COLUMNS = ("flow", "state", "jobs", "open", "failed", "made (UTC)", "ended (UTC)", "id")
NODE_COLUMNS = ("number", "name", "state", "after", "ident", "reason")


class Flows(VerbCommand):
    """Exit status: 0; 2 if the command line is wrong, or names a flow that does not exist, or no longer."""

    refusals = (*VerbCommand.refusals, LimpydJobsException)
    summary = "Show jobs that begin once others have ended, and cancel or requeue them together"
    words = """[list|show|cancel|requeue] [NAME] [options]

  list           those that run, first those in which something failed; then those that have ended and are kept
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
        found = flow_rows()
        self.print_list(found, COLUMNS, map(_row, found), ("ended (UTC)", "made (UTC)", "id"))

    def _show(self, words: Sequence[str]) -> None:
        nodes = Flow.find(self._named("show", words)).nodes()
        self.print_list(nodes, NODE_COLUMNS, map(_row_of_node, nodes), ("reason", "after"))

    def _cancel(self, words: Sequence[str]) -> int:
        was_open = cancel_flow(self._named("cancel", words), **self.how_audited)
        return self._print("canceled" if was_open else "had ended before")

    def _requeue(self, words: Sequence[str]) -> int:
        return self._print(f"{requeue_flow(self._named('requeue', words), **self.how_audited)} jobs are open")

    def _named(self, verb: str, words: Sequence[str]) -> str:
        if len(words) != 1:
            self.parser.error(f"{verb} needs the name or the id of a flow after it")
        return words[0]

    def _print(self, outcome: str) -> int:
        if not self.print_as_json({"outcome": outcome}):
            print(outcome)
        return 0


def _row(flow: FlowSummary) -> tuple[object, ...]:
    added, ended = (date.isoformat(" ", "seconds") if date else "" for date in (flow.added, flow.ended))
    return flow.name or flow.id, shown_state(flow), flow.size, flow.open, flow.failed, added, ended, flow.id


def _row_of_node(node: FlowNode) -> tuple[object, ...]:
    return node.number, node.name, node.state, node.after, node.ident, node.reason
