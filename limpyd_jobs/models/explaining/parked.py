"""Which limits keep a job from beginning that is parked, in sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from shlex import quote
from typing import Any

from limpyd_jobs.classes.job_classes import job_classes
from limpyd_jobs.dates import span
from limpyd_jobs.idents import Ident
from limpyd_jobs.limiting.limit import Limit, key_of, prefix_of, ways_of
from limpyd_jobs.limiting.live import LiveLimit, is_left_to_elder, limits_in, words_of
from limpyd_jobs.records.known_classes import known_classes, names_by_path
from limpyd_jobs.search.classes import replies_to
from limpyd_jobs.texts import one_line
from limpyd_jobs.transitions import owner_of

# How many jobs that hold a slot are named, and how many characters of a value.
MOST_NAMED, LONGEST_VALUE = 3, 100

Told = tuple[str, str, str]  # as of a `Reason`


def reasons_of_parked(
    connection: Any, ident: str, queue_key: str, stored: Mapping[str, str], mask: Callable[[str, str], str]
) -> Iterator[Told]:
    """Yield why a job is parked in a queue: the code, the text and the command of each reason."""
    job_class = known_classes(connection, job_classes.all()).get(Ident.of(ident).path)
    limits = [each for each in job_class.limits if each.field is None or stored.get(each.field)] if job_class else []
    if job_class is None or not limits:
        yield "parked", "A limit keeps it from beginning: it is parked, and begins as soon as it may.", ""
        return
    model, _, _ = queue_key.rpartition(":")
    keys = [_key(job_class.name, model, limit, stored) for limit in limits]
    told = [
        each
        for limit, key in zip(limits, keys, strict=True)
        for each in _of_limit(connection, model, limit, key, _label(limit, stored, mask), job_class.path)
    ]
    yield from told or [("parked", "It was parked for a limit that has room now: the next worker begins it.", "")]
    yield from _of_lane(connection, queue_key, "\n".join(keys) + ways_of(job_class.limits), ident)


def _key(job_model: str, queue_model: str, limit: Limit, stored: Mapping[str, str]) -> str:
    owner = queue_model if limit.name else job_model
    return prefix_of(owner, limit) if limit.field is None else key_of(owner, limit, stored[limit.field])


def _label(limit: Limit, stored: Mapping[str, str], mask: Callable[[str, str], str]) -> str:
    if limit.field is None:
        return limit.label
    return f"{limit.label}={one_line(mask(limit.field, stored[limit.field]), LONGEST_VALUE)}"


def _of_limit(connection: Any, queue_model: str, limit: Limit, key: str, label: str, path: str) -> Iterator[Told]:
    prefix = key[: key.index(":_limit:")] + f":_limit:{limit.label}"
    asked = (
        ("TIME",),
        ("HMGET", f"{queue_model}:_limits", prefix, key, "\nelder"),
        ("GET", f"{key}:rate"),
        ("ZRANGEBYSCORE", f"{key}:slots", "-inf", "+inf", "WITHSCORES"),
    )
    (now, microseconds), texts, rate, slots = replies_to(connection, asked)
    of_all, of_key, elder = texts or (None, None, None)
    live, moment = LiveLimit.of(limit, words_of(of_all), words_of(of_key)), now + microseconds / 1e6
    holders = [ident for ident, ends in _pairs(slots or ()) if ends > moment]
    rests, free_in = live.rests_for(moment), live.free_in(rate, moment)
    if rests == inf:
        words = f"limits resume {path} {quote(label)}"
        yield "limit_paused", f"The limit {label} is paused: limpyd-jobs {words}", f"limpyd-jobs {words}"
    elif rests:
        yield "limit_rests", f"The limit {label} rests for {span(rests)}.", ""
    elif live.allowed == 0:
        command = f"limpyd-jobs limits set {path} {quote(label)} concurrency=1"
        yield "limit_zero", f"The limit {label} is 0: no job of it begins until that is more: {command}", command
    elif live.allowed is not None and len(holders) >= live.allowed:
        yield (
            "limit_full",
            f"{len(holders):,} of {live.allowed:,} jobs of {label} run: {_named(connection, holders)}.",
            "",
        )
    elif free_in:
        yield "limit_rate", f"The rate of {label} is used up: the next job may begin in {span(free_in)}.", ""
    elif is_left_to_elder(key, elder, moment) and live.allowed == len(holders) + 1:
        yield (
            "limit_left",
            f"A slot of {label} is left to a job that waits for several limits, and was passed over.",
            "",
        )


def _pairs(replies: Sequence[Any]) -> list[tuple[str, float]]:
    if replies and isinstance(replies[0], (list, tuple)):
        return [(ident, float(score)) for ident, score in replies]
    return [(ident, float(score)) for ident, score in zip(replies[::2], replies[1::2], strict=True)]


def _named(connection: Any, holders: Sequence[str]) -> str:
    """Return the names of some jobs that hold a slot, and of their workers."""
    named, names = [], names_by_path(connection)
    for ident in holders[:MOST_NAMED]:
        name = names.get(Ident.of(ident).path)
        key = name and f"{name}:{Ident.of(ident).pk}:hash"
        token = replies_to(connection, [("HGET", key, "_claim_token")])[0] if key else None
        named.append(f"{ident}, by {owner_of(token) or 'a worker'}" if token else ident)
    more = len(holders) - len(named)
    return "; ".join(named) + (f"; and {more:,} more" if more > 0 else "")


def _of_lane(connection: Any, queue_key: str, lane: str, ident: str) -> Iterator[Told]:
    pk = Ident.of(ident).pk
    places = [f"{queue_key}:_turns", *(f"{queue_key}:_blocked\n{key}" for key in limits_in(lane))]
    asked = [("ZRANK", f"{queue_key}:_lane\n{lane}", f"{pk.rjust(18, '0')} {ident}")]
    last, before, *turns = replies_to(
        connection, [("ZRANK", places[0], "\n"), *asked, *(("ZRANK", place, lane) for place in places)]
    )
    if turns[0] is not None and last is not None and last < turns[0]:
        turns[0] -= 1  # that is no lane, but the last turn
    turn = next((number for number in turns if number is not None), 0)
    if turn:
        have = "key has its turn" if turn == 1 else "keys have their turns"
        yield "parked_turn", f"{turn:,} other {have} before it.", ""
    if before:
        wait = "job waits" if before == 1 else "jobs wait"
        yield "parked_before", f"{before:,} {wait} for the same limits before it.", ""
