"""Jobs that are written to the outbox, in the transaction, and added once it is committed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
import redis
from bookshop import tasks
from bookshop.errands import Errand, ErrandQueue, Refused, Translated, Unique, fetch, tour
from bookshop.models import Book
from cases import each
from django.contrib.auth.models import Permission
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from django.db import transaction
from django.test import override_settings
from django.utils.safestring import mark_safe
from relayed import committed, lost, manage, ran
from visiting import make_user, visit_as

from limpyd_jobs import STATUSES, ConfigurationException, Flow, Job, LimpydJobsException, Retry, Worker
from limpyd_jobs.contrib.django.outbox import relaying
from limpyd_jobs.contrib.django.outbox.entries import entries_of
from limpyd_jobs.contrib.django.outbox.models import OutboxEntry
from limpyd_jobs.contrib.django.outbox.relaying import RelayTask, relay_due, relay_entry
from limpyd_jobs.contrib.django.tasks import TaskJob
from limpyd_jobs.contrib.django.tasks.framework import TaskResultStatus, task_enqueued
from limpyd_jobs.contrib.django.transactions import add_job_through_outbox
from limpyd_jobs.observing.worker_tasks import register_worker_task
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.testing import drain, jobs_at_once


class TestAJobThroughTheOutbox:
    def test_is_added_by_the_process_that_commits(self, redis_client: redis.Redis) -> None:
        with committed(execute=True):
            later = add_job_through_outbox(Errand, "to ann", priority=3)
            assert (later.job, later.identifier, len(Errand.collection())) == (None, "to ann", 0)
            assert OutboxEntry.objects.count() == 1
        assert later.job.priority.hget() == "3"
        assert not OutboxEntry.objects.exists()
        assert ran(redis_client) == ["to ann"]

    def test_may_be_that_of_a_function(self) -> None:
        with committed(execute=True):
            later = add_job_through_outbox(fetch, "the mill", price=Decimal(3))
        assert later.job.arguments.place == "the mill"
        assert drain("errands").success == 1
        with pytest.raises(TypeError, match=r"fetch\.add: missing a required argument: 'place'"):
            add_job_through_outbox(fetch)

    def test_runs_at_once_where_jobs_do(self, redis_client: redis.Redis) -> None:
        with jobs_at_once(), committed(execute=True):
            later = add_job_through_outbox(Errand, "to ann", priority=3)
        assert later.job.status.hget() == STATUSES.SUCCESS
        assert redis_client.lrange("errands done", 0, -1) == ["to ann"]

    def test_is_never_added_if_that_is_rolled_back(self) -> None:
        with committed(execute=True), transaction.atomic():
            add_job_through_outbox(Errand)
            transaction.set_rollback(True)
        assert not Errand.collection()
        assert not OutboxEntry.objects.exists()

    def test_has_an_identifier_beforehand(self) -> None:
        with committed(execute=True):
            later = add_job_through_outbox(Errand)
        assert later.identifier
        assert later.job.identifier.hget() == later.identifier

    def test_is_added_by_others_if_the_process_dies(self, redis_client: redis.Redis) -> None:
        with lost():
            add_job_through_outbox(Errand, "to ann")
        assert len(relay_due("default", 1)[0]) == 1
        assert relay_due("default", 1) == ([], False)
        assert ran(redis_client) == ["to ann"]

    def test_is_left_to_the_process_that_commits_for_some_seconds(self) -> None:
        with committed():
            add_job_through_outbox(Errand)
        assert relay_due("default", 1) == ([], False)

    def test_is_added_once_however_often_it_is_relayed(self, redis_client: redis.Redis) -> None:
        with lost():
            add_job_through_outbox(Errand, "to ann")
        before = OutboxEntry.objects.get()
        relay_due("default", 1)
        assert ran(redis_client) == ["to ann"]
        before.save(force_insert=True)  # as if it had not been deleted
        assert relay_entry("default", before.pk).job.status.hget() == "s"
        assert ran(redis_client) == ["to ann"]
        assert not OutboxEntry.objects.exists()

    def test_may_add_a_flow_which_is_made_once(self, redis_client: redis.Redis) -> None:
        with lost():
            add_job_through_outbox(tour, ["the mill", "the inn"])
        before = OutboxEntry.objects.get()
        relay_due("default", 1)
        before.save(force_insert=True)  # as if it had not been deleted
        relay_entry("default", before.pk)
        ran(redis_client)
        assert Flow.find("tour").result(0) == "1 at home"
        assert len(fetch.job_class.collection()) == 3

    def test_has_its_arguments_as_they_were_given(self) -> None:
        book = Book.objects.create(title="Emma")
        until = datetime(2099, 1, 2, 3, 4, 5, 678900)
        given: dict[str, Any] = {
            "price": Decimal("1.50"),
            "day": date(2026, 5, 6),
            "books": [book],
            "words": ["x", "y\0"],
            "note": mark_safe("<b>"),
            "retry_policy": Retry(3, 60),
            "start_within": timedelta(days=2),
            "job_timeout": 2.5,
        }
        where: dict[str, Any] = {"queue_name": "other", "priority": "7", "delayed_until": until, "prepend": True}
        plain = Errand.add_job("a", queue_model=ErrandQueue, **where, **given)
        with committed(execute=True):
            later = add_job_through_outbox(Errand, "b", queue_model=ErrandQueue, **where, **given)

        def stored(job: Job) -> dict[str, str]:
            return {**job.get_connection().hgetall(f"{job._name}:{job.pk.get()}:hash"), "identifier": "", "added": ""}

        assert stored(later.job) == stored(plain)
        assert later.job.words.lmembers() == ["x", "y\0"]
        assert later.job.arguments.books[0].title == "Emma"

    def test_of_a_class_with_its_own_way_is_given_what_it_takes(self, redis_client: redis.Redis) -> None:
        shop = {"name": "ann", "tags": {"a"}, "$x": (1, b"\0"), 3: None, "since": timedelta(1)}
        with committed(execute=True):
            later = add_job_through_outbox(Translated, shop, price=Decimal(3), retry_policy=Retry(2))
        assert (later.job, later.identifier) == (None, "")
        assert ran(redis_client) == ["to ann"]
        assert not OutboxEntry.objects.exists()

    @each(
        ("given", "error"),
        [
            ({"price": "much"}, TypeError),
            ({"colour": "blue"}, AttributeError),
            ({"note": object()}, TypeError),
            ({"identifier": None}, TypeError),
            ({"delayed_for": 1, "delayed_until": datetime(2099, 1, 1)}, ValueError),
            ({"using": "elsewhere"}, ConfigurationException),
        ],
    )
    def test_is_refused_when_it_is_written_if_it_is_wrong(self, given: dict[str, Any], error: type[Exception]) -> None:
        with pytest.raises(error):
            add_job_through_outbox(Errand, **given)
        with pytest.raises(LimpydJobsException, match="queue_name"):
            add_job_through_outbox(Job, "a")
        assert not OutboxEntry.objects.exists()

    def test_of_a_class_that_no_path_leads_to_is_refused(self) -> None:
        class Inner(Job):
            namespace = "errands"
            queue_name = "q"

        with pytest.raises(ConfigurationException, match="top level"):
            add_job_through_outbox(Inner, "a")


class TestAnEntryThatCannotBeRelayed:
    def entry(self, **changes: Any) -> OutboxEntry:
        with lost():
            add_job_through_outbox(Errand, "to ann")
        entry = OutboxEntry.objects.latest("id")
        OutboxEntry.objects.filter(pk=entry.pk).update(**changes)
        return entry

    @pytest.mark.parametrize(
        "arguments",
        ["", "[", "[[],{}", "[1,2]", "[" * 100_000, '[[],{"colour":1}]', '[[{"$queue_model":"os.system"}],{}]'],
        ids=["empty", "cut", "cut later", "of a wrong form", "deep", "a field", "a path"],
    )
    def test_is_set_aside_with_its_error_and_holds_up_no_other(self, arguments: str, redis_client: redis.Redis) -> None:
        broken = self.entry(arguments=arguments)
        with lost():
            add_job_through_outbox(Errand, "to eve")
        assert [bool(each.error) for each in relay_due("default", 1)[0]] == [True, False]
        broken.refresh_from_db()
        assert (broken.is_set_aside, broken.tries) == (True, 1)
        assert "Error: " in broken.error
        assert ran(redis_client) == ["to eve"]
        assert relay_due("default", 1) == ([], False)

    def test_because_add_job_refuses_is_set_aside(self) -> None:
        with lost():
            add_job_through_outbox(Refused)
        relay_due("default", 1)
        assert OutboxEntry.objects.get().error == r"ValueError: no such errand\nat all"
        Unique.add_job("a", serial="1")
        with lost():
            add_job_through_outbox(Unique, "b", serial="1")
        relay_due("default", 1)
        assert OutboxEntry.objects.latest("id").error.startswith("UniquenessError: ")

    def test_because_its_class_is_not_known_yet_is_tried_again_for_an_hour(self) -> None:
        entry = self.entry(job_class="bookshop.errands.Unheard")
        for number in range(1, relaying.MAX_TRIES + 1):
            assert not entry.is_set_aside
            relay_entry("default", entry.pk)
            entry.refresh_from_db()
            assert entry.tries == number
        assert entry.is_set_aside
        assert "bookshop.errands.Unheard is not a job class that this process has imported" in entry.error

    def test_because_redis_does_not_answer_waits_and_is_relayed_later(
        self, redis_client: redis.Redis, jobs_database: JobsDatabase, redis_server: Any
    ) -> None:
        first, second = self.entry(), self.entry()
        jobs_database.connect(unix_socket_path="/nowhere/redis.sock")
        try:
            assert [bool(each.error) for each in relay_due("default", 1)[0]] == [True, True]
        finally:
            jobs_database.connect(unix_socket_path=redis_server.socket)
        assert relay_due("default", 1) == ([], False)
        for entry in (first, second):
            entry.refresh_from_db()
            assert (entry.is_set_aside, entry.tries) == (False, 1)
            assert relay_entry("default", entry.pk).error == ""
        assert len(Errand.collection(queued="1")) == 1  # both have one identifier

    def test_is_shown_retried_and_discarded_by_the_command(self, redis_client: redis.Redis) -> None:
        entry = self.entry(job_class="bookshop.errands.Unheard", arguments="[[],{}]")
        with pytest.raises(
            CommandError, match=r"0 jobs added\nnot added: \d+ bookshop.errands.Unheard to ann: Unknown"
        ):
            manage("relay")
        assert "1 tries: UnknownClass: bookshop.errands.Unheard is not" in manage("list")
        assert manage("list", "--set-aside") == "0 entries"
        OutboxEntry.objects.update(due=None)
        assert "(set aside, 1 tries: " in manage("list", "--set-aside")
        assert manage("retry", str(entry.pk + 1)) == "0 entries will be relayed again"
        OutboxEntry.objects.update(job_class=Errand.get_model_repr(), arguments='[["again"],{}]')
        assert manage("retry") == "1 entries will be relayed again"
        assert manage("discard", str(entry.pk)) == "0 entries deleted"
        assert manage("relay") == "1 jobs added"
        assert ran(redis_client) == ["again"]
        entry = self.entry(due=None)
        assert manage("discard", str(entry.pk)) == "1 entries deleted"


class TestAWorker:
    @pytest.fixture(autouse=True)
    def _task(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("limpyd_jobs.observing.worker_tasks.installed", [])
        register_worker_task(RelayTask())

    def test_relays_what_was_left_before_its_first_job(self, redis_client: redis.Redis) -> None:
        with lost():
            for number in range(3):
                add_job_through_outbox(Errand, str(number))
        assert ran(redis_client) == ["0", "1", "2"]

    def test_logs_what_it_relayed_and_set_aside(self, caplog: pytest.LogCaptureFixture) -> None:
        with lost():
            add_job_through_outbox(Errand, "a")
            add_job_through_outbox(Refused)
        Worker(["errands"], burst=True).run()
        assert "1 jobs of the outbox added" in caplog.text
        assert "1 entries of the outbox set aside, as " in caplog.text
        assert "ValueError: no such errand" in caplog.text

    def test_goes_on_if_there_is_no_table(self, caplog: pytest.LogCaptureFixture, redis_client: redis.Redis) -> None:
        Errand.add_job("a")
        with override_settings(LIMPYD_JOBS={"OUTBOX_DATABASES": ["default"]}), transaction.atomic():
            transaction.get_connection().cursor().execute("ALTER TABLE limpyd_jobs_outbox_outboxentry RENAME TO gone")
            assert ran(redis_client) == ["a"]
            transaction.set_rollback(True)
        assert "The outbox in the database default cannot be relayed: OperationalError: no such table" in caplog.text


class TestTheAdmin:
    def test_shows_entries_without_their_arguments_and_lets_them_be_tried_again(self) -> None:
        with lost():
            add_job_through_outbox(Errand, "to ann", note="a secret")
        OutboxEntry.objects.update(due=None, error="TypeError: why")
        entry = OutboxEntry.objects.get()
        browser = visit_as(make_user("admin", is_superuser=True))
        place = "/admin/limpyd_jobs_outbox/outboxentry/"
        shown = browser.get(place).content.decode(), browser.get(f"{place}{entry.pk}/change/").content.decode()
        assert all("TypeError: why" in each and "a secret" not in each for each in shown)
        browser.handler.enforce_csrf_checks = False
        browser.post(place, {"action": "try_again", "_selected_action": [entry.pk]})
        entry.refresh_from_db()
        assert not entry.is_set_aside
        browser.post(f"{place}{entry.pk}/delete/", {"post": "yes"})
        assert not OutboxEntry.objects.exists()

    def test_lets_no_user_act_who_may_only_look_or_whom_another_site_sends(self) -> None:
        with lost():
            add_job_through_outbox(Errand, "to ann")
        OutboxEntry.objects.update(due=None)
        entry = OutboxEntry.objects.get()
        place = "/admin/limpyd_jobs_outbox/outboxentry/"
        acts = [
            (place, {"action": "try_again", "_selected_action": [entry.pk]}),
            (place, {"action": "delete_selected", "_selected_action": [entry.pk], "post": "yes"}),
            (f"{place}{entry.pk}/delete/", {"post": "yes"}),
            (f"{place}{entry.pk}/change/", {"job_class": "os.system", "due_0": "2020-01-01", "due_1": "00:00"}),
            (f"{place}add/", {"job_class": "os.system", "arguments": "[[],{}]"}),
        ]
        looking = make_user("looking", is_staff=True)
        looking.user_permissions.set(Permission.objects.filter(codename="view_outboxentry"))
        for user, checks_token in ((looking, False), (make_user("admin", is_superuser=True), True)):
            browser = visit_as(user)
            browser.handler.enforce_csrf_checks = checks_token
            assert browser.get(place).status_code == 200
            for address, form in acts:
                browser.post(address, form)
        unchanged = OutboxEntry.objects.get()
        assert (unchanged.is_set_aside, unchanged.job_class) == (True, entry.job_class)


class TestTasks:
    SETTINGS = {
        "default": {
            "BACKEND": "limpyd_jobs.contrib.django.tasks.LimpydBackend",
            "OPTIONS": {"ENQUEUE_ON_COMMIT": "outbox"},
        }
    }

    @pytest.fixture
    def sent(self) -> Iterator[list[str]]:
        found: list[str] = []

        def note(sender: Any, task_result: Any, **more: Any) -> None:
            found.append(task_result.id)

        task_enqueued.connect(note)
        yield found
        task_enqueued.disconnect(note)

    def test_go_through_the_outbox_if_the_settings_say_so(self, sent: list[str]) -> None:
        with override_settings(TASKS=self.SETTINGS), committed(execute=True):
            result = tasks.noop_task.enqueue(3, x=[1])
            assert (result.enqueued_at, sent) == (None, [])
            assert OutboxEntry.objects.count() == 1
        assert sent == [result.id]
        assert result.enqueued_at is not None
        result.refresh()
        assert (result.status, result.args, result.kwargs) == (TaskResultStatus.READY, [3], {"x": [1]})

    def test_are_announced_by_the_process_that_relays_them(self, sent: list[str]) -> None:
        with override_settings(TASKS=self.SETTINGS):
            with lost():
                result = tasks.print_invoice.using(priority=5, enqueue_on_commit="outbox").enqueue(7)
            relay_due("default", 1)
        assert sent == [result.id]
        job = TaskJob.get(identifier=result.id)
        assert job.priority.hget() == "5"

    def test_run_at_once_in_a_test(self) -> None:
        options = {"ENQUEUE_ON_COMMIT": "outbox"}
        settings = {"default": {"BACKEND": "limpyd_jobs.contrib.django.tasks.InProcessBackend", "OPTIONS": options}}
        with override_settings(TASKS=settings), committed(execute=True):
            Book.objects.create(title="Emma")
            result = tasks.order.enqueue("Emma")
            assert tasks.ran == []
        assert tasks.ran == ["Emma"]
        assert result.status == TaskResultStatus.SUCCESSFUL

    def test_are_checked(self) -> None:
        def found(**options: Any) -> list[str]:
            backend = {**self.SETTINGS["default"], "OPTIONS": {"ENQUEUE_ON_COMMIT": "outbox", **options}}
            with override_settings(TASKS={"default": backend}, DEBUG=True):
                return [each.id for each in run_checks() if (each.id or "").startswith("limpyd_jobs.")]

        assert found() == []
        assert found(DATABASE="other") == ["limpyd_jobs.E014"]
        assert found(ENQUEUE_ON_COMMIT="inbox") == ["limpyd_jobs.E011"]


def test_without_the_application_the_error_says_what_to_do() -> None:
    from django.core.exceptions import ImproperlyConfigured
    from django.test import modify_settings

    with (
        modify_settings(INSTALLED_APPS={"remove": "limpyd_jobs.contrib.django.outbox"}),
        pytest.raises(ImproperlyConfigured, match=r"limpyd_jobs.contrib.django.outbox.*INSTALLED_APPS"),
    ):
        entries_of("default")


def test_the_migration_makes_the_table_of_the_model() -> None:
    call_command("makemigrations", "limpyd_jobs_outbox", check=True, dry_run=True, verbosity=0)
