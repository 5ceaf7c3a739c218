"""A real Prometheus reads our metrics, our rules fire, and all that the dashboard for Grafana asks for is there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from servers import RedisServer, free_port, wait_until

from limpyd_jobs import Job, Worker
from limpyd_jobs.contrib.prometheus.catalogue import OF_LIMITS, ROWS

MONITORING = Path(__file__).parents[2] / "docs" / "monitoring"
pytestmark = pytest.mark.usefixtures("redis_client")

COMMAND = str(Path(sys.executable).with_name("limpyd-jobs"))


class Invoice(Job):
    namespace = "monitored"
    queue_name = "invoices"

    def run(self, queue: Any) -> None:
        if self.identifier.hget() == "bad":
            raise ValueError("on purpose")


def program(name: str) -> str:
    found = shutil.which(name)
    if not found:
        without = pytest.fail if os.environ.get("CI") else pytest.skip
        without(f"{name} is not installed: apt-get install prometheus")
    return found


def promtool(*arguments: object, text: str | None = None) -> str:
    command = [program("promtool"), *map(str, arguments)]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def running(*command: object) -> Iterator[subprocess.Popen[str]]:
    child = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


@contextmanager
def metrics_of(server: RedisServer) -> Iterator[str]:
    with running(COMMAND, "metrics", "--port=0", f"--database={server.url}") as child:
        assert child.stdout
        yield child.stdout.readline().strip()


@contextmanager
def prometheus_of(address: str, folder: Path) -> Iterator[Any]:
    """A Prometheus that scrapes an address each second; yields a function that asks it."""
    rules = (MONITORING / "alerts.yml").read_text()
    (folder / "alerts.yml").write_text(re.sub(r"for: \d+m", "for: 0s", rules))
    config = (
        (MONITORING / "prometheus.yml").read_text().replace("127.0.0.1:8781", urllib.parse.urlsplit(address).netloc)
    )
    config = config.replace("scrape_interval: 15s", "scrape_interval: 1s")
    (folder / "prometheus.yml").write_text(f"global: {{evaluation_interval: 1s}}\n{config}")
    port = free_port()
    url = f"http://127.0.0.1:{port}/api/v1"

    def ask(path: str, **query: str) -> Any:
        with closing(urllib.request.urlopen(f"{url}/{path}?{urllib.parse.urlencode(query)}", timeout=30)) as response:
            return json.load(response)["data"]

    def answers() -> bool:
        try:
            return bool(ask("query", query="up == 1")["result"])
        except OSError:
            return False

    command = (program("prometheus"), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data")
    with running(*command, f"--web.listen-address=127.0.0.1:{port}"):
        wait_until(answers, "Prometheus has scraped")
        yield ask


def test_names_and_rules_are_as_promtool_wants_them(redis_server: RedisServer) -> None:
    Invoice.add_job("one")
    Worker("invoices", max_loops=1, logger_level=60).run()
    done = subprocess.run(
        [COMMAND, "metrics", "--once", f"--database={redis_server.url}"], capture_output=True, text=True, check=True
    )
    assert promtool("check", "metrics", text=done.stdout) == ""
    promtool("check", "config", MONITORING / "prometheus.yml")
    promtool("test", "rules", MONITORING / "alerts_test.yml")


def test_prometheus_reads_the_metrics_and_fires_an_alert(
    redis_server: RedisServer, redis_client: redis.Redis, tmp_path: Path
) -> None:
    for name in ("one", "two", "bad"):
        Invoice.add_job(name)
    Worker("invoices", max_loops=3, requeue_times=0, logger_level=60).run()
    waiting = Invoice.add_job("waits")
    waiting.added.hset("2026-01-01 00:00:00")
    with metrics_of(redis_server) as address, prometheus_of(address, tmp_path) as ask:

        def value(query: str) -> float:
            (found,) = ask("query", query=query)["result"]
            return float(found["value"][1])

        assert value('limpyd_jobs_jobs_total{queue="invoices", outcome="succeeded"}') == 2
        assert value('histogram_quantile(0.95, sum by (le) (limpyd_jobs_run_seconds_bucket{queue="invoices"}))') < 60
        types = {name: each[0]["type"] for name, each in ask("metadata").items() if name.startswith("limpyd_jobs")}
        assert types == {row.full_name: row.kind for row in ROWS if row not in OF_LIMITS}

        firing: dict[str, Any] = {}

        def fires() -> bool:
            alerts = ask("alerts")["alerts"]
            firing.update({each["labels"]["alertname"]: each for each in alerts if each["state"] == "firing"})
            return {"LimpydJobsNoWorkers", "LimpydJobsLatencyHigh", "LimpydJobsQueueWithoutWorker"} <= firing.keys()

        wait_until(fires, "alerts")
        assert firing["LimpydJobsLatencyHigh"]["labels"]["queue"] == "invoices"
        assert firing["LimpydJobsQueueWithoutWorker"]["annotations"]["summary"].endswith("invoices")

        redis_client.flushdb()  # the counters go on
        wait_until(lambda: value("sum(limpyd_jobs_queue_jobs) or vector(0)") == 0, "a scrape of the empty database")
        assert value("sum(limpyd_jobs_jobs_total)") == 3
        assert value("sum(resets(limpyd_jobs_jobs_total[5m]))") == 0

        for query in queries_of_the_dashboard():
            assert ask("query", query=query)["resultType"] == "vector", query


def queries_of_the_dashboard() -> Iterator[str]:
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    known = {row.full_name for row in ROWS}
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            query = target["expr"]
            names = {re.sub("_(bucket|sum|count)$", "", name) for name in re.findall(r"limpyd_jobs_\w+", query)}
            assert names <= known
            yield query.replace("$__rate_interval", "1m").replace("$instance", ".*").replace("$queue", ".*")


def test_the_dashboard_shows_and_the_rules_watch_the_metrics_that_there_are() -> None:
    rules = (MONITORING / "alerts.yml").read_text()
    named = {re.sub("_(bucket|sum|count)$", "", name) for name in re.findall(r"limpyd_jobs_\w+", rules)}
    assert named <= {row.full_name for row in ROWS}
    assert len([*queries_of_the_dashboard()]) >= 15
