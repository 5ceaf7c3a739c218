"""The manifests and the Dockerfile of the manual name what there is: options, probes, values, and times that fit."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from pages import ROOT, RUN_COMMAND, RUN_JOBS

from limpyd_jobs.commandline.options import queue_names, time_span
from limpyd_jobs.query import backlog
from limpyd_jobs.texts import read_size
from limpyd_jobs.workers.fleet.health import HEALTHY, answering
from limpyd_jobs.workers.process.pool import KILL_MARGIN

FOLDER = ROOT / "docs/howto/kubernetes"


def read(name: str) -> list[dict[str, Any]]:
    return [*yaml.safe_load_all((FOLDER / name).read_text())]


WORKERS, SCALED = read("workers.yaml")[0], read("scaledobject.yaml")[0]
SERVER, SERVICE = read("backlog.yaml")
SERVICES = read("compose.yaml")[0]["services"]
COMPOSED = SERVICES["workers"]


def instructions() -> dict[str, str]:
    """Those of the Dockerfile; of several of a kind, the last one."""
    lines = [line for line in (FOLDER / "Dockerfile").read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split(None, 1) for line in lines)


def container(deployment: dict[str, Any]) -> dict[str, Any]:
    (only,) = deployment["spec"]["template"]["spec"]["containers"]
    return dict(only)


def command_lines() -> Iterator[list[str]]:
    for deployment in (WORKERS, SERVER):
        yield [*container(deployment)["command"], *container(deployment)["args"]]
    found = instructions()
    yield [*json.loads(found["ENTRYPOINT"]), *json.loads(found["CMD"])]
    yield [*SERVICES["dashboard"]["entrypoint"], *SERVICES["dashboard"]["command"]]


def option(words: list[str], name: str) -> str:
    (value,) = (word.partition("=")[2] for word in words if word.startswith(f"--{name}="))
    return value


OF_WORKERS = [words for words in command_lines() if words[0] == "limpyd-jobs-worker"]


@pytest.mark.parametrize("words", [*command_lines()], ids=" ".join)
def test_the_commands_start(
    words: list[str], application: Path, run_python: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIMPYD_JOBS_WEB_TOKEN", "a-token-of-this-test")
    port = ["--port=0"] if "web" in words else []
    here = {"/srv/myapp": str(application), "/tmp": str(application), "8080": "0", "0.0.0.0": "127.0.0.1"}
    arguments = [re.sub("|".join(map(re.escape, here)), lambda found: here[found[0]], word) for word in words[1:]]
    run_python("-c", RUN_COMMAND if words in OF_WORKERS else RUN_JOBS, *arguments, *port, "--dry-run")


def test_the_probes_ask_what_is_answered() -> None:
    answer = answering(lambda: {1: HEALTHY})
    of_workers = container(WORKERS)
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        get = of_workers[name]["httpGet"]
        assert answer(get["path"]).status == 200
        assert get["port"] in [port["name"] for port in of_workers["ports"]]
    assert option(of_workers["args"], "health-port") == str(of_workers["ports"][0]["containerPort"])
    assert option(of_workers["args"], "health-host") == "0.0.0.0"  # the kubelet asks from outside
    assert "/live" in of_workers["livenessProbe"]["httpGet"]["path"]  # else all would restart when Redis is away


@pytest.mark.parametrize("words", OF_WORKERS, ids=" ".join)
def test_workers_have_the_time_and_the_memory_that_they_are_given(words: list[str]) -> None:
    of_pods = WORKERS["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    seconds = min(of_pods, int(COMPOSED["stop_grace_period"].removesuffix("s")))
    assert float(option(words, "grace-period")) + KILL_MARGIN < seconds
    limits = container(WORKERS)["resources"]["limits"]["memory"], COMPOSED["mem_limit"]
    needed = int(option(words, "processes")) * read_size(option(words, "max-memory"))
    assert needed < min(map(read_size, limits))


def test_keda_asks_for_what_the_server_answers(jobs_database: object) -> None:
    (trigger,) = SCALED["spec"]["triggers"]
    url = urlsplit(trigger["metadata"]["url"])
    service = SERVICE["metadata"]["name"], SERVICE["spec"]["ports"][0]["port"]
    assert (trigger["type"], url.hostname, url.port, url.path) == ("metrics-api", *service, "/backlog")
    given = {name: values[0] for name, values in parse_qs(url.query).items()}
    assert queue_names(given["queues"]) == option(container(WORKERS)["args"], "queues")
    assert time_span(given["within"])
    assert isinstance(backlog(given["queues"]).as_dict()[trigger["metadata"]["valueLocation"]], int)
    assert trigger["metadata"]["targetValue"] == option(container(WORKERS)["args"], "processes")
    assert SCALED["spec"]["scaleTargetRef"]["name"] == WORKERS["metadata"]["name"]
    assert "replicas" not in WORKERS["spec"]


@pytest.mark.parametrize("deployment", [WORKERS, SERVER], ids=["workers", "backlog"])
def test_selectors_find_their_pods(deployment: dict[str, Any]) -> None:
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    if deployment is SERVER:
        assert SERVICE["spec"]["selector"] == labels


def test_the_dockerfile_looks_at_the_file_that_the_worker_writes() -> None:
    known = {"FROM", "RUN", "WORKDIR", "COPY", "USER", "ENV", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    assert instructions().keys() == known
    check = shlex.split(instructions()["HEALTHCHECK"].partition(" CMD ")[2])
    assert option(OF_WORKERS[-1], "health-file") in check


# What the specification of Compose lets a service have, as far as it is used.
KEYS = {
    *("image", "build", "entrypoint", "command", "environment", "volumes", "depends_on", "restart", "healthcheck"),
    *("ports", "stop_grace_period", "mem_limit"),
}


def test_the_services_of_compose_fit_together() -> None:
    for name, service in SERVICES.items():
        assert service.keys() <= KEYS
        assert ("image" in service) != ("build" in service)
        for other, how in service.get("depends_on", {}).items():
            assert how == {"condition": "service_healthy"}
            assert SERVICES[other]["healthcheck"]["test"][0] == "CMD"
        if name != "redis":
            assert urlsplit(service["environment"]["LIMPYD_JOBS_DATABASE"]).hostname == "redis"
    volumes = {each.partition(":")[0] for service in SERVICES.values() for each in service.get("volumes", ())}
    assert volumes == read("compose.yaml")[0]["volumes"].keys()


@pytest.mark.parametrize("words", [words for words in command_lines() if "backlog" not in words], ids=" ".join)
def test_all_that_look_at_jobs_name_the_modules_of_the_jobs(words: list[str]) -> None:
    assert option(words, "job-modules") == "myapp.jobs"


def test_all_workers_say_how_many_finished_jobs_are_kept() -> None:
    assert [option(words, "keep-success") for words in OF_WORKERS] == ["1000"] * 2
