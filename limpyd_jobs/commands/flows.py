"""``limpyd-jobs flows``: jobs that begin once others have ended, or go on once a signal comes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from limpyd.exceptions import DoesNotExist

from limpyd_jobs.commandline.options import for_verbs
from limpyd_jobs.commands.shared.options import COMMON_OPTIONS, JSON, JSONL, UNAUDITED
from limpyd_jobs.commands.shared.verbs import Verb, VerbCommand
from limpyd_jobs.exceptions import LimpydJobsException
from limpyd_jobs.flows import Flow, FlowNode, FlowSummary, SignalOutcome, send_signal
from limpyd_jobs.texts import MESSAGE, one_line
from limpyd_jobs.views import cancel_flow, flow_rows, requeue_flow, shown_state

COLUMNS = ("flow", "state", "jobs", "open", "failed", "made (UTC)", "ended (UTC)", "id")
NODE_COLUMNS = ("number", "name", "state", "after", "ident", "reason")

# What is said of a signal that was sent.
SIGNALED = {
    "received": "sent: what waited for it goes on",
    "kept": "kept: nothing waits for it yet",
    "already": "not sent: another one of that name was sent before, which counts",
    "late": "not sent: the job waited for it in vain",
    "ended": "not sent: it has ended",
}


class Flows(VerbCommand):
    """Exit status: 0; 1 if a signal was not taken; 2 if the command line is wrong, or names a flow, or a job, that does
    not exist, or no longer."""

    refusals = (*VerbCommand.refusals, LimpydJobsException, DoesNotExist)
    summary = "Show jobs that begin once others have ended, cancel or requeue them together; send signals"
    words = """[list|show|cancel|requeue|signal] [NAME] [options]

  list           those that run, first those in which something failed; then those that have ended and are kept
  show NAME      the jobs of one, by its name or its id
  cancel NAME    cancel all jobs of it that have not ended
  requeue NAME   put back the jobs of it that failed or were canceled; those after them wait for them again
  signal NAME|IDENT SIGNAL [VALUE]
                 send a signal to the jobs of a flow, or to one job, that wait for it, or will; the value is JSON, or
                 else a text

Without a word, it lists."""
    examples = (
        "limpyd-jobs flows",
        "limpyd-jobs flows show report:7",
        "limpyd-jobs flows requeue report:7",
        "limpyd-jobs flows signal myapp.jobs.Payout:12 approval yes",
    )
    option_list = (*COMMON_OPTIONS, *for_verbs("cancel requeue signal", UNAUDITED), JSON, JSONL)

    def verbs(self) -> Mapping[str, Verb]:
        return {
            "list": self._list,
            "show": self._show,
            "cancel": self._cancel,
            "requeue": self._requeue,
            "signal": self._signal,
        }

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

    def _signal(self, words: Sequence[str]) -> int:
        if len(words) not in (2, 3):
            self.parser.error("signal needs a flow or the ident of a job, the name of the signal, and maybe a value")
        to, name, value = words[0], words[1], _value_of(*words[2:])
        with self.audited("flows signal", f"{to} {name}", needs_room=True, refusals=self.refusals) as entry:
            outcome = _sent(to, name, value)
            is_taken = outcome in ("received", "kept")
            if not is_taken:
                entry.numbers, entry.outcome = {"refused": 1}, f"refused: {SIGNALED[outcome]}"
        self._print(outcome, SIGNALED[outcome])
        return 0 if is_taken else 1

    def _named(self, verb: str, words: Sequence[str]) -> str:
        if len(words) != 1:
            self.parser.error(f"{verb} needs the name or the id of a flow after it")
        return words[0]

    def _print(self, outcome: str, shown: str = "") -> int:
        if not self.print_as_json({"outcome": outcome}):
            print(shown or outcome)
        return 0


def _sent(to: str, name: str, value: Any) -> SignalOutcome:
    try:
        return send_signal(to, name, value)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"The class of {one_line(to)} cannot be imported: {one_line(error, MESSAGE)}") from error


def _value_of(text: str | None = None) -> Any:
    """Return the value of a word: what it is as JSON, else the text."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def _row(flow: FlowSummary) -> tuple[object, ...]:
    added, ended = (date.isoformat(" ", "seconds") if date else "" for date in (flow.added, flow.ended))
    label = f"{flow.id}, {flow.label}" if flow.spawner else flow.label
    return label, shown_state(flow), flow.size, flow.open, flow.failed, added, ended, flow.id


def _row_of_node(node: FlowNode) -> tuple[object, ...]:
    return node.number, node.name, node.state, node.after, node.ident, node.reason
