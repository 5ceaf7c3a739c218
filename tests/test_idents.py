"""Names of jobs and queues in Redis."""

from __future__ import annotations

import redis
from cases import each

from limpyd_jobs.idents import Ident, QueueKey
from limpyd_jobs.redis.scripting import FOLDER


def test_an_ident_is_the_path_of_a_class_and_a_pk() -> None:
    assert Ident.of("myapp.jobs.MyJob:12") == Ident.parse("myapp.jobs.MyJob:12") == ("myapp.jobs.MyJob", "12")


NO_IDENTS = ["", "garbage", "MyJob:12", "myapp.MyJob:", "myapp.My:Job:12", "myapp.:12", ":12", ":", "a.b.:1", ".B:1:"]
ODD_IDENTS = ["été.Été:ü", "a.b:1\n", "\na.b: ", "a.b:\0", "..a:1", "a b.c d:e f", "%d.%s:%q"]


@each("text", NO_IDENTS)
def test_what_is_no_ident_is_told(text: str) -> None:
    assert Ident.parse(text) is None


@each("text", ODD_IDENTS)
def test_whatever_has_a_path_and_a_pk_is_an_ident(text: str) -> None:
    assert Ident.parse(text) == Ident.of(text) == tuple(text.split(":"))


@each("text", [*NO_IDENTS, *ODD_IDENTS])
def test_scripts_read_idents_alike(redis_client: redis.Redis, text: str) -> None:
    include = (FOLDER / "includes" / "idents.lua").read_text("utf-8")
    function = include[include.index("local function parse_ident") :].partition("\nend\n")[0]
    found = redis_client.eval(f"{function}\nend\nreturn {{parse_ident(ARGV[1])}}", 0, text)
    assert tuple(found) == (Ident.parse(text) or ())


def test_a_queue_key_is_the_model_and_a_pk() -> None:
    key = QueueKey.of_list("limpyd_jobs:queue:7:waiting")
    assert (key, key.pk, key.waiting) == ("limpyd_jobs:queue:7", "7", "limpyd_jobs:queue:7:waiting")


@each(("key", "pk"), [("", ""), ("queue", "queue"), ("queue:", ""), ("a:waiting:ü", "ü")])
def test_of_a_key_that_is_no_waiting_list_nothing_is_cut_off(key: str, pk: str) -> None:
    assert (QueueKey.of_list(key), QueueKey.of_list(key).pk) == (key, pk)
