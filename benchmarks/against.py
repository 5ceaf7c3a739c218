"""Compare what a job costs in this checkout and at another commit, in turn and in one run: ``history.py --against``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median, quantiles

from environments import HERE
from server import Server

STEPS = [
    ("add", "add"),
    ("run, prefetch 1", "run 1"),
    ("add", "add"),
    ("run, prefetch 100", "run 100"),
    ("add", "add"),
    ("run, concurrency 100", "run 1 100"),
]
MARGIN = 100  # jobs before and after the measured ones, as many as are claimed at once
CLOCKS = ["wall time", "processor time of the client", "processor time of Redis"]


class Side:
    """A checkout, with a process that has imported it and a server of its own.

    Raises
    ------
    SystemExit
        If it cannot be run with what is installed here.
    """

    def __init__(self, name: str, checkout: Path, server: Server) -> None:
        self.name = name
        self.values: dict[tuple[str, str], list[float]] = {}
        # The same Python, redis-py and limpyd for both: only this library differs.
        paths = os.pathsep.join([str(checkout), str(HERE)])
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(HERE / "cost_subject.py"), str(server.port)],
            env={**os.environ, "PYTHONPATH": paths},
            cwd=checkout,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def take(self, words: str) -> list[float]:
        """Take a step; return what a job cost, by clock, in microseconds."""
        assert self._process.stdin
        assert self._process.stdout
        assert self._process.stderr
        try:
            print(words, file=self._process.stdin, flush=True)
            answer: list[float] = json.loads(self._process.stdout.readline())
        except (OSError, ValueError):
            reasons = self._process.stderr.read().strip().splitlines() or ["no reason given"]
            raise SystemExit(f"{self.name} cannot be measured with what is installed here: {reasons[-1]}") from None
        return answer

    def keep(self, label: str, costs: list[float]) -> None:
        """Keep what a job cost in a step."""
        for clock, cost in zip(CLOCKS, costs, strict=True):
            self.values.setdefault((label, clock), []).append(cost)

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """Check a commit out in a temporary folder.

    Raises
    ------
    SystemExit
        If that is not possible.
    """
    with tempfile.TemporaryDirectory(prefix="limpyd-jobs-against-") as folder:
        checkout = Path(folder) / "checkout"
        git("worktree", "add", "--quiet", "--detach", str(checkout), f"{commit}^{{commit}}", of=commit)
        try:
            yield checkout
        finally:
            git("worktree", "remove", "--force", str(checkout), of=commit)


def git(*words: str, of: str) -> None:
    """Run git in this repository."""
    try:
        done = subprocess.run(["git", "-C", str(HERE.parent), *words], capture_output=True, text=True)
    except OSError as error:
        raise SystemExit(f"{of} cannot be checked out, because git cannot be run: {error}") from None
    if done.returncode:
        raise SystemExit(f"{of} cannot be checked out: {done.stderr.strip().splitlines()[-1]}")


def compare(commit: str, binary: str, jobs: int, rounds: int, tolerance: float) -> bool:
    """Print what a job costs here and at a commit; return whether nothing is higher than the tolerance lets it be.

    Parameters
    ----------
    commit: str
    binary: str
        The program of the servers.
    jobs: int
        How many jobs to measure in each step.
    rounds: int
    tolerance: float
        How much higher the median of the ratios may be: 0.05 for 5 %.
    """
    with ExitStack() as stack:
        checkouts = {"here": HERE.parent, commit: stack.enter_context(checked_out(commit))}
        sides = [Side(name, path, stack.enter_context(Server(binary))) for name, path in checkouts.items()]
        for side in sides:
            stack.callback(side.end)
        measure(sides, jobs, rounds)
    return report(sides[0], sides[1], tolerance)


def measure(sides: list[Side], jobs: int, rounds: int) -> None:
    """Let both sides take all steps in turn. The first round is thrown away."""
    for number in range(rounds + 1):
        for label, words in STEPS:
            verb, *prefetch = words.split()
            step = " ".join([verb, str(jobs + 2 * MARGIN), *prefetch])
            for side in sides if number % 2 else sides[::-1]:
                costs = side.take(step)
                if number:
                    side.keep(label, costs)


def report(here: Side, there: Side, tolerance: float) -> bool:
    """Print a table; return whether nothing is higher than it may be."""
    print(
        "Microseconds a job. The ratio is the median of the ratios of neighboring steps, with the quartiles. It may be"
    )
    print(f"{1 + tolerance:g}: it is higher if the lower quartile is above 1, too.")
    print(f"{'':46} {here.name:>9} {there.name[:9]:>9}  ratio")
    is_good = True
    for key, values in here.values.items():
        ratios = [one / other for one, other in zip(values, there.values[key], strict=True)]
        ratio, (low, _, high) = median(ratios), quantiles(ratios * 2, n=4)
        is_higher = ratio > 1 + tolerance and low > 1
        is_good = is_good and not is_higher
        mark = "  HIGHER" if is_higher else ""
        costs = f"{median(values):9.1f} {median(there.values[key]):9.1f}"
        print(f"{', '.join(key):46} {costs}  {ratio:.3f} ({low:.3f} to {high:.3f}){mark}")
    return is_good
