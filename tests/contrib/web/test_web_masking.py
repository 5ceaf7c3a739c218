"""What is secret is nowhere: on no page, in no JSON, in no feed, for whoever may only look."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
import redis
from asking import BROWSER, PROGRAM, Dashboard
from limpyd import fields
from servers import RedisServer

from limpyd_jobs import Job, Queue, Schedule
from limpyd_jobs.contrib.web.masking import Mask
from limpyd_jobs.contrib.web.pages import PAGES, check
from limpyd_jobs.models import WorkerPresence
from limpyd_jobs.query import JobFilter
from limpyd_jobs.records import known_classes, presences
from limpyd_jobs.records.known_classes import KEY, KnownClass

pytestmark = pytest.mark.usefixtures("redis_client")

TOKEN, VIEW_TOKEN = "a-token-of-admins", "a-token-of-viewers"

VIEWER = {"authorization": f"Bearer {VIEW_TOKEN}"}
PROGRAM_OF_VIEWER = {**VIEWER, "accept": "application/json"}

# Begins all that must not be seen; each place has its own, so that a failure says which one it is.
SECRET = "PLANTED"


class Payment(Job):
    namespace = "web-masking"
    queue_name = "payments"
    account = fields.InstanceHashField(indexable=True)
    notes = fields.InstanceHashField()
    parts = fields.ListField()
    masked_fields = ("identifier", "account", "pin")

    def run(self, queue: Any) -> None: ...


def pin(place: str) -> str:
    """Return JSON with a secret of a place."""
    return json.dumps({"to": "ann", "pin": f"{SECRET}-{place}"})


def cut(place: str) -> str:
    """Return JSON whose middle, with the name of the secret, is left out by whoever stores errors."""
    return json.dumps({"to": "x" * 40_000, "pin": "y" * 30_000 + f"{SECRET}-{place}"})


def planted(client: redis.Redis) -> list[str]:
    """Plant secrets in all places; return the idents of jobs that have them."""
    failed, long, added, doomed, broken = Payment.add_jobs(
        [f"{SECRET}-identifier-{name}" for name in ("failed", "long", "added", "doomed", "broken")]
    )
    trace = "Traceback (most recent call last):\n  File …\nValueError: "
    with failed.claim(owner="w") as claim:
        failed.log(pin("log"))
        failed.progress(0.5, pin("progress"))
        claim.fail(ValueError(pin("message")), trace=f"{trace}{pin('message')}\n\nValueError: {pin('message')}")
    with long.claim(owner="w") as claim:  # the message fits, and the traceback does not
        message = json.dumps({"pin": f"{SECRET}-fits", "to": "x" * 65_000})
        claim.fail(ValueError(message), trace=f"{trace}{message}\n" + "  another line\n" * 300)
    with broken.claim(owner="w") as claim:  # neither does
        claim.fail(KeyError(cut("cut")), trace=f"{trace}{cut('cut')}")
    for each in (1, 2):  # whose messages differ in all their words, so that a sentence is made of them
        other = Payment.add_job(f"{SECRET}-identifier-{each}", account=f"{SECRET}-account", parts=[pin("list")])
        with other.claim(owner="w") as claim:
            claim.fail(RuntimeError(pin(f"{each}")), trace=f"{trace}{pin(f'{each}')}")
    added.account.hset(f"{SECRET}-account")
    added.notes.hset(pin("notes"))
    client.hset(f"{Payment._name}:{added.pk.get()}:hash", "_cursor", f'{{"send": {pin("cursor")}}}')
    doomed.cancel()
    client.hset(f"{Payment._name}:{doomed.pk.get()}:hash", "_cancel_reason", pin("reason"))
    Schedule.add("nightly", Payment, interval=3600, identifier=f"{SECRET}-planned", notes=pin("plan"))
    JobFilter(f"account={SECRET}-audit").cancel_all()
    JobFilter(f"queue=payments identifier={SECRET}-audit").cancel_all()
    client.rpush(f"{Queue.get_queue('payments')._name}:1:_quarantine", pin("entry"))
    client.rpush(f"{Queue.get_queue('payments')._name}:1:waiting", pin("waits"))
    index = f"{Payment._name}:account:"
    client.sadd(f"{index}{SECRET}-index", added.pk.get())
    client.srem(f"{index}{SECRET}-account", added.pk.get())
    client.set(f"{index}{SECRET}-key", "no set")
    running = [[added.ident, f"{SECRET}-identifier-running", "2026-11-25 12:00:00"]]
    details = json.dumps({"queues": ["payments"], "running": running})
    presences.keep(WorkerPresence, "w", {"kind": "worker", "name": "w", "details": details}, 3600, takes_orders="1")
    return [failed.ident, long.ident, added.ident, doomed.ident, broken.ident, other.ident]


def addresses(dashboard: Dashboard, idents: list[str]) -> Iterator[str]:
    """Yield the addresses of all pages, also with what a viewer may ask for."""
    yield from (page.path for page in PAGES if "{" not in page.path)
    yield from (f"/jobs/{quote(ident)}" for ident in idents)
    yield from ("/live", "/workers/w", "/schedules/schedule?name=nightly", "/jobs/words?q=PLAN", "/jobs/words?q=acc")
    yield from (f"/jobs/facets?by={name}" for name in ("account", "identifier", "notes", "_cursor", "error"))
    for words in (f"account={SECRET}", "account>A", "identifier>A", f'notes>{{"to": "ann", "pin": "{SECRET}'):
        yield f"/jobs?{urlencode({'q': words})}"
        yield f"/errors?{urlencode({'q': words})}"
    fingerprints = [each["fingerprint"] for each in dashboard.get("/errors", PROGRAM_OF_VIEWER).json["groups"]]
    assert len(fingerprints) == 4
    yield from (f"/errors/cause?fingerprint={each}" for each in fingerprints)


def assert_nowhere(dashboard: Dashboard, asked: Iterator[str]) -> None:
    for address in asked:
        for headers in ({**BROWSER, **VIEWER}, PROGRAM_OF_VIEWER):
            answer = dashboard.get(address, headers)
            assert answer.status < 500, (address, answer.text)
            own = quote(SECRET) in address
            found = [] if own else [part[:60] for part in answer.text.split(SECRET)[1:]]
            assert not found, (address, found)


@pytest.mark.proof
def test_no_page_shows_what_is_secret(redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "PAUSE", 0.0)
    idents = planted(redis_client)
    dashboard = Dashboard(token=TOKEN, view_token=VIEW_TOKEN)
    assert dashboard.post("/errors/count", {}, PROGRAM_OF_VIEWER).status < 300
    begun = dashboard.post("/check/run", {}, PROGRAM_OF_VIEWER).json
    while not dashboard.get(begun["progress"], PROGRAM_OF_VIEWER).json["is_over"]:
        pass
    checked = dashboard.get("/check", PROGRAM_OF_VIEWER).text
    assert "is in the index of the account '(masked)'" in checked
    assert f"{Payment._name}:account:(masked)" in checked
    assert "is not an ident of a job" in checked
    assert_nowhere(dashboard, addresses(dashboard, idents))


class Letter(Job):
    namespace = "web-masking-letters"
    queue_name = "letters"
    masked_fields = ("progress", "log", "cursor", "cancel_reason", "message")

    def run(self, queue: Any) -> None: ...


def test_what_a_job_tells_of_itself_can_be_masked(redis_client: redis.Redis) -> None:
    told = Letter.add_job("told")
    with told.claim(owner="w") as claim:
        told.log(f"{SECRET}-log")
        told.progress(0.5, f"{SECRET}-progress")
        claim.fail(ValueError(f"{SECRET}-message"), trace=f"ValueError: {SECRET}-message")
    key = f"{Letter._name}:{told.pk.get()}:hash"
    redis_client.hset(key, "_cursor", json.dumps({"send": f"{SECRET}-cursor"}))
    canceled = Letter.add_job("canceled")
    canceled.cancel()
    redis_client.hset(f"{Letter._name}:{canceled.pk.get()}:hash", "_cancel_reason", f"{SECRET}-reason")
    dashboard = Dashboard(token=TOKEN, view_token=VIEW_TOKEN)
    assert_nowhere(dashboard, iter([f"/jobs/{told.ident}", f"/jobs/{canceled.ident}", "/errors"]))
    shown = dashboard.get(f"/jobs/{told.ident}", PROGRAM_OF_VIEWER).json["job"]
    assert shown["progress"]["text"] == shown["cursor"] == "(masked)"
    for name in ("_cursor", "_progress_state", "_cancel_reason"):
        assert dashboard.get(f"/jobs/facets?by={name}", PROGRAM_OF_VIEWER).status == 403


def test_tracebacks_cannot_be_searched_if_messages_are_masked_or_by_json_in_their_midst() -> None:
    answer = Dashboard().get("/errors?traceback__gt=A", PROGRAM)  # the message of a Letter is masked
    assert (answer.status, "traceback is masked" in answer.text) == (403, True)
    assert Mask({"pin"}).asks_for_a_secret("traceback", 'Traceback …\nValueError: {"pin": "a')
    assert not Mask({"pin"}).asks_for_a_secret("traceback", "Traceback …\nValueError: bad")


@pytest.mark.proof
def test_a_process_that_does_not_import_a_class_knows_what_is_secret_in_it(
    redis_client: redis.Redis, redis_server: RedisServer
) -> None:
    idents = planted(redis_client)
    stored = KnownClass.parse(redis_client.hget(KEY, Payment.get_model_repr()) or "")
    assert stored.masked == {"identifier", "account", "pin"}
    asked = [*addresses(Dashboard(token=TOKEN, view_token=VIEW_TOKEN), idents)]
    arguments = [redis_server.socket, json.dumps([address for address in asked if quote(SECRET) not in address])]
    folder = Path(__file__).parent
    found = subprocess.run(
        [sys.executable, "-c", READER, *arguments],
        cwd=folder,
        timeout=120,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "(masked)" in found.stdout
    assert [part[:60] for part in found.stdout.split(SECRET)[1:]] == []


READER = """
import json, sys
from asking import PROGRAM, Dashboard
from limpyd_jobs.integration import JobsDatabase

dashboard = Dashboard(database=JobsDatabase(unix_socket_path=sys.argv[1]))
for address in json.loads(sys.argv[2]):
    print(dashboard.get(address).text, dashboard.get(address, PROGRAM).text)
assert "test_web_masking" not in sys.modules
"""


def test_a_traceback_that_does_not_have_the_masked_message_as_a_whole_is_hidden(redis_client: redis.Redis) -> None:
    failed, long, *_, broken, _ = planted(redis_client)
    dashboard = Dashboard(token=TOKEN, view_token=VIEW_TOKEN)

    def last_error(ident: str) -> Any:
        return dashboard.get(f"/jobs/{ident}", PROGRAM_OF_VIEWER).json["job"]["errors"][0]

    assert last_error(failed)["traceback"].endswith('ValueError: {"to": "ann", "pin": "(masked)"}')
    for ident in (long, broken):
        assert "this text does not have it as it is stored" in last_error(ident)["traceback"]


def test_if_not_all_classes_can_be_read_nothing_is_shown_that_may_be_secret_in_the_others(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = json.dumps({"size": f"{SECRET}-size"})
    schedule = Schedule.add("nightly", Payment, interval=3600, identifier=f"{SECRET}-planned")
    schedule.job_model_repr.hset("shop.jobs.Other")
    schedule.job_fields.hset(size)
    failed = Payment.add_job("failed")
    with failed.claim(owner="w") as claim:
        claim.fail(ValueError(f"{SECRET}-message"), trace="ValueError: …")
    redis_client.rpush(f"{Queue.get_queue('payments')._name}:1:_quarantine", size)
    for path in ("a.First", "a.Second"):
        redis_client.hset(KEY, path, KnownClass(path, path, frozenset({"status"}), {}, {}, frozenset()).as_json())
    monkeypatch.setattr(known_classes, "MAX_CLASSES", 2)
    dashboard = Dashboard(token=TOKEN, view_token=VIEW_TOKEN)
    assert_nowhere(dashboard, iter(["/schedules", "/schedules/schedule?name=nightly", "/quarantine", "/errors"]))
    assert dashboard.get("/errors?message=x", PROGRAM_OF_VIEWER).status == 403
    assert dashboard.get("/jobs?status=waiting", PROGRAM_OF_VIEWER).status == 200


def test_what_is_stored_of_a_class_that_is_not_known_is_masked_as_that_of_any(redis_client: redis.Redis) -> None:
    Payment.add_job("one")
    schedule = Schedule.add("nightly", Payment, interval=3600, identifier=f"{SECRET}-planned")
    schedule.job_model_repr.hset("shop.jobs.Other")
    assert_nowhere(Dashboard(token=TOKEN, view_token=VIEW_TOKEN), iter(["/schedules/schedule?name=nightly"]))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"a": "… 6.0 kB left out …b"}x', "(masked)"),
        ('{"a": "bc… (1,000 characters)', "(masked)"),
        ('\\ufeff{"pin": "s"', "(masked)"),
        ("{a} … 6.0 kB left out …", "(masked)"),
        ("bad … 6.0 kB left out …", "bad … 6.0 kB left out …"),
        ("{no json}", "{no json}"),
    ],
)
def test_what_was_cut_is_hidden_if_it_may_hold_a_secret(text: str, shown: str) -> None:
    assert Mask({"pin"}).text(text) == shown


def test_a_long_filter_of_the_audit_is_read_once() -> None:
    looked = 0

    class Counting(str):
        def rfind(self, *args: Any) -> int:
            nonlocal looked
            looked += 1
            return super().rfind(*args)

    text = Counting("a={ " * 15_000)
    assert Mask({"pin"}).filter(text) == text
    assert looked == 2
    assert Mask({"pin"}).filter('to=a b={"pin": 1') == "to=a b=(masked)"
    assert Mask({"pin"}).filter('pin=a b={"pin": 1') == "pin=(masked)"


def test_a_hidden_identifier_of_a_schedule_is_not_sent_back_by_the_form(redis_client: redis.Redis) -> None:
    planted(redis_client)
    dashboard = Dashboard()
    address = "/schedules/schedule?name=nightly"
    sent = {**dashboard.read(address)["form"], "name": "nightly", "interval": "7200"}
    assert sent["identifier"] == ""
    assert dashboard.post("/schedules/edit", sent).status == 303
    assert Schedule.get_by_name("nightly").identifier.hget() == f"{SECRET}-planned"


@pytest.mark.parametrize(
    ("names", "are_secret"),
    [
        ("token api_token apiToken token_value access_tokens authTokens refresh-tokens", True),
        ("tokens max_tokens total_tokens maxTokens tokens_used token_count tokenLimit tokenizer tokenized", False),
    ],
)
def test_a_token_is_secret_and_a_number_of_tokens_is_not(names: str, are_secret: bool) -> None:
    assert {Mask(frozenset()).is_secret(name) for name in names.split()} == {are_secret}
