"""Find words that are gone, in the package, its documents and the names of tests: ``python scripts/words.py``.

A word that is right somewhere, such as "host" or "found", is for the reader, and not in these lists.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILES = (
    "limpyd_jobs/**/*.py",
    "limpyd_jobs/**/*.lua",
    "docs/**/*.rst",
    "*.rst",
    "scripts/*.py",
    "*.py",
    "benchmarks/*.py",
)
TESTS = "tests/**/*.py"

# Exact identifiers: what to use instead.
IDENTIFIERS = {
    "Fetcher": "Claimer",
    "Figures": "Metrics",
    "IN_HAND": "ONLY_TAKEN",
    "Intake": "Waiter",
    "Living": "AlivePresence",
    "LivingWorker": "AliveWorker",
    "Outages": "RedisRetry",
    "VIGILANCE": "WITHOUT_SIGNALS_FOR",
    "_engine": "a part, given by name",
    "_withdraw": "cancel, release",
    "chores": "tasks",
    "does_tell": "does_notify",
    "give_back": "release",
    "hand_over": "accept, release",
    "has_a_say": "overrides_hook",
    "is_buffered": "is_unrecorded",
    "is_in_hand": "is_only_taken",
    "is_homeless": "is_unplaceable",
    "is_passing": "is_transient_status",
    "let_go": "abandon",
    "may_buffer": "may_record_later",
    "outages": "recorder",
    "read_figures": "read_metrics",
    "stranger": "unresolved",
    "strangers": "unresolved",
    "stray": "stale, of an index; orphan, of a job",
    "tell_changes": "notify_of_changes",
    "tells_changes": "notify_changes",
    "tell_status": "notify_status",
    "unfit": "invalid",
    "unordinary_kind": "unrun_kind",
    "write_figures": "write_metrics",
    **{
        f"MOST_{what}": f"MAX_{what}"
        for what in ("ERRORS", "GROUPS", "LINES", "NAMES", "ORDERS", "PATHS", "SWEPT", "VALUES")
    },
}

# Exact phrases, in any case: what to write instead.
PHRASES = {
    "anybody": "any process, whoever",
    "as far as is known": "that is known",
    "as its worker": "because its worker",
    "as this worker cannot": "because this worker cannot",
    "at the most": "at most",
    "cannot be had": "cannot be imported",
    "guest": "integration",
    "guests": "integrations",
    "has no job in hand": "is idle",
    "in no place at all": "nowhere",
    "is no address": "is not an address",
    "limpyd-jobs hosts": "limpyd-jobs integrations",
    "made to be copied": "copy from it",
    "means nothing to": "is not supported by",
    "nobody": "no process, no worker",
    "so many seconds": "a number of seconds",
    "somebody": "a process, a worker, another owner",
    "told once for": "logged once per",
    "which is none": "which is not a …",
}

# Where a word is right all the same.
EXCEPTIONS = {"scripts/words.py": {*IDENTIFIERS, *PHRASES}}


def main() -> int:
    found = [*findings()]
    print(*found, sep="\n" if found else "", end="\n" if found else "")
    return 1 if found else 0


def findings() -> Iterator[str]:
    """Yield a line for each word that is gone: where it is, and what to write instead."""
    patterns = {word: (re.compile(rf"\b{word}\b"), instead) for word, instead in IDENTIFIERS.items()}
    for phrase, instead in PHRASES.items():
        spaced = r"[\s#*-]+".join(map(re.escape, phrase.split()))  # also over the end of a line, in a comment
        patterns[phrase] = (re.compile(rf"(?<![^\W_]){spaced}(?![^\W_])", re.IGNORECASE), instead)
    rarest = {word: max(word.lower().split(), key=len) for word in patterns}  # where it is not, no pattern need look
    for path, text in texts():
        lowered, exceptions = text.lower(), EXCEPTIONS.get(path, ())
        for word in (word for word in patterns if rarest[word] in lowered and word not in exceptions):
            pattern, instead = patterns[word]
            for match in pattern.finditer(text):
                yield f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {word!r} is gone: {instead}"


def texts() -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each file; of a file of tests only its names, each in its line."""
    for pattern in (*FILES, TESTS):
        for path in sorted(ROOT.glob(pattern)):
            if "_build" not in path.parts:
                text = path.read_text(encoding="utf-8")
                shown = path.relative_to(ROOT).as_posix()
                yield shown, shown + names_of(text) if pattern == TESTS else text


def names_of(text: str) -> str:
    return "\n".join(re.match(r"\s*(?:def|class) (\w+)|", line)[1] or "" for line in text.splitlines())


if __name__ == "__main__":
    sys.exit(main())
