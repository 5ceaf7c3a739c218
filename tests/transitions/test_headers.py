"""The header of each script says what it takes, what it answers, and which transition it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from all_scripts import ALL_SCRIPTS

import limpyd_jobs
from limpyd_jobs.redis.scripting import FOLDER, load
from limpyd_jobs.statuses import STATUSES

INCLUDES = sorted((FOLDER / "includes").glob("*.lua"))
SCRIPTS = sorted({*FOLDER.glob("*/*.lua")} - {*INCLUDES})
STATES = {"new", "the same", "deleted", *(name.lower() for name in STATUSES)}

# The lines of a header: an entry has a name, or several, and what is to be said of it; more of that is further right.
ENTRY = re.compile(r"--   ([a-z_]+(?:,? [a-z_]+)*)(?:   *\S.*)?")
# What the scripts of records answer, as it may stand among the replies of a pipeline.
PLAIN = re.compile(r"--   \(a number\)   *\S.*")
USED = re.compile(r"\brequest\.(\w+)")
ANSWERED = re.compile(r"(?:outcome = |\b(?:answer|ended|ended_before)\(|return (?='[a-z ]+', \{))([^\n{[]*)")
DEFINED = re.compile(r"^local (?:function )?(\w+)", re.MULTILINE)
INCLUDED = re.compile(r"^--@include (\w+)$", re.MULTILINE)


def look_at(paths: Iterable[Path]) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """Let one test look at all these files."""

    def of_all(test: Callable[[Path], None]) -> Callable[[], None]:
        def each() -> None:
            for path in paths:
                test(path)

        return each

    return of_all


each_script, each_include, each_file = look_at(SCRIPTS), look_at(INCLUDES), look_at([*SCRIPTS, *INCLUDES])


def header_of(path: Path) -> str:
    """The comments before the first line of another kind."""
    lines = path.read_text("utf-8").splitlines()
    code = next(number for number, line in enumerate(lines) if not line.startswith("--") or line.startswith("--@"))
    return "\n".join(lines[:code])


@cache
def body_of(path: Path) -> str:
    """The code, without comments."""
    return re.sub(r"--.*", "", path.read_text("utf-8"))


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def section(path: Path, title: str) -> set[str]:
    """The names of the entries of a part of the header."""
    _, _, rest = header_of(path).partition(f"\n-- {title}\n")
    names: set[str] = set()
    for line in rest.splitlines():
        if re.match(r"--   (?:  |or )", line) or PLAIN.fullmatch(line):
            continue
        entry = ENTRY.fullmatch(line)
        if not entry:
            assert re.match(r"-- ?\S|--$", line), line
            break
        names.update(entry[1].split(", "))
    return names


def outcomes(text: str) -> set[str]:
    """The outcomes that are answered, without what is only compared."""
    found = [pair for line in ANSWERED.findall(text) for pair in re.findall(r"(= )?'([a-z ]+)'", line)]
    return {outcome for compared, outcome in found if not compared}


def returned(text: str) -> set[str]:
    """The outcomes that a function of an include returns, in a table or not."""
    return outcomes(text) | set(re.findall(r"return '([a-z ]+)'", text))


def source_of_include(name: str) -> Path:
    return FOLDER / "includes" / f"{name}.lua"


@cache
def all_includes(path: Path) -> set[str]:
    """What a file includes, also by others: two of them may include each other."""
    found: set[str] = set()
    paths = [path]
    while paths:
        new = {*INCLUDED.findall(paths.pop().read_text("utf-8"))} - found
        found |= new
        paths += map(source_of_include, new)
    return found


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
    assert header.startswith("-- verb:")
    assert lines["verb"] == path.stem.replace("_", " ")
    assert list(lines) in (["verb", "from", "to", "what"], ["verb", "what"])
    for ends in ("from", "to"):
        assert set(re.split(r", | or ", lines.get(ends, "new"))) <= STATES


@each_script
def test_the_header_lists_every_name_of_the_request_that_is_used_and_no_other(path: Path) -> None:
    used = set(USED.findall(body_of(path)))
    for name in all_includes(path):
        used |= set(USED.findall(body_of(source_of_include(name))))
    assert used - {"fields"} <= section(path, "request") - {"fields"}
    assert section(path, "request") <= used


@each_script
def test_the_header_lists_the_keys_if_there_are_any(path: Path) -> None:
    declared = re.findall(r"^-- (KEYS(?:\[\d+\])?) ", header_of(path), re.MULTILINE)
    body = body_of(path)
    if declared == ["KEYS"]:
        assert re.search(r"\bKEYS(?!\[)", body)
    else:
        assert set(declared) == set(re.findall(r"KEYS\[\d+\]", body))
        assert not re.search(r"\bKEYS(?!\[)", body)


@each_script
def test_the_header_lists_every_reply_and_no_other(path: Path) -> None:
    body = body_of(path)
    given = outcomes(body).union(*map(returned, reached_from(body, path)))
    listed, header = section(path, "reply"), header_of(path)
    assert listed - given == set()
    # Other replies may stand inside of one.
    told = set(re.findall(r"'([a-z ]+)'", header))
    for other in re.findall(r"as (?:a claimed job )?in (\w+)\.lua", header):
        told |= section(next(FOLDER.glob(f"*/{other}.lua")), "reply")
    assert given - listed - told == set()


def reached_from(body: str, path: Path) -> list[str]:
    """The functions of includes that decide what a script answers."""
    offered = {
        name: text for include in all_includes(path) for name, text in functions_of(source_of_include(include)).items()
    }
    found: dict[str, str] = {}
    texts = [body]
    while texts:
        text = texts.pop()
        for name in offered.keys() & words(text) - found.keys() - {"ended", "ended_before", "claim_next"}:
            found[name] = offered[name]
            texts.append(offered[name])
    return list(found.values())


@cache
def functions_of(path: Path) -> dict[str, str]:
    """The top-level functions of an include, by name."""
    found = re.findall(r"^local function (\w+)(.*?)^end$", body_of(path), re.MULTILINE | re.DOTALL)
    return dict(found)


@each_script
def test_every_reply_is_understood(path: Path) -> None:
    """Each reply but the usual ones is named in `transitions`, or by those who look at an outcome."""
    known = sources_of_the_package()
    for reply in outcomes(body_of(path)):
        assert f'"{reply}"' in known or f"``{reply}``" in known, reply


@cache
def sources_of_the_package() -> str:
    return "".join(source.read_text("utf-8") for source in Path(limpyd_jobs.__file__).parent.rglob("*.py"))


@each_file
def test_what_is_included_is_used(path: Path) -> None:
    body = words(body_of(path))
    for name in INCLUDED.findall(path.read_text("utf-8")):
        offered = {
            symbol
            for each in {name, *all_includes(source_of_include(name))}
            for symbol in ["request"] * (each == "envelope") + DEFINED.findall(body_of(source_of_include(each)))
        }
        assert body & offered, f"nothing of {name} is used"


@each_file
def test_what_is_used_is_included(path: Path) -> None:
    body, included = words(body_of(path)), all_includes(path)
    own = set(DEFINED.findall(body_of(path)))
    for include in INCLUDES:
        if include != path and include.stem not in included:
            foreign = functions_of(include).keys() & body - own - {"claim", "ended"}
            assert foreign == set(), f"of {include.stem}"


@each_include
def test_every_function_of_an_include_is_used(path: Path) -> None:
    for function in functions_of(path):
        made = f"local function {function}(", f"rare_functions.{function} = function("
        assert any(each in sources_of_all() for each in made), f"{function} is never called"


def test_rare_functions_stand_in_includes() -> None:
    """In a script, code that runs before it might need another one, which is not there yet."""
    assert [path.name for path in SCRIPTS if "--@rarely" in path.read_text()] == []


@each_file
def test_a_rare_function_is_called_and_not_given_as_a_value(path: Path) -> None:
    """The loader finds calls of it, and it as an argument: ``name(``, ``name,`` and ``name)``."""
    if path not in SCRIPTS:
        return
    source = re.sub(r"--.*|'[^']*'", "", load(f"{path.parent.name}/{path.stem}"))
    rare = {*re.findall(r"^rare_functions\.(\w+) = function", source, re.MULTILINE)}
    assert rare & {*re.findall(r"(?<![.\w])\w++(?! =)", source)} == set()


@cache
def sources_of_all() -> str:
    """All scripts as they are sent, without the functions that they do not use."""
    return "".join(load(f"{path.parent.name}/{path.stem}") for path in SCRIPTS)


@each_include
def test_an_include_says_what_it_is_for(path: Path) -> None:
    assert re.match(r"-- [A-Z][a-z]+: \S", path.read_text("utf-8"))


@each_file
def test_a_status_has_its_name(path: Path) -> None:
    letters = "|".join(STATUSES.values())
    assert re.findall(rf"'(?:{letters})'|\b(?:{letters}) = ", body_of(path)) == []


@each_file
def test_values_that_are_read_together_have_names(path: Path) -> None:
    read = re.findall(r"local (\w+) = [^\n]*redis\.p?call\(\s*'HMGET'", body_of(path))
    assert re.findall(rf"\b(?:{'|'.join(read)})\[\d+\]" if read else "(?!)", body_of(path)) == []
