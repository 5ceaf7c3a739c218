"""What the messages of one cause have in common: ``<value>`` and other words stand for what differs from job to job."""

from __future__ import annotations

import re
from collections.abc import Sequence

LOOKED_AT = 2000  # how many characters of a message are looked at
MAX_PATTERN = 300  # how many characters a pattern has at most

# What differs from job to job, and the word that stands for it; tried in this order. A value is any word with a digit:
# were numbers, codes and hexadecimal ids told apart, an id that by chance has no letter would make another pattern.
# What stands before a word is looked at, so that no pattern tries all the places of a long one.
_VARIABLES = (
    ("<identifier>", r"<identifier>"),
    ("<text>", r"(?<!\w)[bru]{0,2}'(?:\\.|[^'\\])*'(?!\w)"),
    ("<text>", r'(?<!\w)[bru]{0,2}"(?:\\.|[^"\\])*"(?!\w)'),
    ("<text>", r"(?<!\w)`[^`]*`(?!\w)"),
    ("<path>", r"\b(?<![+.-])[a-z][a-z0-9+.-]*://[^\s'\"<>]+(?<![.,:;)\]])"),
    ("<address>", r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+"),
    ("<path>", r"(?<![\w.~@%+<:-])(?:[a-z]:)?[\w.~@%+-]*(?:[/\\][\w.~@%+=-]+){2,}[/\\]?(?<!\.)"),
    ("<path>", r"(?<![\w.~@%+</-])/?(?:[\w.~@%+-]+[/\\])[\w-]+\.[a-z]\w{0,4}\b"),
    ("<value>", r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\b"),
    ("<value>", r"(?<![\w-])(?:(?<![)\]])[+-])?(?=[a-z_-]*\d)\w+(?:-\w+|[.,:+]\d\w*)*%?"),
    ("<value>", r"\d+"),
)
_VARIABLE = re.compile("|".join(f"({pattern})" for _, pattern in _VARIABLES), re.IGNORECASE | re.DOTALL)

# Lists, whose length differs: in brackets, the inner ones first, and without.
_WORD = r"<(?:identifier|text|address|path|value|list)>"
_ITEM = rf"(?:{_WORD}|None|True|False)"
_BRACKETS = re.compile(
    rf"(?<!\w)(?:\[(?:{_ITEM}|[\s,:])*\]|\{{(?:{_ITEM}|[\s,:])*\}}|\({_ITEM}?,(?:{_ITEM}|[\s,:])*\)|"
    r"\[[\w.-]+(?:, ?[\w.-]+)+\])"
)
_SEQUENCE = re.compile(rf"({_WORD})(?:(?:,|;| \||/) ?(?:and |or )?{_WORD}| (?:and|or|&) {_WORD})+")
DEEPEST = 4  # how many brackets in brackets make one list

# Up to three words after a value: ``1 file is missing`` and ``2 files are missing`` are alike.
_COUNTED = re.compile(r"(?<=<value>)(?: [A-Za-z]+){1,3}")
_SINGULAR = {"are": "is", "were": "was", "have": "has", "do": "does", "these": "this", "those": "that"}
_ENDINGS = (("ies", "y"), ("sses", "ss"), ("shes", "sh"), ("ches", "ch"), ("xes", "x"), ("s", ""))

# What names a host: the beginning of an address without a password, a name with a port, or of three parts and more.
_HOST = re.compile(
    r"(?<![\w+.-])(?P<site>[a-z][a-z0-9+.-]*://[\w.-]+(?::\d+)?)(?P<rest>[/?#][^\s'\"<>]*(?<![.,:;)\]]))?(?![\w@:])"
    r"|(?<![\w.@/-])[\w-]+(?:\.[\w-]+)*\.[a-z]{2,}:\d{1,5}(?![\w.])"
    r"|(?<![\w.@/-])(?:[\w-]+\.){2,}[a-z]{2,}(?![\w.@/:-])",
    re.IGNORECASE,
)

# What versions of Python say differently, as the later ones do.
_REWORDED = (
    (
        re.compile(r"^local variable (<text>) referenced before assignment$"),
        r"cannot access local variable \1 where it is not associated with a value",
    ),
    (
        re.compile(r"^free variable (<text>) referenced before assignment in enclosing scope$"),
        r"cannot access free variable \1 where it is not associated with a value in enclosing scope",
    ),
    (re.compile(r"^(maximum recursion depth exceeded) .*$"), r"\1"),
    (re.compile(r"( got an unexpected keyword argument <text>)\. Did you mean <text>\?$"), r"\1"),
)

# The end of a message that is not looked at whole: a text or a list that goes on behind it.
_UNCLOSED = re.compile(r"(?<!\w)(?:[bru]{0,2}'[^']*|[bru]{0,2}\"[^\"]*|[\[{(][^\])}]*)$")
_NOTHING_ELSE = re.compile(rf"(?:{_WORD}|\W)*")


def pattern_of(message: str, identifier: str = "") -> str:
    """Return a message in one line, words in the place of values, addresses, paths, quoted texts, lists, and the
    identifier of the job, if that is not a value itself.

    >>> pattern_of("no page 12 of 'report.pdf'")
    'no page <value> of <text>'
    """
    text = message[:LOOKED_AT]
    if identifier and not is_variable(_with_words(identifier)):
        text = re.sub(rf"(?<![^\W_]){re.escape(identifier)}(?![^\W_])", "<identifier>", text)
    text = _with_words(text)
    if len(message) > LOOKED_AT:
        text = _UNCLOSED.sub("<text>", text)
    text = _with_lists(text)
    text = _COUNTED.sub(lambda match: " ".join(map(_singular, match[0].split(" "))), text)
    for pattern, replacement in _REWORDED:
        text = pattern.sub(replacement, text)
    return text[:MAX_PATTERN]


def shown_pattern(pattern: str, examples: Sequence[str]) -> str:
    """Return a pattern as people read it: with plurals, and with the hosts that all examples name. The pattern itself,
    which is stored, and by which messages are told apart, has neither.

    >>> shown_pattern("<value> file is missing", ["2 files are missing", "7 files are missing"])
    '<value> files are missing'
    """
    if "<identifier>" in pattern or not examples or any(pattern_of(each) != pattern for each in examples):
        return pattern
    with_hosts = {_with_lists(_with_hosts(each))[:MAX_PATTERN] for each in examples}
    return with_hosts.pop() if len(with_hosts) == 1 else _with_lists(_with_words(examples[0]))[:MAX_PATTERN]


def is_variable(pattern: str) -> bool:
    """Whether a pattern says nothing, because all of the message differs from job to job."""
    return bool(_NOTHING_ELSE.fullmatch(pattern))


def _with_words(text: str) -> str:
    return _VARIABLE.sub(lambda match: _VARIABLES[(match.lastindex or 1) - 1][0], text)


def _with_hosts(text: str) -> str:
    """Return the same with the names of hosts."""
    parts, at = list[str](), 0
    for match in _HOST.finditer(text):
        site = match["site"]
        host = match[0] if site is None else f"{site}{'/<path>' if match['rest'] else ''}"
        parts += [_with_words(text[at : match.start()]), host]
        at = match.end()
    return "".join([*parts, _with_words(text[at:])])


def _with_lists(text: str) -> str:
    """Return a text in one line, with one word for each list."""
    for _ in range(DEEPEST):
        text = _BRACKETS.sub("<list>", text)
    return " ".join(_SEQUENCE.sub(r"\1", text).split())


def _singular(word: str) -> str:
    if word in _SINGULAR:
        return _SINGULAR[word]
    if len(word) > 3 and not word.endswith(("ss", "us", "is")):
        for ending, singular in _ENDINGS:
            if word.endswith(ending):
                return word.removesuffix(ending) + singular
    return word
