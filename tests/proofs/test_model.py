"""No order of what may happen to jobs loses one, runs it twice at once, or leaves it stuck: see `machine`.

The stories are the same in each run. For others, as many as are wanted:

    LIMPYD_JOBS_STORIES=5000 python -m pytest -s tests/proofs/test_model.py

prints the seed of every ten. Those of a seed are told again with LIMPYD_JOBS_SEED, and LIMPYD_JOBS_STORIES=10.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from functools import partial

import hypothesis
import pytest
import redis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from machine import CLOCK, Life
from rewritten import Replacement, rewritten

NUMBER = int(os.environ.get("LIMPYD_JOBS_STORIES", "0"))
SEED = int(os.environ.get("LIMPYD_JOBS_SEED", "0")) or random.SystemRandom().randrange(1, 10**9)

# Some stories of several seeds differ more than many of one.
SEEDS = range(1, 9)

STORIES = settings(
    max_examples=10,
    stateful_step_count=50,
    deadline=None,
    database=None,
    print_blob=False,
    suppress_health_check=list(HealthCheck),
)

# As many as it takes to find what is wrong, and no search for the shortest.
UNTIL_ONE_FAILS = settings(STORIES, max_examples=400, phases=[Phase.generate], report_multiple_bugs=False)

# What has to happen in the stories, for them to tell anything.
EVENTS = {
    *("added", "existing", "moved", "canceled", "told", "canceled by hand"),
    *("claimed", "found", "popped", "registered", "deferred", "claim and lost", "popped and lost"),
    *("succeed: done", "held", "claimed by an application", "marked as delayed", "released", "renewed", "refused"),
    *("edited", "rescued", "orphan", "begun by version 2", "ended by version 2", "too late"),
    *("further", "one of several", "a suspect", "spread", "spread on"),
}


def tell(client: redis.Redis, how: settings, seed: int, *wrongs: Replacement) -> Counter[str]:
    """Tell stories of the scripts, with something wrong in these, and return what happened."""
    story: Counter[str] = Counter()
    with rewritten(CLOCK, *wrongs):
        run_state_machine_as_test(hypothesis.seed(seed)(partial(Life, client, story)), settings=how)
    return story


def test_each_story_ends_well(redis_client: redis.Redis) -> None:
    story = sum((tell(redis_client, STORIES, seed) for seed in SEEDS), Counter())
    print(dict(story.most_common()))
    assert EVENTS - story.keys() == set()


@pytest.mark.skipif(not NUMBER, reason="LIMPYD_JOBS_STORIES says how many")
def test_other_stories_end_well(redis_client: redis.Redis) -> None:
    story: Counter[str] = Counter()
    for seed in range(SEED, SEED + -(-NUMBER // STORIES.max_examples)):
        print(f"LIMPYD_JOBS_SEED={seed}", flush=True)
        story += tell(redis_client, STORIES, seed)
    print(dict(story.most_common()))


WRONGS = {
    "no fence": (
        Replacement(
            "elseif held ~= token then",
            "elseif held ~= token and redis.call('HGET', job.key, '_last_claim') == token then",
        ),
        "DID NOT RAISE .*ClaimLost|is renewed: True|the same call again|I[3567] ",
    ),
    "a forgotten index": (
        Replacement("write_index(undo, prefixes[i], old,", "write_index(undo, prefixes[i], field ~= 'queued' and old,"),
        "I2 machine:errand:queued:1 holds",
    ),
    "a running job is not live for add": (
        Replacement(
            "if existing and not is_ending then",
            "if existing and not is_ending and redis.call('HGET', hash_key(model, existing), 'status') ~= 'r' then",
        ),
        "is added, though .*, of the same identifier, is r",
    ),
    "a running job moves up": (
        Replacement("local is_running = status == 'r' or token", "local is_running = false"),
        "assert 'moved' == 'existing'",
    ),
    "a spread begins anew": (
        Replacement("return math.max(now(), due and due.at or 0, kept), last", "return now(), last"),
        "which should be",
    ),
}


@pytest.mark.parametrize(("wrong", "expected"), WRONGS.values(), ids=WRONGS)
def test_what_is_wrong_is_found(redis_client: redis.Redis, wrong: Replacement, expected: str) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception), match=expected):
        tell(redis_client, UNTIL_ONE_FAILS, 1, wrong)


@pytest.mark.parametrize("text", ["stands nowhere", "redis.call("])
def test_only_what_stands_in_a_script_once_can_be_replaced(text: str) -> None:
    with pytest.raises(AssertionError, match=r"in no script|more than once"), rewritten(Replacement(text, "")):
        pass
