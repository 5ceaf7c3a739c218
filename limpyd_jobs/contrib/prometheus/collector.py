"""From what is known of a database to families of samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from threading import Lock
from time import monotonic

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.utils import floatToGoString

from limpyd_jobs.contrib.prometheus import catalogue
from limpyd_jobs.contrib.prometheus.catalogue import MAX_NAMED, OTHER, OUTCOMES, STATUSES, Row
from limpyd_jobs.integration import JobsDatabase, one_line
from limpyd_jobs.query import BOUNDS, Fleet, Metrics, QueueState, look_at_fleet

# For how many seconds what was seen is answered again.
SEEN_FOR = 1.0

FAMILIES = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}

# Of workers that listen to their queues.
LISTENING = ("starting", "busy", "idle")

LES = (*map(floatToGoString, BOUNDS), "+Inf")

# How many rows are kept at most, of names that are not in Redis any more. There, fewer fit in.
MAX_KEPT = 2_000

Key = tuple[str, str]
Labels = tuple[str, ...]
Samples = Mapping[Labels, float]


class FleetCollector:
    """Collects what is known of a database and of all its workers, for a registry of ``prometheus_client``.

    >>> from prometheus_client import REGISTRY
    >>> REGISTRY.register(FleetCollector())

    Counters go on where they were if their sums in Redis are deleted, as long as this object lives.

    Parameters
    ----------
    database: JobsDatabase
        That of `BaseJobsModel` by default.
    """

    def __init__(self, database: JobsDatabase | None = None) -> None:
        self._database = database
        self._counters = Counters()
        self._lock = Lock()
        self._seen: tuple[float, list[Metric]] | None = None

    def describe(self) -> Iterable[Metric]:
        """Return the families without samples."""
        return [_family(row) for row in catalogue.ROWS]

    def collect(self) -> Iterable[Metric]:
        """Return the families; Redis is asked at most once a second. An exception of redis-py is raised if it fails."""
        with self._lock:
            if self._seen is None or monotonic() - self._seen[0] > SEEN_FOR:
                fleet = look_at_fleet(self._database)
                totals = self._counters.count(fleet.totals)
                self._seen = (
                    monotonic(),
                    [
                        *_of_queues(fleet),
                        *_of_workers(fleet),
                        *_of_limits(fleet),
                        *_of_jobs(totals),
                    ],
                )
            return self._seen[1]


def _of_queues(fleet: Fleet) -> Iterator[Metric]:
    named = _named(fleet)
    jobs, lapsed, latency, paused = Counter[Labels](), Counter[Labels](), dict[Labels, float](), dict[Labels, float]()
    for queue in fleet.queues:
        labels = named.get(_pair(queue), (OTHER, OTHER))
        for status in ("waiting", "delayed", "running"):
            key = (*labels, status)
            jobs[key] += getattr(queue, status)
        lapsed[labels[:1]] += queue.lapsed
        paused[labels] = max(paused.get(labels, 0), queue.is_paused)
        waited = queue.latency if queue.waiting else 0.0
        if waited is not None:
            latency[labels] = max(latency.get(labels, 0.0), waited)
    yield _family(catalogue.QUEUE_JOBS, jobs)
    yield _family(catalogue.LAPSED, lapsed)
    yield _family(catalogue.QUEUE_LATENCY, latency)
    yield _family(catalogue.QUEUE_PAUSED, paused)
    listening = Counter(
        _label(name) for worker in fleet.workers if worker.status in LISTENING for name in {*worker.queues}
    )
    names = sorted({name for name, _ in named.values()})
    yield _family(catalogue.QUEUE_WORKERS, {(name,): listening[name] for name in names})
    shown = {"by_name": len(named), f"as_{OTHER}": len(fleet.queues) - len(named), "not_at_all": fleet.queues_left_out}
    yield _family(catalogue.QUEUES, {(how,): number for how, number in shown.items()})
    yield _family(catalogue.QUARANTINE, {(): sum(queue.quarantine for queue in fleet.queues)})


def _named(fleet: Fleet) -> dict[tuple[str, str, str], Labels]:
    """Return the labels of the queues that have some: first of those with workers, or whose jobs were run."""
    known = {name for worker in fleet.workers for name in worker.queues} | {name for name, _ in fleet.totals}
    ranked = sorted(map(_pair, fleet.queues), key=lambda pair: (pair[1] not in known, pair))
    return {pair: (_label(pair[1]), _label(pair[2])) for pair in ranked[:MAX_NAMED]}


def _pair(queue: QueueState) -> tuple[str, str, str]:
    is_number = isinstance(queue.priority, int)
    return queue.model, queue.name, str(queue.priority) if is_number else "not a number"


def _of_workers(fleet: Fleet) -> Iterator[Metric]:
    statuses = Counter(each.status if each.status in STATUSES else OTHER for each in fleet.workers)
    yield _family(catalogue.WORKERS, {(status,): statuses[status] for status in (*STATUSES, OTHER)})
    yield _family(catalogue.STALLED, {(): len(fleet.stalled)})
    yield _family(catalogue.LATENESS, {(): fleet.schedule_lateness})


def _of_limits(fleet: Fleet) -> Iterator[Metric]:
    """Yield the families of limits; none where no limit is in use."""
    taken, allowed, parked = Counter[Labels](), Counter[Labels](), Counter[Labels]()
    for number, each in enumerate(fleet.limits):
        labels = (_label(each.name), _label(each.owner)) if number < MAX_NAMED else (OTHER, OTHER)
        taken[labels] += each.taken
        parked[labels] += each.parked
        if each.allowed is not None:
            allowed[labels] += each.allowed
    for row, samples in zip(catalogue.OF_LIMITS, (taken, allowed, parked), strict=True):
        if samples:
            yield _family(row, samples)


def _of_jobs(totals: Mapping[tuple[str, str], Metrics]) -> Iterator[Metric]:
    by_class: dict[Labels, Metrics] = {}
    by_queue: dict[Labels, Metrics] = {}
    for (name, path), metrics in sorted(totals.items()):
        queue, job_class = _label(name), _label(path)
        by_class.setdefault((queue, job_class), Metrics()).add(metrics)
        by_queue.setdefault((queue,), Metrics()).add(metrics)
    yield _family(
        catalogue.JOBS,
        {(*labels, outcome): getattr(each, outcome) for labels, each in by_class.items() for outcome in OUTCOMES},
    )
    yield _histograms(catalogue.RUN, "ran", by_class)
    yield _histograms(catalogue.WAIT, "waited", by_queue)


def _histograms(row: Row, name: str, metrics: Mapping[Labels, Metrics]) -> Metric:
    family = HistogramMetricFamily(row.full_name, row.about, labels=row.labels)
    for labels, each in metrics.items():
        histogram = getattr(each, name)
        counts = map(float, accumulate(histogram.counts))
        buckets = [*zip(LES, counts, strict=True)]
        family.add_metric(labels, buckets, histogram.microseconds / 1_000_000)
    return family


def _family(row: Row, samples: Samples | None = None) -> Metric:
    family = FAMILIES[row.kind](row.full_name, row.about, labels=row.labels)
    for labels, value in (samples or {}).items():
        family.add_metric(labels, value)
    return family


def _label(text: str) -> str:
    """Return a stored text as the value of a label: in one line, and not too long."""
    return one_line(text) or OTHER


class Counters:
    """The sums of all time, by queue and class. If those in Redis fall or are gone, because they were deleted or a
    backup was restored, what was counted until then is kept, and they are added to it."""

    def __init__(self) -> None:
        self._last: Mapping[Key, Metrics] = {}
        self._kept: dict[Key, Metrics] = {}

    def count(self, totals: Mapping[Key, Metrics]) -> dict[Key, Metrics]:
        """Take the sums as they are in Redis now; return those that never fall."""
        for key, last in self._last.items():
            now = totals.get(key)
            if now is None or any(number < before for number, before in zip(now.numbers, last.numbers, strict=True)):
                self._kept.setdefault(key, Metrics()).add(last)
        self._last = totals
        gone = [key for key in self._kept if key not in totals]
        for key in gone[: max(len(self._kept) - MAX_KEPT, 0)]:
            del self._kept[key]
        return {key: self._sum_of(key) for key in {**self._kept, **totals}}

    def _sum_of(self, key: Key) -> Metrics:
        total = Metrics()
        for part in (self._kept, self._last):
            if key in part:
                total.add(part[key])
        return total
