"""Lua scripts: loaded from files with their includes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Sequence
from functools import cache, cached_property, lru_cache
from hashlib import sha1
from pathlib import Path
from typing import Any
from weakref import WeakSet

from limpyd_jobs import dates
from limpyd_jobs.redis.cluster import tags
from limpyd_jobs.statuses import STATUSES

FOLDER = Path(__file__).parent.parent / "lua"

# How many names from outside the functions that are made together use, at most: Lua allows 60 of one function. Some
# are counted that are not used, and the table is one more.
MOST_UPVALUES = 50

# How many names each level of a script declares, and how many levels there are: the innermost one uses the names of
# all others, and Lua allows 60.
NAMES_OF_LEVEL, LEVELS = 18, 4

# What the table of rare functions is called in a script.
_TABLE = "rare_functions"

_INCLUDE = re.compile(r"^--@include (\w+)\n", re.MULTILINE)
_FUNCTION = re.compile(r"(?:^--[^\n]*\n)*^local function (\w+)\(.*?^end\n", re.MULTILINE | re.DOTALL)
_USED = re.compile(r"(?<![\w.'])(?<!function )[a-z]\w*+(?=[(,)])")
_BEGINNING = re.compile(r"^local function (\w+)\(", re.MULTILINE)
_COMMENTS = re.compile(r"^ *--(?!@).*\n", re.MULTILINE)
_COMMENT, _WORD = re.compile("--.*"), re.compile(r"\w+")
_REQUESTED, _STATUS = re.compile(r"request\.(\w+)"), re.compile(r"STATUSES\.(\w+)")
_LITERAL = r"(?:-?\d[\d. *]*|'[^',]*')"
_CONSTANTS = re.compile(rf"^local ([A-Z_]+(?:, [A-Z_]+)*) = ({_LITERAL}(?:, {_LITERAL})*)$\n", re.MULTILINE)
_CONSTANT = re.compile(r"^--.*|(?<![.'\w])[A-Z][A-Z_]+(?!['\w])", re.MULTILINE)
_LOCAL = re.compile(r"^local (?:function )?(\w+(?:, *\w+)*)", re.MULTILINE)
_ENTRY = re.compile(r"^--   ([a-z_]+(?:, [a-z_]+)*)(?:  .*)?$", re.MULTILINE)


def names_in(source: str) -> list[str]:
    """Return the names that the header of a script lists under ``request``, without the fields of a record."""
    entries = source.partition("\n-- request\n")[2].partition("\n-- reply\n")[0]
    names = [name for entry in _ENTRY.findall(entries) for name in entry.split(", ")]
    return [name for name in names if name != "fields"]


def load(name: str, folder: Path = FOLDER) -> str:
    """Return the source of ``<name>.lua``, such as ``placing/add``. The first ``--@include <file>`` line of a file is
    replaced by that file, without its comments, and ``--@moved`` by code that moves the time, if tests do."""
    source = _load(name, folder)
    moved = dates.moved_time // dates.MICROSECOND
    return source.replace("--@moved", f"moment_of_this_call = moment_of_this_call + {moved}") if moved else source


@cache
def _load(name: str, folder: Path) -> str:
    included: set[str] = set()

    def expand(source: str) -> str:
        return _INCLUDE.sub(include, source)

    def include(match: re.Match[str]) -> str:
        if match[1] in included:
            return ""
        included.add(match[1])
        return expand(_COMMENTS.sub("", (folder / "includes" / f"{match[1]}.lua").read_text("utf-8")))

    source = (folder / f"{name}.lua").read_text("utf-8")
    whole = _with_values(expand(source), names_in(source))
    return in_levels(with_rare_functions_apart(without_unused(with_constants(whole))))


def _with_values(source: str, names: list[str]) -> str:
    """Put the value of each ``request.<name>``, and the letter of each ``STATUSES.<name>``, in its place: tables of
    all of them would cost time at every call."""
    places = {name: f"(ARGV[{i}] ~= '' and ARGV[{i}] or nil)" for i, name in enumerate(names, 1)}
    places["fields"] = f"fields_from({len(names) + 1})"
    source = _STATUS.sub(lambda match: f"'{STATUSES[match[1]]}'", source)
    return _REQUESTED.sub(lambda match: places.get(match[1], match[0]), source)


def with_constants(source: str) -> str:
    """Put numbers and texts in the place of their names: each name costs time at every call, and each function that
    uses it more."""
    values: dict[str, str] = {}
    for match in _CONSTANTS.finditer(source):
        for name, value in zip(_WORD.findall(match[1]), re.split(", *", match[2]), strict=True):
            if values.setdefault(name, value) != value:
                raise ValueError(f"{name} has two values in one script")
    if not values:
        return source

    def replaced(match: re.Match[str]) -> str:
        return f"({values[match[0]]})" if match[0] in values else match[0]

    return _CONSTANT.sub(replaced, _CONSTANTS.sub("", source))


def without_unused(source: str) -> str:
    """Return a source without the functions that nothing in it names: each costs time at every call of the script."""
    functions = {match[0]: (match[1], _words_of(match[0])) for match in _FUNCTION.finditer(source)}
    words, unused = _words_of(source).copy(), [""]
    while unused:
        unused = [text for text, (name, own) in functions.items() if words[name] == own[name]]
        for text in unused:
            words.subtract(functions.pop(text)[1])
            source = source.replace(text, "", 1)
    return source


def with_rare_functions_apart(source: str) -> str:
    """Return a source that makes the functions below ``--@rarely``, and those that only these name, when one is called:
    making one costs time."""
    rare = _rare_functions(source)
    if not rare:
        return source
    start, end = source[: rare[-1].end()], source[rare[-1].end() :]
    for match in rare:
        start = start.replace(match[0], "", 1)
    names = {match[1] for match in rare}
    start, end = _by_table(start, names), _by_table(end, names)
    outer = {name for match in _LOCAL.finditer(start) for name in _WORD.findall(match[1])}
    first, *others = (_made(group, names) for group in _groups(rare, outer))
    makers = "".join(f"local function make_{number}({_TABLE})\n{made}end\n" for number, made in enumerate(others, 1))
    calls = "".join(f"  make_{number}({_TABLE})\n" for number in range(1, len(others) + 1))
    body = f"  local {_TABLE} = {{}}\n  rarely = function() return {_TABLE} end\n{first}{calls}  return {_TABLE}\n"
    return f"local rarely\n{start}{makers}rarely = function()\n{body}end\n{end}"


def in_levels(source: str) -> str:
    """Return a source whose later parts are functions in the earlier ones. To make a function, Lua looks for each name
    that it uses among all those that functions of the same level have used, one after the other, but takes the names
    of outer levels as they are."""
    parts: list[str] = []
    start = names = 0
    for match in _LOCAL.finditer(source):
        if names >= NAMES_OF_LEVEL and len(parts) < LEVELS - 1:
            parts.append(source[start : match.start()])
            start, names = match.start(), 0
        names += len(_WORD.findall(match[1]))
    return "".join(f"{part}return (function()\n" for part in parts) + source[start:] + "end)()\n" * len(parts)


def _rare_functions(source: str) -> list[re.Match[str]]:
    """Return the functions below ``--@rarely``, and those that nothing but these names."""
    functions = {match[1]: match for match in _FUNCTION.finditer(source)}
    words = {name: _words_of(match[0]) for name, match in functions.items()}
    uses = _words_of(source).copy()
    rare = {name for name, match in functions.items() if f"--@rarely\nlocal function {name}(" in match[0]}
    more = rare
    while more:
        for name in more:
            uses.subtract(words[name])
        more = {name for name in functions.keys() - rare if uses[name] == words[name][name]}
        rare |= more
    return [match for name, match in functions.items() if name in rare]


def _made(group: Sequence[re.Match[str]], names: Container[str]) -> str:
    """Return the source that puts some of the rare functions into the table of all."""
    functions = _by_table("".join(match[0] for match in group), names)
    return _BEGINNING.sub(rf"{_TABLE}.\1 = function(", functions)


def _by_table(source: str, names: Container[str]) -> str:
    """Return a source that takes some functions from the table of rare ones."""
    return _USED.sub(lambda match: f"rarely().{match[0]}" if match[0] in names else match[0], source)


def _groups(rare: Sequence[re.Match[str]], outer: set[str]) -> list[list[re.Match[str]]]:
    """Divide the rare functions among those that make them, so that none uses more names from outside than Lua
    allows."""
    groups: list[list[re.Match[str]]] = [[]]
    used: set[str] = set()
    for match in rare:
        more = outer & {*_words_of(match[0])}
        if len(used | more) > MOST_UPVALUES:
            groups.append([])
            used = set()
        groups[-1].append(match)
        used |= more
    return groups


@lru_cache(1024)
def _words_of(source: str) -> Counter[str]:
    """Count the words in the code of a source."""
    return Counter(_WORD.findall(_COMMENT.sub("", source)))


def reload_all() -> None:
    """Let all scripts be loaded again at their next call, because the time was moved."""
    for script in _scripts:
        for name in ("source", "sha"):
            vars(script).pop(name, None)


_scripts: WeakSet[Script] = WeakSet()


class Script:
    """A script of the folder ``lua``, which `limpyd_jobs.redis.calls.run` sends."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.name = path.rpartition("/")[2]
        self._of_clusters: dict[str, Script] = {}
        _scripts.add(self)

    @cached_property
    def source(self) -> str:
        return load(self.path)

    @cached_property
    def positions(self) -> dict[str, int]:
        """The positions of the values of a request among the arguments, by name."""
        return {name: position for position, name in enumerate(names_in(self.source))}

    @cached_property
    def sha(self) -> str:
        return sha1(self.source.encode()).hexdigest()

    def at(self, sender: Any, keys: Sequence[str]) -> tuple[Script, Sequence[str]]:
        """Return the script, and its keys, as the database of a sender needs them. On a cluster, the keys that belong
        to no model begin with its tag, too, and the guard is the last key."""
        prefix = tags.prefix_at(sender)
        if not prefix:
            return self, keys
        tagged = (f"{prefix}{key}" if key.startswith("limpyd-jobs:") else key for key in keys)
        return self._of_cluster(prefix), (*tagged, f"{prefix}{tags.GUARD}")

    def _of_cluster(self, prefix: str) -> Script:
        found = self._of_clusters[prefix] = self._of_clusters.get(prefix) or ScriptOfCluster(self, prefix)
        return found


class ScriptOfCluster(Script):
    """A script for the keys of one tag. It takes the guard off its keys."""

    def __init__(self, plain: Script, prefix: str) -> None:
        super().__init__(plain.path)
        self._prefix = prefix

    @cached_property
    def source(self) -> str:
        return "KEYS[#KEYS] = nil " + load(self.path).replace("'limpyd-jobs:", f"'{self._prefix}limpyd-jobs:")
