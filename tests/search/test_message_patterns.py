"""What messages have in common: words stand for all that differs from job to job."""

from __future__ import annotations

from cases import each

from limpyd_jobs.search.message_patterns import MAX_PATTERN, is_variable, pattern_of, shown_pattern


@each(
    ("message", "expected"),
    [
        ("page 12 of 30", "page <value> of <value>"),
        ("took -1.5s or 3e-7, 1,204 times", "took <value> time"),
        ("at 2026-11-23T10:30:00.123", "at <value>"),
        ("at 2026-11-23 10:30", "at <value>"),
        ("50%, x=1", "<value>, x=<value>"),
        ("no file 'a b.pdf'", "no file <text>"),
        ('no "it\'s" here', "no <text> here"),
        (r"no b'\x00\'' here", "no <text> here"),
        ("don't, it isn't", "don't, it isn't"),
        ("<Page object at 0x7f3a5c0e>", "<Page object at <value>>"),
        ("order 123e4567-e89b-12d3-a456-426614174000 is gone", "order <value> is gone"),
        ("no SKU-12A, user_7", "no <value>"),
        ("facade decade", "facade decade"),
        ("ann.b+c@mail.example.com bounced", "<address> bounced"),
        ("cannot open /data/3f/ab/x.pdf.", "cannot open <path>."),
        (r"cannot open C:\data\ab\x", "cannot open <path>"),
        ("cannot open ab/photo.jpg", "cannot open <path>"),
        ("no answer of https://example.com/a?b=c.", "no answer of <path>."),
        ("and/or n/a TCP/IP text/html", "and/or n/a TCP/IP text/html"),
        ("127.0.0.1:6379 refused", "<value> refused"),
        ("Error in parse() (most recent)", "Error in parse() (most recent)"),
        ("two\n   lines", "two lines"),
        ("", ""),
    ],
)
def test_what_differs_from_job_to_job_is_left_out(message: str, expected: str) -> None:
    assert pattern_of(message) == expected


@each(
    "messages",
    [
        ("no commit 3fa9c1d", "no commit 1234567", "no commit 12"),
        ("took 999 ms", "took 1,000 ms"),
        ("no ids [1, 2]", "no ids [7]", "no ids []", "no ids ['a', None]"),
        ("bad rows [{'a': 1}, {'b': [2, 3]}]", "bad rows [{'a': 1}]"),
        ("no columns (1, 'a')", "no columns (1,)"),
        ("no fields [name, email]", "no fields [name, email, age]"),
        ("no pages: 1, 2 and 3", "no pages: 1", "no pages: 4 or 5"),
        ("1 file is missing", "12 files are missing"),
        ("1 new address was refused", "3 new addresses were refused"),
        ("1 entry has no name", "2 entries have no name"),
        (f"bad payload '{'a' * 3000}'", "bad payload 'a'"),
    ],
)
def test_messages_of_one_kind_have_one_pattern(messages: tuple[str, ...]) -> None:
    assert len(set(map(pattern_of, messages))) == 1


@each("identifiers", [("ann", "welcome:bob", "a page"), ("7", "667", "9999", "SKU-1A", "12.5")])
def test_identifiers_of_any_length_make_no_difference(identifiers: tuple[str, ...]) -> None:
    assert len({pattern_of(f"no address {each}", each) for each in identifiers}) == 1
    assert pattern_of("no file_ann.pdf for ann, annoyed", "ann") == "no file_<identifier>.pdf for <identifier>, annoyed"


def test_a_message_of_nothing_else_is_known() -> None:
    assert all(map(is_variable, ("", "<text>", "(<value>, <text>)", "<list>")))
    assert not is_variable("no <text>")


@each("unit", ["/", "a/", "'", "[", "[1, ", "1-", "a-", "a.", "1, ", " ", "_-", "(1,", "[: ", "1a@"])
def test_a_long_message_takes_no_long_time(unit: str) -> None:
    assert len(pattern_of(unit * 5000, unit * 10)) <= MAX_PATTERN


@each(
    ("examples", "told"),
    [
        (["2 files are missing", "7 files are missing"], "<value> files are missing"),
        (["1 file is missing"], "<value> file is missing"),
        (
            ["POST https://api.bank.example/v2/1 failed", "POST https://api.bank.example/v2/2 failed"],
            "api.bank.example",
        ),
        (["no answer of db-1.shop.internal:5432"], "no answer of db-1.shop.internal:5432"),
        (["GET https://a.example/v2/1 failed", "GET https://b.example/v2/2 failed"], "GET <path> failed"),
        (["GET https://ann:secret@a.example/v2/1 failed"], "GET <path> failed"),
        (["no such file: photo12.jpg"], "no such file: <value>.jpg"),
    ],
)
def test_a_message_is_shown_with_its_plurals_and_hosts_and_kept_without(examples: list[str], told: str) -> None:
    """So causes that are stored stay the same."""
    pattern = pattern_of(examples[0])
    assert told in shown_pattern(pattern, examples)
    assert pattern_of(examples[-1]) == pattern
    assert "secret" not in shown_pattern(pattern, examples)
    assert shown_pattern(f"{pattern} <identifier>", examples) == f"{pattern} <identifier>"
