"""What a worker logs: which class, which type of error, and why it ended."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from running import messages, work, worker_of

from limpyd_jobs import Error, Job, Queue, Worker, events, job
from limpyd_jobs.dates import utcnow
from limpyd_jobs.texts import traceback_of
from limpyd_jobs.workers.log import ClassNames
from limpyd_jobs.workers.running.announcer import is_read

pytestmark = pytest.mark.usefixtures("redis_client")


class Mail(Job):
    namespace = "messages"
    queue_name = "queue"


class Push(Mail):
    pass


@pytest.fixture(autouse=True)
def _same_handlers_afterwards() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class TestClasses:
    def test_jobs_are_told_apart_once_a_queue_has_several_classes(self, log: pytest.LogCaptureFixture) -> None:
        def callback(job: Job, queue: Queue) -> None:
            if isinstance(job, Push):
                raise ValueError("it failed")

        for job_class, identifier in ((Mail, "a"), (Push, "b"), (Mail, "c")):
            job_class.add_job(identifier)
        Mail.add_job("alone", "other", priority=-1)
        worker = worker_of("queue,other", callback=callback, max_loops=4, requeue_times=1)
        worker.run()
        texts = [message for message in messages(log) if not message.startswith("Run ")]
        durations = [Mail.get(pk).duration for pk in (1, 2, 3)]
        until = Push.get(1).delayed_until.hget()
        assert texts == [
            "[queue|1|a] starting",
            f"[queue|1|a] success, in {durations[0]}",
            "[queue|1|b] starting (Push)",
            "[queue|1|b] error: ValueError: it failed [requeued] (Push)",
            f"[queue|1|b] requeued with priority -1, delayed until {until} (Push)",
            "[queue|2|c] starting (Mail)",
            f"[queue|2|c] success, in {durations[1]} (Mail)",
            "[other|3|alone] starting",
            f"[other|3|alone] success, in {durations[2]}",
        ]

    def test_the_function_of_a_job_is_named_in_any_case(self, log: pytest.LogCaptureFixture) -> None:
        post.add()
        Worker("posts", max_loops=1, terminate_gracefuly=False).run()
        assert [line for line in log.messages if line.endswith(" (post)")] == log.messages[-3:-1]

    def test_a_class_whose_identifiers_are_made_is_named_from_its_first_job_on(
        self, log: pytest.LogCaptureFixture
    ) -> None:
        Mail.add_job()
        Push.add_job()
        work(callback=None, max_loops=2)
        lines = [line.rpartition(" ")[2] for line in messages(log) if not line.startswith("Run ")]
        assert lines == ["(Mail)", "(Mail)", "(Push)", "(Push)"]

    def test_classes_of_one_name_are_told_apart_by_their_paths(self) -> None:
        names = ClassNames()
        for path in ("shop.jobs.Mail", "news.jobs.Mail", "shop.jobs.Push"):
            names.add("queue", path)
        assert names.mark("queue", "shop.jobs.Mail") == " (shop.jobs.Mail)"
        assert names.mark("queue", "shop.jobs.Push") == " (Push)"
        assert names.mark("other", "shop.jobs.Push") == ""


@job(queue="posts")
def post() -> None: ...


class Lines(logging.Handler):
    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


class TestReaders:
    """Lines that nothing would see are not made."""

    def test_whether_a_line_is_read_depends_on_all_handlers_up_to_the_first_that_does_not_propagate(self) -> None:
        parent, child = logging.Logger("parent"), logging.Logger("parent.child", logging.INFO)
        child.parent, parent.propagate = parent, False
        assert (is_read(child, "info"), is_read(child, "warning")) == (False, True)  # as `logging.lastResort` does
        parent.addHandler(logging.NullHandler(logging.ERROR))
        assert (is_read(child, "info"), is_read(child, "warning"), is_read(child, "error")) == (False, False, True)
        parent.addHandler(Lines(logging.INFO))
        assert (is_read(child, "info"), is_read(child, "debug")) == (True, False)
        child.propagate = False
        assert not is_read(child, "info")
        child.addFilter(lambda record: True)  # it may count, or send elsewhere
        assert is_read(child, "info")

    def test_who_begins_to_read_while_a_job_runs_reads_its_end(self) -> None:
        logger, late = logging.getLogger("limpyd-jobs.late"), Lines(logging.INFO)
        logger.propagate = False
        logger.addHandler(early := Lines(logging.WARNING))

        def callback(job: Job, queue: Queue) -> None:
            logger.addHandler(late)

        job = Mail.add_job("a")
        worker = worker_of("queue", callback=callback, max_loops=1, logger_name=logger.name)
        try:
            worker.run()
        finally:
            logger.handlers.clear()
        said = [text.partition("] ")[2] for text in late.texts]
        assert said[0] == f"[queue|1|a] success, in {Mail.get(job.pk.get()).duration}"
        assert early.texts == []


class TestErrors:
    @pytest.mark.parametrize(
        ("error", "text", "stored"),
        [(KeyError("to"), "KeyError: 'to'", "'to'"), (ValueError("odd"), "ValueError: odd", "odd")],
    )
    def test_the_type_is_logged_and_the_stored_message_is_that_of_the_exception(
        self, log: pytest.LogCaptureFixture, error: Exception, text: str, stored: str
    ) -> None:
        def callback(job: Job, queue: Queue) -> None:
            raise error

        job = Mail.add_job("a")
        work(callback=callback)
        assert f"[queue|1|a] error: {text} [NOT requeued]" in messages(log)
        (saved,) = Error.collection_for_job(job).instances()
        assert saved.hmget("type", "message") == [type(error).__name__, stored]

    def test_an_exception_without_a_text_is_logged_by_its_type(self, log: pytest.LogCaptureFixture) -> None:
        def callback(job: Job, queue: Queue) -> None:
            raise TimeoutError

        Mail.add_job("a")
        work(callback=callback)
        assert "[queue|1|a] error: TimeoutError [NOT requeued]" in messages(log)


def test_a_job_that_puts_itself_back_is_not_said_to_be_delayed(log: pytest.LogCaptureFixture) -> None:
    def callback(job: Job, queue: Queue) -> None:
        if job.tries.hget() == "1":
            job.enqueue_or_delay("queue", 0)

    Mail.add_job("a")
    work(callback=callback, max_loops=2)
    records = [(record.levelname, text) for record, text in zip(log.records, messages(log), strict=True)]
    assert ("INFO", "[queue|1|a] job put back in its queue") in records
    assert "delayed" not in log.text


class Unwilling(Worker):
    def must_stop(self) -> bool:
        return super().must_stop() or self.num_loops == 1


def stop_by_attribute(worker: Worker) -> None:
    worker.end_forced = True


def stop_by_date(worker: Worker) -> None:
    worker.wanted_end_date = utcnow()


def stop_by_signal(worker: Worker) -> None:
    signal.raise_signal(signal.SIGTERM)


class OwnCatcher(Worker):
    def catch_end_signal(self, signum: int, frame: Any) -> None:
        self.end_signal_caught = self.end_forced = True


class TestReasonOfTheEnd:
    @pytest.mark.parametrize(
        ("stop", "options", "reason"),
        [
            (None, {"max_loops": 1}, "max_loops=1 is reached"),
            (None, {"max_duration": 0.2}, "max_duration is over"),
            (None, {"worker_class": Unwilling}, "must_stop() is true"),
            (stop_by_attribute, {}, "end_forced was set"),
            (stop_by_date, {"max_duration": None}, "wanted_end_date has passed"),
            (stop_by_signal, {"terminate_gracefuly": True}, "SIGTERM caught"),
            (stop_by_signal, {"terminate_gracefuly": True, "worker_class": OwnCatcher}, "a signal was caught"),
        ],
    )
    def test_the_last_line_says_it(
        self,
        log: pytest.LogCaptureFixture,
        stop: Callable[[Worker], None] | None,
        options: dict[str, Any],
        reason: str,
    ) -> None:
        Mail.add_job("a")
        worker = worker_of(**{"max_loops": 5, **options}, callback=lambda *_: stop and stop(worker))
        worker.run()
        assert messages(log)[-1] == f"Run terminated, with 1 loops (duration={worker.elapsed}): {reason}"

    def test_an_end_that_was_asked_for_is_no_alarm(self, log: pytest.LogCaptureFixture) -> None:
        Mail.add_job("a")
        worker = worker_of(callback=lambda *_: stop_by_signal(worker), terminate_gracefuly=True)
        worker.run()
        assert "SIGTERM caught: ending, after the running job if there is one" in messages(log)
        assert {record.levelno for record in log.records} == {logging.INFO}


# What a line of the log must not have as it is: an end of the line, ESC, an override of the direction of writing.
NASTY = "no\n[038480] [q|1|x] success\r\x1b[2J\x85\u2028\u2029\u202e"


class Evil(Exception):
    """An exception whose text, code and notes raise another."""

    def __str__(self) -> str:
        raise self.args[0]

    code = __notes__ = property(__str__)


def fail_with(error: BaseException) -> Any:
    def call(job: Job, queue: Queue) -> None:
        raise error

    return call


def is_safe(text: str) -> bool:
    return all(line.replace("\t", "").isprintable() for line in text.split("\n"))


class TestHostileTexts:
    """Whoever can add a job, or let one fail, writes no lines of the log of their own."""

    def test_an_error_is_one_line_and_bounded(self, log: pytest.LogCaptureFixture) -> None:
        Mail.add_job(f"a{NASTY}", f"q{NASTY}q")
        work(f"q{NASTY}q", callback=fail_with(ValueError(NASTY + "x" * 3_000_000)))
        messages = [record.getMessage() for record in log.records]
        assert any("error: ValueError: no\\n[038480]" in message for message in messages)
        assert [message[:80] for message in messages if not message.isprintable() or len(message) > 5_000] == []

    @pytest.mark.parametrize("name", [NASTY, f"  {NASTY}", "\x1b[31m\n[999] forged"])
    def test_the_name_of_a_class_of_errors_forges_no_line(self, log: pytest.LogCaptureFixture, name: str) -> None:
        error = type(name + "x" * 3_000_000, (Exception,), {"__module__": "__main__"})("a")
        Mail.add_job("a")
        work(Mail.queue_name, callback=fail_with(error))
        lines = [record.getMessage() for record in log.records]
        assert [line[:80] for line in lines if not line.isprintable() or len(line) > 5_000] == []
        try:
            raise error
        except Exception as raised:
            first, *others = traceback_of(raised).split("\n")
        assert first == "Traceback (most recent call last):"
        assert is_safe("".join(others))
        assert [line for line in others if line.startswith("[")] == []

    def test_a_traceback_has_no_line_that_looks_like_one_of_the_log(self, log: pytest.LogCaptureFixture) -> None:
        class Failing(Worker):
            def job_success(self, job: Job, queue: Queue, job_result: Any) -> None:
                try:
                    raise KeyError(NASTY)
                except KeyError as error:
                    raise ValueError(NASTY + "x" * 3_000_000) from error

        Mail.add_job("a")
        work(Mail.queue_name, worker_class=Failing)
        (message,) = [record.getMessage() for record in log.records if "Traceback" in record.getMessage()]
        assert is_safe(message)
        assert len(message) < 20_000
        assert "… 3.0 MB left out …" in message[-10_000:-5_000]
        at_the_left = [line for line in message.split("\n") if line[:1].strip()]
        assert [line.partition(":")[0] for line in at_the_left[1:]] == [
            *("Traceback (most recent call last)", "KeyError"),
            "The above exception was the direct cause of the following exception",
            *("Traceback (most recent call last)", "ValueError"),
        ]

    def test_a_group_of_exceptions_is_logged_whole(self) -> None:
        try:
            raise ExceptionGroup("several", [ValueError("one\nof them"), KeyError("two")])
        except ExceptionGroup as error:
            lines = traceback_of(error).split("\n")
        assert any("ValueError: one" in line for line in lines)
        assert any("KeyError: 'two'" in line for line in lines)
        assert [line for line in lines if line[:1].strip()] == []

    def test_what_an_application_says_reaches_no_terminal_raw(self, log: pytest.LogCaptureFixture) -> None:
        Worker("q").log(f"two lines\n{NASTY}\tand a tab")
        assert is_safe(log.records[-1].getMessage())
        assert "two lines\nno\n" in log.records[-1].getMessage()
        assert log.records[-1].getMessage().endswith("\tand a tab")

    def test_an_observer_that_fails_is_told_so(self, log: pytest.LogCaptureFixture) -> None:
        def observe(event: events.Event) -> None:
            raise ValueError(NASTY)

        events.subscribe(observe)
        try:
            Mail.add_job("a")
            work(Mail.queue_name)
        finally:
            events.unsubscribe(observe)
        told = [record for record in log.records if "Observer" in record.getMessage()]
        assert told
        assert all(is_safe(record.getMessage()) and record.exc_info is None for record in told)

    @pytest.mark.parametrize("raised", [SystemExit, KeyboardInterrupt, GeneratorExit])
    def test_an_exception_whose_text_ends_the_program_ends_no_worker(self, raised: type[BaseException]) -> None:
        Mail.add_job("a")
        Mail.add_job("b")
        assert work(Mail.queue_name, callback=fail_with(Evil(raised())), max_loops=2).num_loops == 2
        messages = [error.message.hget() for error in Error.collection().instances()]
        assert messages == [f"<Evil whose text cannot be read: {raised.__name__}>"] * 2
