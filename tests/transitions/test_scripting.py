"""How a script gets from its file to the server."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import redis

from limpyd_jobs.redis.calls import run
from limpyd_jobs.redis.scripting import FOLDER, Script, load

Recorder = Callable[[], AbstractContextManager[Any]]

NAMES = sorted(f"{path.parent.name}/{path.stem}" for path in FOLDER.glob("[!i]*/*.lua"))


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """Write scripts; those whose name begins with an underscore are includes."""

    def write(**sources: str) -> Path:
        (tmp_path / "includes").mkdir(exist_ok=True)
        for name, source in sources.items():
            place = tmp_path / "includes" if name.startswith("_") else tmp_path
            (place / f"{name.strip('_')}.lua").write_text(source, "utf-8")
        return tmp_path

    return write


class TestLoad:
    def test_a_script_without_includes_is_its_file(self, folder: Callable[..., Path]) -> None:
        assert load("a", folder(a="-- é\nreturn 1\n")) == "-- é\nreturn 1\n"

    def test_an_include_stands_where_it_was_asked_for(self, folder: Callable[..., Path]) -> None:
        where = folder(a="-- a\n--@include b\nreturn b\n", _b="local b = 1\n")
        assert load("a", where) == "-- a\nlocal b = 1\nreturn b\n"

    def test_an_include_stands_there_once(self, folder: Callable[..., Path]) -> None:
        where = folder(
            a="--@include b\n--@include c\n--@include b\nreturn b + c\n",
            _b="--@include c\nlocal b = c\n",
            _c="local c = 1\n",
        )
        assert load("a", where) == "local c = 1\nlocal b = c\nreturn b + c\n"

    def test_includes_in_a_circle_end(self, folder: Callable[..., Path]) -> None:
        where = folder(a="--@include b\n", _b="--@include c\nb = 1\n", _c="--@include b\nc = 1\n")
        assert load("a", where) == "c = 1\nb = 1\n"

    def test_what_only_looks_like_an_include_is_none(self, folder: Callable[..., Path]) -> None:
        source = "-- --@include b\n  --@include b\n--@include b c\nreturn '--@include b'\n"
        assert load("a", folder(a=source, _b="-- b\n")) == source

    def test_functions_that_nothing_uses_are_left_out(self, folder: Callable[..., Path]) -> None:
        functions = "\n".join(
            f"-- {name}\nlocal function {name}()\n  {body}\nend\n"
            for name, body in {
                "used": "return 1",
                "calls_itself": "calls_itself()",
                "lost": "unused()",
                "unused": "return 'used'",
            }.items()
        )
        source = load("a", folder(a="--@include b\nreturn used()  -- not lost()\n", _b=functions))
        assert source == "local function used()\n  return 1\nend\n\n\n\nreturn used()  -- not lost()\n"

    def test_functions_that_are_used_rarely_are_made_when_they_are_called(
        self, folder: Callable[..., Path], redis_client: redis.Redis
    ) -> None:
        source = load(
            "a",
            folder(
                a="--@include b\nreturn ARGV[1] and {inner(outer(2)), pcall(inner, 3) and 5} or 7\n",
                _b="local made = 0\n-- Inner.\n--@rarely\nlocal function inner(n)\n  return n * 10\nend\n\n"
                "--@rarely\nlocal function outer(n)\n  made = made + 1\n  return inner(n) + made\nend\n",
            ),
        )
        assert source.endswith(
            "return ARGV[1] and {rarely().inner(rarely().outer(2)), pcall(rarely().inner, 3) and 5} or 7\n"
        )
        assert redis_client.eval(source, 0, "x") == [210, 5]
        assert redis_client.eval(source, 0) == 7

    def test_numbers_and_texts_take_the_place_of_their_names(
        self, folder: Callable[..., Path], redis_client: redis.Redis
    ) -> None:
        where = folder(
            a="--@include b\nreturn {MOST * 2, LEAST, FLOW .. 'MOST', OTHER}\n",
            _b="local MOST, LEAST = 7 * 3, -1\nlocal FLOW = 'a: '\nlocal OTHER = MOST + 1\n",
            c="local MOST = 1\nlocal MOST = 2\n",
        )
        assert load("a", where).startswith("local OTHER = (7 * 3) + 1\n")
        assert redis_client.eval(load("a", where), 0) == [42, -1, "a: MOST", 22]
        with pytest.raises(ValueError, match="MOST has two values"):
            load("c", where)

    def test_there_may_be_any_number_of_them(self, folder: Callable[..., Path], redis_client: redis.Redis) -> None:
        names = [f"name_{number}" for number in range(90)]
        defined = "".join(f"local {name} = {number}\n" for number, name in enumerate(names))
        functions = "".join(
            f"--@rarely\nlocal function rare_{number}()\n  return {name} + {names[number - 1]}\nend\n\n"
            for number, name in enumerate(names)
        )
        calls = " + ".join(f"rare_{number}()" for number in range(90))
        source = load("a", folder(a=f"--@include b\nreturn {calls}\n", _b=defined + functions))
        assert redis_client.eval(source, 0) == 2 * sum(range(90))

    def test_later_names_are_in_functions_of_their_own_and_use_the_earlier_ones(
        self, folder: Callable[..., Path], redis_client: redis.Redis
    ) -> None:
        names = [f"name_{number}" for number in range(120)]
        functions = "".join(
            f"local function {name}(n)\n  return n + 1{' + name_1(n) - n - 1' if number > 1 else ''}\nend\n\n"
            for number, name in enumerate(names)
        )
        calls = ", ".join(f"{name}({number})" for number, name in enumerate(names[::2]))
        source = load("a", folder(a=f"--@include b\nlocal list = {{{calls}}}\nreturn list\n", _b=functions))
        assert source.count("\nreturn (function()\n") == source.count("\nend)()") == 3
        assert redis_client.eval(source, 0) == list(range(1, 61))

    def test_no_other_use_of_such_a_function_is_in_a_script_of_ours(self) -> None:
        for name in NAMES:
            start, _, rest = re.sub(r"--.*", "", load(name)).partition("\nlocal function make_1(")
            functions, _, end = rest.partition("\n  return rare_functions\n")
            for function in re.findall(r"\brare_functions\.(\w+) = \1\b", functions):
                assert not re.search(rf"(?<![.'\w]){function}\b(?! =)", start + end), (name, function)

    def test_the_name_of_a_status_stands_for_its_letter(self, folder: Callable[..., Path]) -> None:
        where = folder(
            a="--@include b\nreturn {STATUSES.WAITING, b}\n", _b="local b = STATUSES.ERROR\n", c="STATUSES.LOST\n"
        )
        assert load("a", where) == "local b = 'e'\nreturn {'w', b}\n"
        with pytest.raises(KeyError, match="LOST"):
            load("c", where)

    def test_a_missing_file_is_an_error(self, folder: Callable[..., Path]) -> None:
        where = folder(a="--@include b\n")
        with pytest.raises(FileNotFoundError, match=r"b\.lua"):
            load("a", where)
        with pytest.raises(FileNotFoundError, match=r"none\.lua"):
            load("none", where)

    def test_no_include_is_left_in_a_script_of_ours_and_none_defines_anything_twice(self) -> None:
        for name in NAMES:
            assert "\n--@include" not in load(name)
            definitions = [line for line in load(name).splitlines() if line.startswith("local function ")]
            names = [line.split("(")[0] for line in definitions]
            assert len(names) == len(set(names))


class TestScript:
    @pytest.fixture
    def echo(self) -> Script:
        script = Script("echo")
        script.source = "return {KEYS, ARGV}"  # type: ignore[misc]
        return script

    def test_its_sha_is_that_of_the_server_which_takes_it(self, redis_client: redis.Redis) -> None:
        for name in NAMES:
            script = Script(name)
            assert redis_client.script_load(script.source) == script.sha

    def test_keys_and_arguments_reach_it_as_they_are(self, redis_client: redis.Redis, echo: Script) -> None:
        assert run(echo, redis_client) == [[], []]
        assert run(echo, redis_client, ["a"], ["b", 1, 2.5, "é\0\n", ""]) == [["a"], ["b", "1", "2.5", "é\0\n", ""]]

    def test_it_is_sent_whole_once(self, redis_client: redis.Redis, echo: Script, commands: Recorder) -> None:
        redis_client.script_flush()
        with commands() as sent:
            for _ in range(3):
                run(echo, redis_client)
        assert sent.names == ["EVALSHA", "EVAL", "EVALSHA", "EVALSHA"]

    def test_it_runs_although_the_server_forgot_it(
        self, redis_client: redis.Redis, echo: Script, commands: Recorder
    ) -> None:
        run(echo, redis_client)
        redis_client.script_flush()
        assert run(echo, redis_client, ["a"], ["b"]) == [["a"], ["b"]]
        with commands() as sent:
            run(echo, redis_client)
        assert sent.names == ["EVALSHA"]

    def test_its_error_is_raised_and_it_is_not_run_again(self, redis_client: redis.Redis, commands: Recorder) -> None:
        script = Script("failing")
        script.source = "redis.call('INCR', 'runs') return redis.call('LPUSH', 'runs', 1)"  # type: ignore[misc]
        with commands() as sent, pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            run(script, redis_client)
        assert redis_client.get("runs") == "1"
        assert sent.names[-1] == "EVAL"

    def test_one_that_does_not_exist_is_an_error_when_it_is_called(self, redis_client: redis.Redis) -> None:
        with pytest.raises(FileNotFoundError, match="no_such_verb"):
            run(Script("no_such_verb"), redis_client)
