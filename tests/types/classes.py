"""Classes of jobs as an application has them. Both checkers take each line but those marked as wrong."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any, ClassVar, assert_type

from limpyd import fields

from limpyd_jobs import Argument, Claim, Error, Job, PreparedJob, Queue, ValueField, Worker, typed
from limpyd_jobs.models.following.changes import JobChange
from limpyd_jobs.query import FoundJob, JobFilter


class MailQueue(Queue):
    """A model of queues of its own."""


class MailError(Error):
    """A model of errors of its own."""


@typed
class SendMail(Job):
    queue_name = "mails"
    keep_result = True
    sent: ClassVar[int] = 0

    to: Argument[str] = Argument(str)
    size: Argument[int] = Argument(int, default=3)
    when: Argument[date | None] = Argument(date | None, default=None)
    tags: Argument[list[str]] = Argument(list[str], default=[])
    note: ValueField[str] = ValueField(str)

    def run(self, queue: MailQueue) -> int:
        assert_type(self.size.value(), int)
        assert_type(self.size.hget(), str | None)
        assert_type(self.to.value(), str)
        assert_type(self.when.value(), date | None)
        assert_type(self.tags.value(), list[str])
        assert_type(self.note.value(), str | None)
        print(self.syze.value())  # wrong
        print(self.size.valeu())  # wrong
        print(self.to.value() + 1)  # wrong
        print(self.to.hget().upper())  # wrong
        self.note.hset("sent")
        self.note.hset(5)  # wrong
        self.progress(0.5, "half")
        self.progress("half")  # wrong
        self.log("a line")
        self.log(5)  # wrong
        for tag in self.iterate(self.tags.value()):
            assert_type(tag, str)
        self.iterate(5)  # wrong
        with self.step("charge") as step:
            assert_type(step.is_new, bool)
        self.step(5)  # wrong
        assert_type(self.is_cancelled(), bool)
        return self.size.value()

    @classmethod
    def for_customer(cls, number: int) -> SendMail:
        return cls.add_job(f"customer {number}", to="ann")


@typed
class SendLater(SendMail):
    delay: Argument[float] = Argument(float)

    async def run(self, queue: MailQueue) -> str:  # type: ignore[override]  # pyright: ignore
        return self.to.value()


class OfVersion2(Job):
    queue_name = "mails"
    to = fields.InstanceHashField()
    size = Argument(int)
    text = Argument()
    names = Argument(list[str])

    def run(self, queue: Queue) -> None:
        assert_type(self.size.value(), int)
        assert_type(self.text.value(), str)
        assert_type(self.names.value(), list[str])


class Translated(SendMail):
    @classmethod
    def add_job(cls, *args: Any, **kwargs: Any) -> Translated:
        return super().add_job(*args, **kwargs)


class SaysNothing(Job):
    queue_name = "mails"


class Runner(Worker):
    queues = "mails"

    def job_started(self, job: Job, queue: Queue) -> None:
        super().job_started(job, queue)


# Adding
job = SendMail.add(to="ann")
assert_type(job, SendMail)
assert_type(SendMail.add(to="ann", size=5, when=date(2020, 1, 1), tags=["a"], note="x"), SendMail)
assert_type(SendMail.add(size=5, to="ann"), SendMail)
assert_type(SendLater.add(to="ann", delay=1.5), SendLater)
assert_type(SendMail.for_customer(1), SendMail)
assert_type(SendMail.configure(priority=5, delayed_for=60).add(to="ann"), SendMail)
assert_type(SendMail.configure(queue="slow").prepare(to="ann"), PreparedJob[SendMail])
assert_type(SendMail.configure(queue="slow").prepare(to="ann").add(), SendMail)
assert_type(OfVersion2.add(to="ann", size=5, anything="goes"), OfVersion2)
assert_type(SendMail.add_job("a"), SendMail)
assert_type(SendMail.add_job("a", "mails", 5, to="ann", anything="goes"), SendMail)
assert_type(SendMail.add_jobs(["a"])[0], SendMail)
assert_type(SendMail.prepare(to="ann"), PreparedJob[SendMail])
assert_type(SendMail.prepare(to="ann", size=5).add(priority=5), SendMail)
assert_type(OfVersion2.prepare("a", "mails", anything="goes").add(), OfVersion2)
assert_type(Translated.add_job("a"), Translated)
assert_type(SendMail.add(to="ann").add_outcome, Any)
SendMail.add()  # wrong
SendMail.add("ann")  # wrong
SendMail.add(to=5)  # wrong
SendMail.add(to=None)  # wrong
SendMail.add(to="ann", size="big")  # wrong
SendMail.add(to="ann", sise=3)  # wrong
SendMail.add(to="ann", when="tomorrow")  # wrong
SendMail.add(to="ann", tags="a")  # wrong
SendMail.add(to="ann", tags=[1])  # wrong
SendMail.add(to="ann", note=5)  # wrong
SendMail.add(to="ann", priority=5)  # wrong
SendMail.add(to="ann", sent=5)  # wrong
SendLater.add(to="ann")  # wrong
SendLater.add(delay=1.5)  # wrong
SendLater.add(to="ann", delay="long")  # wrong
SendMail.configure(prioriti=5)  # wrong
SendMail.configure(priority="high")  # wrong
SendMail.configure(queue=5)  # wrong
SendMail.configure(on_duplicate="drop")  # wrong
SendMail.configure(priority=5).add()  # wrong
SendMail.configure(priority=5).add(to=5)  # wrong
SendMail.configure(priority=5).prepare(too="ann")  # wrong
SendMail.prepare()  # wrong
SendMail.prepare("a")  # wrong
SendMail.prepare(to=5)  # wrong
SendMail.prepare(too="ann")  # wrong
SendMail.prepare(to="ann", priority=5)  # wrong
SendMail.add_job("a", priority=[5])  # wrong
SendMail.add_jobs(5)  # wrong

# What jobs do
assert_type(job.result(), int)
assert_type(job.result(timeout=5), int)
assert_type(SendLater.add(to="ann", delay=1).result(), str)
assert_type(SaysNothing.add_job("a").result(), Any)
assert_type(job.wait(5), bool)
assert_type(job.cancel(), bool)
assert_type(job.ident, str)
assert_type(job.claim(), Claim[SendMail])
assert_type(job.claim().job, SendMail)
assert_type(SendMail.get("12"), SendMail)
assert_type(Job.get_from_ident("myapp.SendMail:1"), Job)
job.result(timeout="soon")  # wrong
job.result().upper()  # wrong
job.wait("long")  # wrong
job.claim(lease="long")  # wrong
job.requeue(queue_name=5)  # wrong
job.reqeue()  # wrong
job.size = 5  # wrong
SendMail.get_from_ident(5)  # wrong


async def under_asyncio() -> None:
    assert_type(await SendMail.aadd(to="ann"), SendMail)
    assert_type(await SendMail.configure(priority=5).aadd(to="ann"), SendMail)
    assert_type(await job.aresult(), int)
    assert_type(await SendLater.add(to="ann", delay=1).aresult(), str)
    await SendMail.aadd(to=5)  # wrong
    await SendMail.configure(priority=5).aadd()  # wrong
    await job.aresult("soon")  # wrong
    async for change in SendMail.achanges():
        assert_type(change, JobChange)


# Reading
assert_type(next(iter(SendMail.collection(status="e"))), str)
assert_type(SendMail.collection(status="e").instances()[0], SendMail)
assert_type(len(SendMail.collection()), int)
assert_type(next(SendMail.changes()), JobChange)
assert_type(next(SendMail.changes()).status, str)
assert_type(JobFilter(SendMail, "status=error"), JobFilter[SendMail])
assert_type(JobFilter(SendMail).jobs(), Iterator[SendMail])
assert_type(JobFilter("status=error").jobs(), Iterator[Any])
assert_type(next(iter(JobFilter(SendMail))), FoundJob)
for each in SendMail.collection().instances():
    assert_type(each.to.value(), str)
for each in JobFilter(SendMail, status="error").jobs():
    assert_type(each.size.value(), int)
    print(each.sise)  # wrong
SendMail.collection().instanses()  # wrong
SendMail.collection().instances()[0].sise  # wrong # noqa: B018
next(SendMail.changes()).stattus  # wrong # noqa: B018
SendMail.changes(timeout="long")  # wrong
JobFilter(5)  # wrong
other: JobFilter[SendLater] = JobFilter(SendMail)  # wrong

# Queues and errors
assert_type(MailQueue.get_queue("mails"), MailQueue)
assert_type(MailQueue.get_all("mails")[0], MailQueue)
assert_type(MailQueue.get_all_by_priority("mails")[0], MailQueue)
assert_type(MailError.add_error("mails", job, KeyError("to")), MailError)
assert_type(MailError.add_error("mails", job, KeyError), MailError)
assert_type(next(MailQueue.changes("mails")), JobChange)
MailQueue.get_queue(["mails"])  # wrong
MailQueue.get_queu("mails")  # wrong
job.settle()  # wrong
Argument(int).unique = "yes"  # wrong
