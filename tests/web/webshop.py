"""A shop whose jobs are in every state: what the pages show in tests and in pictures."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from math import sin
from random import Random
from typing import Any

import redis
from limpyd import fields

from limpyd_jobs import Flow, Job, Limit, Queue, Schedule, Worker, WorkerPresence, chain
from limpyd_jobs.integration import acting_for
from limpyd_jobs.query import JobFilter
from limpyd_jobs.records import metrics, presences
from limpyd_jobs.records.metrics import Metrics


class OfShop(Job):
    namespace = "shop"
    abstract = True
    keep_history = 20


class SendMail(OfShop):
    queue_name = "mails"
    to = fields.InstanceHashField(indexable=True)
    keep_result = True

    def run(self, queue: Any) -> str:
        to = self.to.hget()
        self.log(f"connecting to the server of {to}")
        if to.endswith(".invalid"):
            raise ConnectionError(f"cannot reach the server of {to}: connection refused")
        self.progress(1, "sent")
        return f"sent to {to}"


class ResizeImage(OfShop):
    queue_name = "images"
    path = fields.InstanceHashField()

    def run(self, queue: Any) -> None:
        raise ValueError(f"{self.path.hget()} is not an image")


class Invoice(OfShop):
    queue_name = "invoices"
    customer = fields.InstanceHashField()

    def run(self, queue: Any) -> str:
        if self.customer.hget() == "47":
            raise ValueError("customer 47 has no address")
        return f"invoice of {self.customer.hget()}"


class Report(OfShop):
    queue_name = "reports"

    def run(self, queue: Any) -> int:
        return len(self.results())


class ChargeCard(OfShop):
    queue_name = "payments"
    card_number = fields.InstanceHashField()
    order = fields.InstanceHashField(indexable=True)

    def run(self, queue: Any) -> None: ...


class Payout(OfShop):
    queue_name = "payouts"
    amount = fields.InstanceHashField()

    def run(self, queue: Any) -> str:
        return f"paid, as {self.wait_for('approval', timeout=timedelta(days=3))} agreed"


class Translate(OfShop):
    queue_name = "translations"
    model = fields.InstanceHashField()
    tokens = fields.InstanceHashField()
    limits = [Limit("model", concurrency=2)]

    def run(self, queue: Any) -> None:
        self.emit(*["Une ", "théière ", "de ", "grès, ", "tournée ", "à ", "la ", "main."])


PATH = SendMail.get_model_repr()

# Queues in which all is well, and about how many jobs of each run in a minute.
PACES = {"search-index": 1200, "stock-sync": 800, "webhooks": 180, "invoices": 90, "reports": 2}

# Other workers: the pk, the name, how many jobs it runs, how many at once, and its queue.
OTHERS = (
    ("3", "web1:1902", 15, 16, "search-index"),
    ("4", "web2:1760", 6, 8, "stock-sync"),
    ("5", "web3:2077", 3, 12, "webhooks"),
    ("6", "web3:2240", 1, 4, "invoices"),
    ("7", "web1:1955", 0, 2, "reports"),
)

# How many mails wait: more than a page has.
WAITING = 120


def fill(client: redis.Redis) -> None:
    """Add jobs, and let them be run, delayed, canceled and held."""
    _run_some()
    _add_some(client)
    _register_workers(client)
    _write_metrics(client)
    _note_versions(client)
    _plan(client)
    _make_flows()
    _wait_and_emit()


def _run_some() -> None:
    for number in range(1, 9):
        SendMail.add_job(f"order:{number}", to=f"ann{number}@example.com")
    for number in range(1, 5):
        SendMail.add_job(f"offer:{number}", to=f"bob{number}@example.invalid")
        ResizeImage.add_job(f"photo:{number}", path=f"/photos/{number}.txt")
    Worker("mails,images", max_loops=16, logger_level=60).run()


def _add_some(client: redis.Redis) -> None:
    SendMail.add_jobs([f"news:{number}" for number in range(WAITING)])
    for number in range(3):
        ChargeCard.add_job(f"order:{number}", card_number="4111111111111111", order=f"{number}")
        ResizeImage.add_job(f"later:{number}", path="/photos/9.jpg", delayed_for=timedelta(hours=number + 1))
    with acting_for("ann"):
        Queue.pause("payments")
    ResizeImage.add_job("canceled", path="/photos/8.jpg").cancel()
    held = ResizeImage.add_job("large", path="/photos/large.jpg", priority=5)
    held.claim(owner="web1:4711:aaaaaaaaaaaa", lease=3600)
    held.progress(0.4, "12 of 30 tiles")
    held.log("reading /photos/large.jpg")
    lost = ResizeImage.add_job("lost", path="/photos/lost.jpg", priority=5)
    lost.claim(owner="web2:815:bbbbbbbbbbbb", lease=3600)
    for name in PACES:
        Queue.get_queue(name)
    images = Queue.get_queue("images")
    client.rpush(f"jobs:queue:{images.pk.get()}:_quarantine", "not the ident of a job")
    JobFilter("status=canceled").move_all("archive")


def _register_workers(client: redis.Redis) -> None:
    now = client.time()[0]
    for pk, name, ident, ends in (("1", "web1:4711", "14", now + 3000), ("2", "web2:815", "15", now + 1200)):
        running = [[f"{__name__}.ResizeImage:{ident}", "large", "2026-11-25 12:00:00"]]
        details = {
            "queues": ["mails", "images", *PACES],
            "queue_model": "jobs:queue",
            "status": "busy",
            "running": running,
            "done": 1200,
            "failed": 12,
            "memory": 61_000_000,
            "options": {"concurrency": 8},
            "versions": {"application": "2026.11.28-2"},
        }
        fields_of = {"kind": "worker", "name": f"{name}:{'ab'[int(pk) - 1] * 12}", "host": name.split(":")[0]}
        presences.keep(
            WorkerPresence,
            pk,
            {**fields_of, "pid": name.split(":")[1], "details": json.dumps({**details, "lease": 3000})},
            3000,
            takes_orders="1",
        )
        client.zadd("jobs:workerpresence:leases", {pk: ends})
    for pk, name, busy, slots, queue in OTHERS:
        _register(client, pk, name, busy, slots, queue)
    for how, name in (("silent", "web3:1544"), ("ended", "web1:1201")):
        details = json.dumps({"queues": ["mails"], "queue_model": "jobs:queue", "done": 6480, "failed": 2})
        fields_of = {
            "name": name,
            "host": name.split(":")[0],
            "pid": name.split(":")[1],
            "how": how,
            "until": "",
            "_lease": "",
        }
        client.xadd(presences.ENDED, {**fields_of, "since": "2026-11-27 09:00:00", "details": details})


def _register(client: redis.Redis, pk: str, name: str, busy: int, slots: int, queue: str) -> None:
    """Register a worker in which all is well."""
    began = f"{datetime.now(timezone.utc) - timedelta(seconds=busy):%Y-%m-%d %H:%M:%S}"
    details = {
        "queues": [queue],
        "queue_model": "jobs:queue",
        "status": "busy" if busy else "idle",
        "running": [[f"shop.{queue.title().replace('-', '')}:{number}", f"{number}", began] for number in range(busy)],
        "done": 900 * slots + busy,
        "memory": 52_000_000 + 4_000_000 * slots,
        "options": {"concurrency": slots},
        "versions": {"application": "2026.11.28-2"},
        "lease": 3600,
    }
    host, pid = name.split(":")
    fields_of = {
        "kind": "worker",
        "name": f"{name}:{pk * 12}",
        "host": host,
        "pid": pid,
        "details": json.dumps(details),
    }
    presences.keep(WorkerPresence, pk, fields_of, 3600)


def _write_metrics(client: redis.Redis) -> None:
    """Write what an hour of work leaves, and what the next minutes will, in which pictures are taken."""
    now, chance = client.time()[0] // 60 * 60, Random(7)
    for ago in range(-8, 60):
        for queue, path, number in (("mails", PATH, 120), ("images", f"{__name__}.ResizeImage", 40)):
            row, failing = Metrics(), 0.2 if queue == "images" and ago < 15 else 0.01
            for _ in range(number + chance.randrange(30)):
                row.observe_start(chance.expovariate(20))
                row.observe_end(chance.expovariate(2), is_success=chance.random() > failing)
            values = {f"{queue}\n{path}": " ".join(map(str, row.numbers))}
            client.hset(f"{metrics.KEY}minute:{now - 60 * ago}", mapping=values)
        _write_paces(client, now - 60 * ago, ago, chance)
        waiting, running = 30 + int(92 * min(max(0, 16 - ago) / 16, 1)), 8 + chance.randrange(5)
        levels = {
            "mails": f"{waiting + chance.randrange(9)} 2",
            "search-index": f"{chance.randrange(20)} {running}",
            "images": f"{chance.randrange(9)} 2",
        }
        client.hset(f"{metrics.LEVELS}{now - 60 * ago}", mapping=levels)


def _write_paces(client: redis.Redis, minute: int, ago: int, chance: Random) -> None:
    """Write what was run in a minute of the queues in which all is well: some times of jobs stand for many."""
    for at, (queue, pace) in enumerate(PACES.items()):
        row, number = Metrics(), int(pace * (1.15 + 0.1 * sin((ago + 9 * at) / 7)) + chance.randrange(pace // 10 + 2))
        for _ in range(number // 20 + 1):
            row.observe_start(chance.expovariate(8 / (at + 1)))
            row.observe_end(chance.expovariate(3 / (at + 1)), is_success=True)
        times = number / (number // 20 + 1)
        numbers = " ".join(f"{int(each * times)}" for each in row.numbers)
        client.hset(f"{metrics.KEY}minute:{minute}", f"{queue}\nshop.{queue}.Run", numbers)


def _note_versions(client: redis.Redis) -> None:
    now = client.time()[0]
    client.zadd("limpyd-jobs:figures:versions", {"2026.11.28-1": now - 3000, "2026.11.28-2": now - 960})


def _plan(client: redis.Redis) -> None:
    nightly = Schedule.add("newsletter", SendMail, cron="30 7 * * mon", timezone="Europe/Paris")
    Schedule.add("cleanup", ResizeImage, interval=3600)
    client.hset(f"jobs:schedule:{nightly.pk.get()}:hash", "next_run", "2026-11-23 06:30:00")


def _make_flows() -> None:
    """Make a flow in which a job failed, one that goes on, and one that has ended."""
    with Flow("month-end:2026-11") as flow:
        ledger = flow.add(Invoice.prepare(customer="0"), name="Close the ledger")
        invoices = [flow.add(Invoice.prepare(customer=f"{number}"), after=ledger) for number in (12, 31, 47)]
        report = flow.add(Report.prepare(), after=invoices, name="Report of the month")
        flow.add(SendMail.prepare(to="cfo@example.com"), after=report, name="Mail it")
        flow.add(Report.prepare(), after=invoices, on_error="run", name="List what failed")
    chain(Report.prepare(), SendMail.prepare(to="ann@example.com"), name="weekly").cancel()
    Worker("invoices", max_loops=4, logger_level=60).run()
    with Flow("catalogue") as flow:
        pages = [flow.add(ResizeImage.prepare(path=f"/photos/{number}.jpg", delayed_for=7200)) for number in range(200)]
        flow.add(Report.prepare(), after=pages)


def _wait_and_emit() -> None:
    """Let jobs wait for a person, and for their limits, and let one emit its output."""
    with Flow("payouts:2026-11") as flow:
        payouts = [flow.add(Payout.prepare(amount=amount)) for amount in ("1200", "80")]
        flow.add(Report.prepare(), after=payouts)
    Worker("payouts", max_loops=2, logger_level=60).run()
    Translate.add_job("page:1", model="large", tokens="700")
    Worker("translations", max_loops=1, logger_level=60).run()
    jobs = [Translate.add_job(f"page:{number}", model="large", tokens=f"{300 * number}") for number in range(2, 8)]
    for job, owner in zip(jobs, ("web3:2077:555555555555", "web3:2240:666666666666"), strict=False):
        job.claim(owner=owner, lease=3600)
    Worker("translations", timeout=0.1, max_duration=0.3, logger_level=60).run()  # it parks the others
