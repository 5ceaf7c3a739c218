"""How large jobs are: what a new one is given, and what some of the stored ones take in Redis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from limpyd.model import RedisModel
from redis import Redis

from limpyd_jobs.arguments import own_size
from limpyd_jobs.texts import one_line, shortened, size_text

# How many bytes a job takes in Redis at least to be named.
LARGE = 1_000_000

# How many bytes are kept free for a note of what is left out.
NOTE = 50

# How many jobs of a class are looked at, at most, and of how many classes. It takes a few milliseconds.
SAMPLE = 100
CLASSES = 50

# How many fields of a job Redis looks at, at most; with fewer it only guesses.
FIELDS = 100


class LargeJobs(NamedTuple):
    """What is known of the large jobs of a class, from a sample: how many were looked at, how many are large, and the
    ident and size of the largest."""

    path: str
    looked_at: int
    jobs: int
    large: int
    largest: str
    size: int

    def __str__(self) -> str:
        looked_at = "all" if self.looked_at == self.jobs else f"{self.looked_at:,} of"
        return (
            f"{self.large:,} jobs of {one_line(self.path)} take more than {size_text(LARGE)} each ({looked_at} "
            f"{self.jobs:,} jobs were looked at), the largest one {size_text(self.size)}: {one_line(self.largest)}. "
            "max_job_bytes of the class refuses such jobs."
        )


def check_job_size(job_class: type[RedisModel], identifier: str, fields: Mapping[str, Any]) -> None:
    """Raise `ValueError` if the names and values of the fields of a new job have more bytes than `max_job_bytes`."""
    most = getattr(job_class, "max_job_bytes", None)
    if most is None or (most := own_size(most)) is None:
        return
    sizes = {
        name: stored_size(name) + stored_size(value) for name, value in {"identifier": identifier, **fields}.items()
    }
    total = sum(sizes.values())
    if total > most:
        largest = max(sizes, key=lambda name: sizes[name])
        raise ValueError(
            f"A {job_class.__name__} has at most {most:,} bytes (max_job_bytes), not {total:,}: its {largest!r} has "
            f"{sizes[largest]:,}"
        )


def stored_size(value: Any) -> int:
    """Return how many bytes a value has when it is stored: all members of it, with their keys and scores."""
    if isinstance(value, (bytes, bytearray)):
        return len(value)
    if isinstance(value, Mapping):
        return sum(stored_size(key) + stored_size(each) for key, each in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return sum(map(stored_size, value))
    return len(str(value).encode(errors="surrogatepass"))


def shortened_value(value: Any, most: int, *, is_scored: bool = False) -> Any:
    """Return a value for a field of any type, with at most some bytes, its keys and members together.

    Of a longer text the middle is left out. A member or a value of many has at most a quarter of the bytes; those at
    the end are left out, and the last one says how many.
    """
    if stored_size(value) <= most:
        return value
    if isinstance(value, str):
        return shortened(value, most)
    if isinstance(value, (bytes, bytearray)):
        return shortened(value.decode(errors="backslashreplace"), most)
    if isinstance(value, Mapping):
        pairs = dict(_first(value.items(), most))
        note = _left_out(value, pairs)
        return {**pairs, note: 0 if is_scored else ""} if note else pairs
    if isinstance(value, (list, tuple, set, frozenset)):
        members = _first(value, most)
        note = _left_out(value, members)
        return type(value)([*members, note] if note else members)
    return value


def _first(members: Iterable[Any], most: int) -> list[Any]:
    """Return the first members, each shortened, with so few bytes that a note fits behind them."""
    room, found = most - NOTE, []
    for member in members:
        if isinstance(member, tuple):
            short: Any = tuple(shortened_value(each, most // 4) for each in member)
        else:
            short = shortened_value(member, most // 4)
        room -= stored_size(short)
        if room < 0:
            break
        found.append(short)
    return found


def _left_out(value: Any, kept: Any) -> str:
    return f"… {len(value) - len(kept):,} more left out …" if len(kept) < len(value) else ""


def large_jobs(connection: Redis, names: Mapping[str, str]) -> Iterator[LargeJobs]:
    """Look at some jobs of each class, at random; yield what is known of those classes that have large ones."""
    some = dict(islice(names.items(), CLASSES))
    asked = [
        command
        for name in some.values()
        for command in (("SCARD", f"{name}:collection"), ("SRANDMEMBER", f"{name}:collection", SAMPLE))
    ]
    replies = iter(_replies(connection, asked))
    for (path, name), jobs, pks in zip(some.items(), replies, replies, strict=False):
        if isinstance(jobs, int) and isinstance(pks, (list, set)):
            keys = [f"{name}:{pk}:hash" for pk in pks]
            sizes = _replies(connection, [("MEMORY", "USAGE", key, "SAMPLES", FIELDS) for key in keys])
            found = {pk: size for pk, size in zip(pks, sizes, strict=True) if isinstance(size, int) and size > LARGE}
            if found:
                largest = max(found, key=lambda pk: found[pk])
                yield LargeJobs(path, len(keys), jobs, len(found), f"{path}:{largest}", found[largest])


def _replies(connection: Redis, commands: Iterable[tuple[Any, ...]]) -> list[Any]:
    pipeline: Any = connection.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    return list(pipeline.execute(raise_on_error=False))
