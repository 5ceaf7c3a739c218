"""The limit of redis-py: a loop that pushes, another one that pops, and nothing around them."""

from __future__ import annotations

import redis
from inside import HOST, PORT, mark

TITLE = "limit: bare loop"
REQUIREMENTS: list[str] = []  # it is measured with the Python that runs the benchmark
PACKAGE = "redis"
ADDING = "`RPUSH` of a number; many: pipelines of 1,000"
WORKERS = {"default": "`BLPOP`"}

client = redis.Redis(HOST, PORT)


def setup() -> None:
    client.ping()


def add(number: int) -> None:
    client.rpush("list", number)


def add_many(numbers: range) -> None:
    for start in range(0, len(numbers), 1000):
        with client.pipeline(transaction=False) as pipe:
            for number in numbers[start : start + 1000]:
                pipe.rpush("list", number)
            pipe.execute()


def work(variant: str) -> None:
    while True:
        mark(int(client.blpop(["list"])[1]))
