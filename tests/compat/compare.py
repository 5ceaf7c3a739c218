"""Makes what two versions said in a story comparable: as lines, each with a key and a value.

What cannot be the same in two runs is replaced: dates and times near now (by what they are relative to the beginning of
the story), durations, the ids of workers, all but the ends of tracebacks, and the pks of queues (by name and priority).
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

# Keys and fields that only version 3 has.
OURS = {
    "*/_claim_token": "the claim on a job that runs",
    "*/_rescues": "how often a job lost its worker",
    "*:idle_workers*": "the workers that wait for a job, and when their registration lapses",
    "*:reconcile_lock": "that somebody looked for lost jobs lately",
    "*:_signal:*": "what ends the wait of a worker",
    "*limpyd-jobs:classes*": "which job classes there are",
    "*limpyd-jobs:figures:*": "how many jobs were run, and how they ended",
    "*:workerpresence:*": "which workers are there",
    "*:paused": "the names of the queues that are paused",
    "*/_queue_key": "the queue that takes care of the job, or did last",
    "*/_job_timeout": "how long a job may run",
    "*/_retry_policy": "when a job is tried again",
    "*/_uncounted_tries": "how many tries its retry policy does not count",
    "*/_quick_returns": "how often its code put it back to be run at once",
    "*/_follows": "which canceled job has to end before",
    "*/_followed_by": "which job waits for its end",
    "*/_first_priority": "which priority it had before its retry policy changed it",
    "*/_requeued_at": "when it was put back in its queue by hand",
    "*/_fingerprint": "what errors of the same cause have in common",
    "*/_raised_in": "where the application raised an error",
    "*/_message_pattern": "what messages of the same cause have in common",
    "*:_fingerprint:*": "the errors of a cause",
    "*/_app_version": "the version of the application in which an error happened",
    "*/_last_claim": "the claim that ended, for its worker to be told the same if it asks again",
    "*:_running*": "the leases on the jobs of a queue that run",
    "*:_deferrals*": "how often a job was deferred, as its class is unknown",
    "*:_quarantine*": "what was found in a list of a queue, and is no job that can be run",
}

# What is different on purpose, in all stories.
ON_PURPOSE = {
    f"hash/job_started begins/{field}": "A job is running from the very moment when it is taken from its list."
    for field in ("status", "start", "tries")
}

QUEUE_MODELS = ("jobs:queue", "stories:album")
DATE_STEP = timedelta(seconds=30)  # stories take less than that, and wait for multiples of it

DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{6})?")
DATE = re.compile(r"\d{4}-\d\d-\d\d")
TIME = re.compile(r"(?<![\d:.-])\d\d:\d\d:\d\d(\.\d{6})?(?!\d)")
DURATION = re.compile(r"\b0:00:\d\d(\.\d{6})?\b")
QUEUE_KEY = re.compile(rf"\b({'|'.join(QUEUE_MODELS)}):(\d+)\b")
WORKER_ID = re.compile(r"^\[\d{6}\]")
# A job that was deleted is nothing unexpected: version 3 shows no traceback.
TRACEBACK_OF_DELETED = re.compile(r"(Unable to get job: No \w+ found with pk \S+)\nTraceback .*", re.DOTALL)
TYPE_OF_ERROR = re.compile(r"((?:\]|unexpected) error: )[A-Z]\w*(?:: |(?= \[))")  # which version 2 leaves out
# Version 2 logs the text of an exception in several lines.
LINES_OF_ERROR = re.compile(r"(?<=\] error: ).*(?= \[(?:NOT )?requeued\])", re.DOTALL)
REASON_OF_END = re.compile(r"(?<=\)): [\w ()=]+$")  # so it does
# Version 3 adds a note, which the log and the traceback show: which class that is, and what it lacks.
WITHOUT_RUN = re.compile(
    r"(?<=You must implement your own action)(?: \(|\n)\w+ has no method run\(self, queue\)[\w ,]*(?:\)(?= \[))?"
)
TRACEBACK = re.compile(r"^Traceback .*", re.MULTILINE | re.DOTALL)


class Line(NamedTuple):
    """Something that was said: ``state/in the end/jobs:job:1:hash/status`` and ``"w"``."""

    key: str
    value: str

    def __str__(self) -> str:
        return f"{self.key} = {self.value}"


def comparable(said: list[list[Any]]) -> list[Line]:
    """Return what a version said as lines."""
    began = datetime.fromisoformat(said[0][1])
    lines: list[Line] = []
    for index, event in enumerate(said[1:], 1):
        next_state = next(later[2] for later in said[index:] if later[0] == "state")
        normalizer = Normalizer(began, next_state)
        lines += (Line(normalizer.text(key), normalizer.json(value)) for key, value in flattened(event))
    return [line for line in lines if not matching(line.key, [*OURS, *ON_PURPOSE])]


def flattened(event: list[Any]) -> Iterator[tuple[str, Any]]:
    """Divide an event in pairs of a key and a value."""
    kind, what, *rest = event
    if kind == "state":
        for key, (type_name, content) in rest[0].items():
            yield from flattened_content(f"state/{what}/{key}", type_name, content)
    elif kind == "hash":
        details, content, places = rest
        yield f"hash/{what}", details
        yield from flattened_content(f"hash/{what}", "hash", content)
        yield from ((f"hash/{what}/in {place}", True) for place in places)
    else:
        yield f"{kind}/{what}", rest


def flattened_content(path: str, type_name: str, content: Any) -> Iterator[tuple[str, Any]]:
    if type_name == "hash":
        yield from ((f"{path}/{field}", value) for field, value in sorted(content.items()))
    elif type_name == "set":
        yield from ((f"{path}/{member}", True) for member in content)
    elif type_name == "zset":
        yield from ((f"{path}/{member}", score) for member, score in content)
    else:
        yield path, content


class Normalizer:
    """Replaces what differs from run to run.

    Parameters
    ----------
    began: datetime
        When the story began, naive UTC.
    state: dict
        The content of the database soon after, to know the queues and the dates of the jobs.
    """

    def __init__(self, began: datetime, state: Mapping[str, Any]) -> None:
        self.began = began
        hashes = {key: content for key, (kind, content) in state.items() if kind == "hash"}
        self.dates = {epoch_of(fields["delayed_until"]) for fields in hashes.values() if "delayed_until" in fields}
        self.queues = {
            tuple(key.rsplit(":", 2)[:2]): f"{fields.get('name')}@{fields.get('priority')}"
            for key, fields in hashes.items()
            if key.startswith(QUEUE_MODELS) and key.endswith(":hash")
        }

    def json(self, value: Any) -> str:
        return json.dumps(self.value(value), ensure_ascii=False, sort_keys=True)

    def value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, float):
            return self.score(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {self.text(key): self.value(item) for key, item in value.items()}
        return value

    def text(self, text: str) -> str:
        text = QUEUE_KEY.sub(self._queue_key, text)
        text = self._queue_member(text)
        text = WORKER_ID.sub("[id]", text)
        text = WITHOUT_RUN.sub("", text)
        text = TRACEBACK.sub(lambda match: f"Traceback … {match[0].strip().splitlines()[-1]}", text)
        text = TRACEBACK_OF_DELETED.sub(r"\1", text)
        text = TYPE_OF_ERROR.sub(r"\1", text)
        text = LINES_OF_ERROR.sub(lambda match: match[0].replace("\n", "\\n"), text)
        text = REASON_OF_END.sub("", text) if "Run terminated" in text else text
        text = DATE_TIME.sub(lambda match: self.date_time(match[0]), text)
        text = DATE.sub(lambda match: self._date(match[0]), text)
        text = TIME.sub(lambda match: self._time(match[0]), text)
        return DURATION.sub("<duration>", text)

    def score(self, score: float) -> float | str:
        if score in self.dates:
            return "<epoch of a delayed_until>"
        try:
            moment = datetime(1970, 1, 1) + timedelta(seconds=score)
        except OverflowError:
            return score
        return self.date_time(str(moment)) if abs(moment - self.began) < timedelta(days=1) else score

    def date_time(self, text: str) -> str:
        moment = datetime.fromisoformat(text)
        if abs(moment - self.began) > timedelta(days=1):
            return text
        began = self.began if moment.microsecond else self.began.replace(microsecond=0)
        steps = (moment - began) // DATE_STEP
        exact = "" if moment.microsecond else ", whole second"
        return f"<now{steps * DATE_STEP.seconds:+}s{exact}>" if steps else f"<now{exact}>"

    def _date(self, text: str) -> str:
        near = {str((self.began + timedelta(days=days)).date()) for days in (0, 1)}
        return "<today>" if text in near else text

    def _time(self, text: str) -> str:
        for date in (self.began.date(), self.began.date() + timedelta(days=1)):
            if timedelta(seconds=-1) <= datetime.fromisoformat(f"{date} {text}") - self.began < DATE_STEP:
                return "<time>"
        return text

    def _queue_key(self, match: re.Match[str]) -> str:
        return f"{match[1]}:{self.queues.get((match[1], match[2]), match[2])}"

    def _queue_member(self, key: str) -> str:
        """Name the queue at the end of ``state/…/jobs:queue:collection/2``."""
        path, _, member = key.rpartition("/")
        model = next((model for model in QUEUE_MODELS if f"/{model}:" in path), "")
        return f"{path}/{self.queues[model, member]}" if (model, member) in self.queues else key


def epoch_of(text: str) -> float | None:
    try:
        return (datetime.fromisoformat(text) - datetime(1970, 1, 1)).total_seconds()
    except ValueError:
        return None


def matching(key: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in patterns)


def differences(old: list[list[Any]], new: list[list[Any]], not_copied: Iterable[str]) -> str:
    """Compare what two versions said in a story.

    Parameters
    ----------
    not_copied: iterable of str
        What may differ: patterns of keys of lines.

    Returns
    -------
    str
        The differences, for people; empty if there is none.
    """
    kept = [[str(line) for line in comparable(said) if not matching(line.key, not_copied)] for said in (old, new)]
    return "\n".join(difflib.unified_diff(*kept, "version 2", "version 3", lineterm="", n=2))


def same_after_all(tellings: Iterable[tuple[list[list[Any]], list[list[Any]]]], pattern: str) -> bool:
    """Whether nothing that matches a pattern differs between the versions, in any telling of a story."""
    return all(matching_lines(old, pattern) == matching_lines(new, pattern) for old, new in tellings)


def matching_lines(said: list[list[Any]], pattern: str) -> list[Line]:
    return [line for line in comparable(said) if fnmatchcase(line.key, pattern)]
