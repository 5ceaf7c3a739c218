"""What helps now: the verbs, with what to type instead."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

from limpyd_jobs.query.attention.values import Remedy
from limpyd_jobs.query.queues import QueueState
from limpyd_jobs.texts import count_of, one_line

# How many jobs are requeued in a second.
RATE = 50.0

# How many queues a command names at most.
MAX_NAMED = 20


def requeue(queues: Sequence[str], fingerprint: str, number: int, *, is_exact: bool, note: str) -> Remedy | None:
    """Return the verb for the jobs of some queues that are in error by a cause, if failures have stopped there. Without
    names, it is for those of all queues; there is none for names that a condition cannot have."""
    of_queues, condition = "" if len(queues) < 2 else f" of {count_of(len(queues), 'queue')}", condition_of(queues)
    if condition is None:
        return None
    return Remedy(
        "requeue",
        f"Requeue {number:,}{'' if is_exact else ' or more'}{of_queues} at {RATE:.0f}/s",
        " ".join(filter(None, ["limpyd-jobs errors requeue", quote(fingerprint), condition, f"--rate={RATE:.0f}/s"])),
        fingerprint=fingerprint,
        number=number,
        is_exact=is_exact,
        rate=RATE,
        note=note,
    )


def condition_of(queues: Sequence[str]) -> str | None:
    """Return the condition, in quotes for a shell, that finds what is in some queues: empty without names, None for
    names that it cannot have."""
    if len(queues) < 2:
        return quote(f"queue={queues[0]}") if queues else ""
    return None if any("," in name for name in queues) else quote(f"queue__in={','.join(queues)}")


def pause(states: Sequence[QueueState]) -> Remedy:
    """Return the verb for queues whose tries fail now."""
    return _on_queues("pause", "Pause", [(each.model, each.name) for each in states])


def resume(states: Sequence[QueueState], note: str = "") -> Remedy:
    """Return the verb for queues that are paused."""
    return _on_queues("resume", "Unpause", [(each.model, each.name) for each in states])._replace(note=note)


def start(names: Sequence[str], label: str = "Start a worker") -> Remedy:
    """Return the verb for queues that no worker serves, or too few do."""
    named = [*dict.fromkeys(names)]
    queues = quote(",".join(named[:MAX_NAMED]))
    note = f"for {count_of(MAX_NAMED, 'queue')} of {len(named):,}" if len(named) > MAX_NAMED else ""
    return Remedy("start", label, f"limpyd-jobs-worker --queues={queues}", note=note)


def of_all(remedies: Sequence[Remedy], queues: Sequence[str]) -> Remedy | None:
    """Return the verb for all incidents of a kind, given that of each, and the queues; None if they have not the
    same."""
    first = remedies[0]
    if {each.verb for each in remedies} == {"requeue"} and len({each.fingerprint for each in remedies}) == 1:
        number, is_exact = sum(each.number for each in remedies), all(each.is_exact for each in remedies)
        names = [*dict.fromkeys(queues)]
        return requeue(names, first.fingerprint, number, is_exact=is_exact, note="")
    pairs = [pair for each in remedies for pair in each.queues]
    if {each.verb for each in remedies} in ({"pause"}, {"resume"}):
        return _on_queues(first.verb, first.label.partition(" ")[0], pairs)
    return None


def _on_queues(verb: str, word: str, queues: Sequence[tuple[str, str]]) -> Remedy:
    pairs = [*dict.fromkeys(queues)]
    names = [*dict.fromkeys(name for _, name in pairs)]
    what = one_line(names[0]) if len(names) == 1 else count_of(len(names), "queue")
    command = f"limpyd-jobs queues {verb} {' '.join(map(quote, names[:MAX_NAMED]))}"
    note = f"the command has {MAX_NAMED} of {len(names):,} queues" if len(names) > MAX_NAMED else ""
    return Remedy(verb, f"{word} {what}", command, queues=pairs, note=note)
