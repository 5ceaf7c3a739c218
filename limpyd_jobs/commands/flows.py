"""``limpyd-jobs flows``: jobs that begin once others have ended, or go on once a signal comes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from limpyd.exceptions import DoesNotExist

from limpyd_jobs.commandline.options import for_verbs
from limpyd_jobs.commands.shared.options import COMMON_OPTIONS, JSON, JSONL, UNAUDITED
from limpyd_jobs.commands.shared.verbs import Verb, VerbCommand
from limpyd_jobs.exceptions import LimpydJobsException
from limpyd_jobs.flows import Flow, FlowNode, FlowSummary, SentSignal, send_signal, sent_signals, take_back_signal
from limpyd_jobs.texts import MESSAGE, one_line
from limpyd_jobs.views import cancel_flow, flow_rows, requeue_flow, shown_state

COLUMNS = ("flow", "state", "jobs", "open", "failed", "made (UTC)", "ended (UTC)", "id")
NODE_COLUMNS = ("number", "name", "state", "after", "ident", "reason")
SIGNAL_COLUMNS = ("signal", "state", "value")

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
    words = """[list|show|cancel|requeue|signal|signals|take-back] [NAME] [options]

  list           those that run, first those in which something failed; then those that have ended and are kept
  show NAME      the jobs of one, by its name or its id
  cancel NAME    cancel all jobs of it that have not ended
  requeue NAME   put back the jobs of it that failed or were canceled; those after them wait for them again
  signal NAME|IDENT SIGNAL [VALUE]
                 send a signal to the jobs of a flow, or to one job, that wait for it, or will; the value is JSON, or
                 else a text
  signals NAME|IDENT
                 those that were sent
  take-back NAME|IDENT SIGNAL
                 forget one that no job has asked for yet, as it was sent by mistake

Without a word, it lists."""
    examples = (
        "limpyd-jobs flows",
        "limpyd-jobs flows show report:7",
        "limpyd-jobs flows requeue report:7",
        "limpyd-jobs flows signal myapp.jobs.Payout:12 approval yes",
    )
    option_list = (*COMMON_OPTIONS, *for_verbs("cancel requeue signal take-back", UNAUDITED), JSON, JSONL)

    def verbs(self) -> Mapping[str, Verb]:
        return {
            "list": self._list,
            "show": self._show,
            "cancel": self._cancel,
            "requeue": self._requeue,
            "signal": self._signal,
            "signals": self._signals,
            "take-back": self._take_back,
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
            with _class_known(to):
                outcome = send_signal(to, name, value)
            is_taken = outcome in ("received", "kept")
            if not is_taken:
                entry.numbers, entry.outcome = {"refused": 1}, f"refused: {SIGNALED[outcome]}"
        if outcome.waits_for:
            shown = f"kept, but what waits does so for {outcome.waits_for!r}: see limpyd-jobs flows take-back"
            self._print(outcome, shown, waits_for=outcome.waits_for)
        else:
            self._print(outcome, SIGNALED[outcome])
        return 0 if is_taken else 1

    def _signals(self, words: Sequence[str]) -> None:
        to = self._named("signals", words, "a flow, or the ident of a job,")
        with _class_known(to):
            found = sent_signals(to)
        self.print_list(found, SIGNAL_COLUMNS, map(_row_of_signal, found), ())

    def _take_back(self, words: Sequence[str]) -> int:
        if len(words) != 2:
            self.parser.error("take-back needs a flow or the ident of a job, and the name of the signal")
        to, name = words
        with self.audited("flows take-back", f"{to} {name}", needs_room=True, refusals=self.refusals) as entry:
            with _class_known(to):
                is_done = take_back_signal(to, name)
            if not is_done:
                entry.numbers, entry.outcome = {"refused": 1}, "refused: a job has it already"
        self._print(
            "taken back" if is_done else "asked", "taken back" if is_done else "not taken back: a job has it already"
        )
        return 0 if is_done else 1

    def _named(self, verb: str, words: Sequence[str], what: str = "the name or the id of a flow") -> str:
        if len(words) != 1:
            self.parser.error(f"{verb} needs {what} after it")
        return words[0]

    def _print(self, outcome: str, shown: str = "", **details: str) -> int:
        if not self.print_as_json({"outcome": outcome, **details}):
            print(shown or outcome)
        return 0


@contextmanager
def _class_known(to: str) -> Iterator[None]:
    try:
        yield
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


def _row_of_signal(signal: SentSignal) -> tuple[object, ...]:
    state = "asked for" if signal.is_asked_for else "kept"
    return signal.name, state, json.dumps(signal.value, ensure_ascii=False)
