"""``limpyd-jobs flows``: jobs that begin once others have ended, or go on once a signal comes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from limpyd.exceptions import DoesNotExist

from limpyd_jobs.commandline.options import for_verbs
from limpyd_jobs.commands.shared.options import COMMON_OPTIONS, DRY_RUN, JSON, JSONL, UNAUDITED, YES
from limpyd_jobs.commands.shared.verbs import Verb, VerbCommand
from limpyd_jobs.exceptions import LimpydJobsException
from limpyd_jobs.flows import Flow, FlowNode, FlowSummary, SentSignal, sent_signals
from limpyd_jobs.texts import count_of, one_line
from limpyd_jobs.views import cancel_flow, flow_rows, requeue_flow_in_words, shown_state
from limpyd_jobs.views.flows import (
    TAKEN,
    class_known,
    number_to_change,
    said_of_signal,
    signal,
    take_back,
    value_of_signal,
)

COLUMNS = ("flow", "state", "jobs", "open", "failed", "made (UTC)", "ended (UTC)", "id")
NODE_COLUMNS = ("number", "name", "state", "after", "ident", "reason")
SIGNAL_COLUMNS = ("signal", "state", "value")


class Flows(VerbCommand):
    """Exit status: 0; 1 if a signal was not taken, or you answered no; 2 if the command line is wrong, or names a flow,
    or a job, that does not exist, or no longer."""

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

Without a word, it lists. cancel and requeue count first, and ask."""
    examples = (
        "limpyd-jobs flows",
        "limpyd-jobs flows show report:7",
        "limpyd-jobs flows requeue report:7",
        "limpyd-jobs flows signal myapp.jobs.Payout:12 approval yes",
    )
    option_list = (
        *COMMON_OPTIONS,
        *for_verbs("cancel requeue", DRY_RUN, YES),
        *for_verbs("cancel requeue signal take-back", UNAUDITED),
        JSON,
        JSONL,
    )

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
        shown = [{**node._asdict(), "state": node.state} for node in nodes]
        self.print_list(shown, NODE_COLUMNS, map(_row_of_node, nodes), ("reason", "after"))

    def _cancel(self, words: Sequence[str]) -> int:
        def cancel(name: str) -> str:
            return "canceled" if cancel_flow(name, **self.how_audited) else "had ended before"

        return self._change("cancel", words, cancel)

    def _requeue(self, words: Sequence[str]) -> int:
        return self._change("requeue", words, lambda name: requeue_flow_in_words(name, **self.how_audited))

    def _change(self, verb: str, words: Sequence[str], act: Callable[[str], str]) -> int:
        """Count what would be changed of a flow, ask, and do it. With --yes, it is not counted first."""
        name = self._named(verb, words)
        if self.options.dry_run or not self.options.yes:
            number = number_to_change(verb, name)
            if self.options.dry_run:
                outcome = self.would_be(f"{verb.removesuffix('e')}ed")
                return self._print(outcome, f"{count_of(number, 'job')} {outcome}", jobs=number)
            if number and not self.is_sure(f"{verb} {count_of(number, 'job')} of the flow {one_line(name)}?"):
                return 1
        return self._print(act(name))

    def _signal(self, words: Sequence[str]) -> int:
        if len(words) not in (2, 3):
            self.parser.error("signal needs a flow or the ident of a job, the name of the signal, and maybe a value")
        to, name, *value = words
        outcome = signal(to, name, value_of_signal(value[0] if value else None), **self.how_audited)
        self._print(outcome, said_of_signal(outcome), **{"waits_for": outcome.waits_for} if outcome.waits_for else {})
        return 0 if outcome in TAKEN else 1

    def _signals(self, words: Sequence[str]) -> None:
        to = self._named("signals", words, "a flow, or the ident of a job,")
        with class_known(to):
            found = sent_signals(to)
        self.print_list(found, SIGNAL_COLUMNS, map(_row_of_signal, found), ())

    def _take_back(self, words: Sequence[str]) -> int:
        if len(words) != 2:
            self.parser.error("take-back needs a flow or the ident of a job, and the name of the signal")
        to, name = words
        is_done = take_back(to, name, **self.how_audited)
        self._print(*("taken back",) if is_done else ("asked", "not taken back: a job has it already"))
        return 0 if is_done else 1

    def _named(self, verb: str, words: Sequence[str], what: str = "the name or the id of a flow") -> str:
        if len(words) != 1:
            self.parser.error(f"{verb} needs {what} after it")
        return words[0]

    def _print(self, outcome: str, shown: str = "", **details: object) -> int:
        if not self.print_as_json({"outcome": outcome, **details}):
            print(shown or outcome)
        return 0


def _row(flow: FlowSummary) -> tuple[object, ...]:
    added, ended = (date.isoformat(" ", "seconds") if date else "" for date in (flow.added, flow.ended))
    label = f"{flow.id}, {flow.label}" if flow.spawner else flow.label
    state = f"held: {flow.turn}" if flow.state == "held" else shown_state(flow)
    return label, state, flow.size, flow.open, flow.failed, added, ended, flow.id


def _row_of_node(node: FlowNode) -> tuple[object, ...]:
    return node.number, node.name, node.state, node.after, node.ident, node.reason


def _row_of_signal(signal: SentSignal) -> tuple[object, ...]:
    state = "asked for" if signal.is_asked_for else "kept"
    return signal.name, state, json.dumps(signal.value, ensure_ascii=False)
