"""Dates as scripts write them: the text that Python's ``str`` gives, and the score that `datetime_to_score` gives."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random

import pytest
import redis
from worlds import Moment, World, until

from limpyd_jobs.arguments import delay_argument
from limpyd_jobs.dates import datetime_to_score, parse_datetime, utcnow
from limpyd_jobs.redis.scripting import FOLDER

CLOCK = (FOLDER / "includes" / "clock.lua").read_text("utf-8")
YEAR_OF_DOUBLES = 2255  # the last whole one whose microseconds a double can count

TO_COME = {
    "a microsecond": datetime(2100, 1, 2, 3, 4, 5, 6),
    "microsecond 0": datetime(2100, 1, 2, 3, 4, 5),
    "last microsecond": datetime(2100, 1, 2, 3, 4, 5, 999_999),
    "trailing zeros": datetime(2100, 1, 2, 3, 4, 5, 120_000),
    "midnight": datetime(2100, 1, 2),
    "last of a year": datetime(2099, 12, 31, 23, 59, 59, 999_999),
    "first of a year": datetime(2100, 1, 1),
    "28 February of no leap year": datetime(2100, 2, 28, 23, 59, 59),
    "1 March of no leap year": datetime(2100, 3, 1),
    "leap day": datetime(2096, 2, 29, 12),
    "leap day of 2400": datetime(2400, 2, 29, 12, 0, 0, 1),
    "beyond 32 bits": datetime(2038, 1, 19, 3, 14, 8),
    "beyond unsigned 32 bits": datetime(2106, 2, 7, 6, 28, 16),
    "last that a double counts": datetime(2255, 6, 5, 23, 47, 34, 740_991),
    "first that a double does not": datetime(2255, 6, 5, 23, 47, 34, 740_993),
    "year 3000": datetime(3000, 7, 8, 9, 10, 11, 123_457),
    "year 9999": datetime(9999, 1, 1, 0, 0, 0, 1),
    "the last second": datetime(9999, 12, 31, 23, 59, 59),
    "the last microsecond": datetime.max,
}


@pytest.mark.parametrize("moment", TO_COME.values(), ids=TO_COME)
def test_a_job_is_delayed_until_the_moment_that_was_given(world: World, moment: datetime) -> None:
    job = world.add(delay=until(moment))[1]
    assert world.hash(job)["delayed_until"] == str(moment)
    assert world.queue().first_delayed == (job.ident, pytest.approx(datetime_to_score(moment), abs=0.00001))


def test_a_job_is_delayed_until_any_moment_that_was_given(world: World) -> None:
    random = Random(1)
    for number in range(300):
        moment = datetime(2030, 1, 1) + timedelta(microseconds=random.randrange(225 * 365 * 86_400 * 1_000_000))
        job = world.add(f"{number}", delay=until(moment))[1]
        assert world.hash(job)["delayed_until"] == str(moment)


def text_of(client: redis.Redis) -> Callable[[datetime], str]:
    script = client.register_script(CLOCK + "\nreturn date_text(tonumber(ARGV[1]))")
    return lambda moment: script(args=[(moment - datetime(1970, 1, 1)) // datetime.resolution])


class TestTheTextOfADate:
    @pytest.mark.proof
    def test_is_right_on_every_day_of_400_years(self, redis_client: redis.Redis) -> None:
        script = CLOCK + (
            "\nlocal texts = {}"
            "\nfor day = tonumber(ARGV[1]), tonumber(ARGV[2]) do texts[#texts + 1] = date_text(day * 86400000000) end"
            "\nreturn texts"
        )
        epoch = datetime(1970, 1, 1)
        first, last = (datetime(1850, 1, 1) - epoch).days, (datetime(YEAR_OF_DOUBLES, 1, 1) - epoch).days
        texts = redis_client.eval(script, 0, first, last)
        assert texts == [str(epoch + timedelta(days=day)) for day in range(first, last + 1)]

    @pytest.mark.parametrize(
        "moment",
        [
            datetime(1970, 1, 1),
            datetime(1970, 1, 1, 0, 0, 0, 1),
            datetime(1969, 12, 31, 23, 59, 59, 999_999),
            datetime(2000, 2, 29, 23, 59, 59, 500_000),
            datetime(1900, 2, 28, 23, 59, 59),
            datetime(2024, 12, 31, 23, 59, 59, 999_999),
            datetime(2016, 12, 31, 23, 59, 59),
            datetime(1900, 3, 1),
        ],
        ids=str,
    )
    def test_is_that_of_python_for_past_moments_too(self, redis_client: redis.Redis, moment: datetime) -> None:
        assert text_of(redis_client)(moment) == str(moment)

    def test_is_that_of_python_for_any_second_of_a_day(self, redis_client: redis.Redis) -> None:
        text = text_of(redis_client)
        random = Random(2)
        for second in [*random.sample(range(86_400), 200), 0, 59, 60, 3599, 3600, 86_399]:
            moment = datetime(2026, 11, 21) + timedelta(seconds=second, microseconds=random.randrange(1_000_000))
            assert text(moment) == str(moment)


class TestNow:
    def test_is_the_clock_of_the_server(self, world: World, after: Callable[[float], Moment]) -> None:
        added = world.add()[1].added.hget()
        assert added == after(0)
        assert parse_datetime(added) <= utcnow()

    def test_is_one_moment_during_a_script(self, world: World) -> None:
        """A finished job and the next one, claimed in the same call, end and start at the same time."""
        first, second = (world.add(identifier)[1] for identifier in "ab")
        world.claim()
        ending = world.succeed(first, next_claim=world.request(token="next"))
        assert first.end.hget() == ending.end == second.start.hget()


@pytest.mark.parametrize("seconds", [0.5, 1, 59.999999, 86_400, 86_400 * 366, 3.2e9])
def test_a_delay_in_seconds_counts_from_the_clock_of_the_server(
    world: World, after: Callable[[float], Moment], seconds: float
) -> None:
    job = world.add(delay=delay_argument(delayed_for=seconds))[1]
    assert world.hash(job).get("delayed_until") == after(seconds)
