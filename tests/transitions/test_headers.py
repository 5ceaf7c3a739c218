"""The header of each script says what it takes, what it answers, and which transition it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from all_scripts import ALL_SCRIPTS

import limpyd_jobs
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.store.scripting import FOLDER

SCRIPTS = sorted(FOLDER.glob("*.lua"))
INCLUDES = sorted((FOLDER / "includes").glob("*.lua"))
STATES = {"new", "the same", "deleted", *(name.lower() for name in STATUSES)}

# A call that uses ARGV from an index on, which is its last argument.
OPEN_ENDED = re.compile(r"(?:pairs_from|claim_next|ended)\([^()]*?(\d+)\)|for i = (\d+), #ARGV")
DEFINED = re.compile(r"^local (?:function )?(\w+)", re.MULTILINE)
INCLUDED = re.compile(r"^--@include (\w+)$", re.MULTILINE)

each_script = pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
each_file = pytest.mark.parametrize("path", [*SCRIPTS, *INCLUDES], ids=lambda path: path.stem)


def header_of(path: Path) -> str:
    """The comments before the first line of another kind."""
    lines = path.read_text("utf-8").splitlines()
    code = next(number for number, line in enumerate(lines) if not line.startswith("--") or line.startswith("--@"))
    return "\n".join(lines[:code])


def body_of(path: Path) -> str:
    """The code, without comments."""
    return re.sub(r"--.*", "", path.read_text("utf-8"))


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def replies(text: str) -> set[str]:
    """The words that replies begin with."""
    return set(re.findall(r"(?:return \{\s*|ended\()'([^']+)'", text))


def source_of_include(name: str) -> Path:
    return FOLDER / "includes" / f"{name}.lua"


def all_includes(path: Path) -> set[str]:
    direct = INCLUDED.findall(path.read_text("utf-8"))
    return {*direct, *(name for each in direct for name in all_includes(source_of_include(each)))}


def test_every_script_has_a_function_and_every_function_its_script() -> None:
    loaded = {script.name for script in ALL_SCRIPTS}
    assert loaded == {path.stem for path in SCRIPTS}


@each_script
def test_every_script_has_a_test(path: Path) -> None:
    assert (Path(__file__).parent / f"test_{path.stem}.py").exists()


@each_script
def test_the_header_says_which_transition_it_is(path: Path) -> None:
    header = header_of(path)
    lines = dict(re.findall(r"^-- (verb|from|to|what): +(\S.*)$", header, re.MULTILINE))
    if not lines:
        assert "No transition of a job." in header
        return
    assert list(lines) == ["verb", "from", "to", "what"]
    assert lines["verb"] == path.stem.replace("_", " ")
    for ends in ("from", "to"):
        assert set(re.split(r", | or ", lines[ends])) <= STATES
    assert header.startswith("-- verb:")


@each_script
def test_the_header_lists_every_argument_that_is_used_and_no_other(path: Path) -> None:
    declared = re.findall(r"^-- ARGV\[(\d+)(…?)\] ", header_of(path), re.MULTILINE)
    numbers = [int(number) for number, _ in declared]
    assert numbers == list(range(1, len(numbers) + 1))
    assert [number for number, dots in declared[:-1] if dots] == []

    body = body_of(path)
    single = {int(number) for number in re.findall(r"ARGV\[(\d+)\]", body)}
    to_the_end = {int(number) for pair in OPEN_ENDED.findall(body) for number in pair if number}
    assert single == {int(number) for number, dots in declared if not dots}
    assert to_the_end == {int(number) for number, dots in declared if dots}


@each_script
def test_the_header_lists_the_keys_if_there_are_any(path: Path) -> None:
    declared = re.findall(r"^-- (KEYS(?:\[\d+\])?) ", header_of(path), re.MULTILINE)
    body = body_of(path)
    if declared == ["KEYS"]:
        assert re.search(r"KEYS(?!\[)", body)
    else:
        assert set(declared) == set(re.findall(r"KEYS\[\d+\]", body))
        assert not re.search(r"KEYS(?!\[)", body)


@each_script
def test_the_header_lists_every_reply_and_no_other(path: Path) -> None:
    listed = set(re.findall(r"\{'([a-z ]+)'", header_of(path)))
    body = body_of(path)
    given = replies(body)
    used = words(re.sub(r"\badd\(.*\)\[2\]", "", body))  # one part of a reply is not that reply
    used |= {"move_up", "not_unique"} if "add" in used else set()
    for name in all_includes(path):
        for function, text in functions_of(source_of_include(name)).items():
            if function in used and function not in ("ended", "claim_next", "claim_first"):
                given |= replies(text) | claimed(text)
    assert given - listed == set()
    # What the next claim answered stands inside of other replies.
    assert listed - given <= {"nothing"}


def functions_of(path: Path) -> dict[str, str]:
    """The top-level functions of an include, by name."""
    found = re.findall(r"^local function (\w+)(.*?)^end$", body_of(path), re.MULTILINE | re.DOTALL)
    return dict(found)


def claimed(text: str) -> set[str]:
    """The replies of the functions that claim, which another function of an include returns."""
    functions = functions_of(source_of_include("taking")) | functions_of(source_of_include("claims"))
    called = [
        name
        for name in ("claim", "claim_safely", "claim_from", "claim_first", "refusal")
        if re.search(rf"\b{name}\b", text)
    ]
    return {reply for name in called for reply in replies(functions[name]) | claimed(functions[name])}


@each_script
def test_every_reply_is_understood(path: Path) -> None:
    """Each reply but the usual ones is named in `transitions`, or by those who look at an outcome."""
    package = Path(limpyd_jobs.__file__).parent
    sources = [
        source
        for folder in ("", "transitions/", "store/", "models/", "schedules/", "workers/")
        for source in package.glob(f"{folder}*.py")
    ]
    known = "".join(source.read_text("utf-8") for source in sources)
    for reply in replies(body_of(path)):
        assert f'"{reply}"' in known or f"``{reply}``" in known, reply


@each_file
def test_what_is_included_is_used(path: Path) -> None:
    body = words(body_of(path))
    for name in INCLUDED.findall(path.read_text("utf-8")):
        offered = {
            symbol
            for each in {name, *all_includes(source_of_include(name))}
            for symbol in DEFINED.findall(body_of(source_of_include(each)))
        }
        assert body & offered, f"nothing of {name} is used"


@each_file
def test_what_is_used_is_included(path: Path) -> None:
    body, included = words(body_of(path)), all_includes(path)
    own = set(DEFINED.findall(body_of(path)))
    for include in INCLUDES:
        if include != path and include.stem not in included:
            strangers = functions_of(include).keys() & body - own - {"claim", "ended"}
            assert strangers == set(), f"of {include.stem}"


@pytest.mark.parametrize("path", INCLUDES, ids=lambda path: path.stem)
def test_every_function_of_an_include_is_used(path: Path) -> None:
    everything = "".join(body_of(each) for each in [*SCRIPTS, *INCLUDES])
    for function in functions_of(path):
        assert len(re.findall(rf"\b{function}\b", everything)) > 1, f"{function} is never called"


@pytest.mark.parametrize("path", INCLUDES, ids=lambda path: path.stem)
def test_an_include_says_what_it_is_for(path: Path) -> None:
    assert re.match(r"-- [A-Z][a-z]+: \S", path.read_text("utf-8"))
