"""WorkerConfig: how a command line becomes a worker, and what a subclass may change."""

from __future__ import annotations

import gc
import logging
import logging.config
import os
import re
import sys
from collections.abc import Iterator
from datetime import timedelta
from optparse import Option, OptionConflictError, OptionParser, make_option
from pathlib import Path
from typing import Any

import pytest
from cases import each

from limpyd_jobs.commandline.parameters import OPTIONS
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.models import BaseJobsModel, Error, Queue
from limpyd_jobs.redis.database import JobsDatabase, parse_database
from limpyd_jobs.workers import Worker, WorkerConfig
from limpyd_jobs.workers.config import LOG_FORMAT, LogFormatter, database_name

HERE = __name__


class ShopQueue(Queue):
    namespace = "config-shop"


class ShopError(Error):
    namespace = "config-shop"


class FarQueue(Queue):
    namespace = "config-far"
    database = JobsDatabase(host="far.example.com", port=6379, db=1)


class ShopWorker(Worker):
    queues = ["orders", "mails"]
    queue_model = ShopQueue
    error_model = ShopError
    max_loops = 7
    parameters = (*Worker.parameters, "tenant")
    tenant = "nobody"

    def __init__(self, queues: Any = None, **kwargs: Any) -> None:
        self.tenant = kwargs.pop("tenant", self.tenant)
        super().__init__(queues, **kwargs)


class ShopConfig(WorkerConfig):
    option_list = (*WorkerConfig.option_list, make_option("--tenant"), make_option("--colour"))


def own_config(*options: Option, at_once: bool = True) -> type[WorkerConfig]:
    """A configuration with options of its own, in `option_list`, or added to the parser."""

    class OwnConfig(WorkerConfig):
        option_list = (*options, *WorkerConfig.option_list) if at_once else WorkerConfig.option_list

        def create_parser(self) -> OptionParser:
            parser = super().create_parser()
            parser.add_options(() if at_once else options)
            return parser

    return OwnConfig


class NotQueueWorker(Worker):
    queues = ["a"]
    queue_model = Error


def ship(job: Any, queue: Any) -> None:
    """A callback."""


def other(job: Any, queue: Any) -> None:
    """Another one."""


class Shop:
    """A class with classes in it."""

    class Worker(Worker):
        queues = "orders"
        callback = ship

        @staticmethod
        def ship(job: Any, queue: Any) -> None:
            """A callback."""


NUMBER = 3


@pytest.fixture(autouse=True)
def _quiet_logger() -> Iterator[None]:
    logger = logging.getLogger("limpyd-jobs")
    before = list(logger.handlers)
    yield
    logger.handlers[:] = before


def configure(*arguments: str, config_class: type[WorkerConfig] = WorkerConfig) -> WorkerConfig:
    """Return the configuration of a command line that leaves title and signals of this process alone."""
    return config_class(["worker", "--no-title", "--no-terminate-gracefuly", *arguments])


def prepared(*arguments: str, config_class: type[WorkerConfig] = WorkerConfig) -> WorkerConfig:
    """Return the configuration with its models and its worker."""
    config = configure(*arguments, config_class=config_class)
    config.prepare_models()
    config.prepare_worker()
    return config


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the line on standard error that refuses the arguments, without the name of the program."""
    with pytest.raises(SystemExit) as exit_:
        configure(*arguments).execute()
    output = capsys.readouterr()
    assert (exit_.value.code, output.out, output.err.count("\n")) == (2, "", 1)
    return output.err.removeprefix("worker: error: ").rstrip()


# Reading


def test_by_default_the_classes_are_those_of_the_library():
    options = configure("--queues=a").options
    assert (options.worker_class, options.queue_model, options.error_model) == (Worker, Queue, Error)
    assert options.callback is None


def test_classes_and_callback_are_imported_by_their_paths():
    options = configure(
        f"--worker-class={HERE}.ShopWorker",
        f"--queue-model={HERE}.ShopQueue",
        f"--error-model={HERE}.ShopError",
        f"--callback={HERE}.ship",
    ).options
    assert (options.worker_class, options.queue_model, options.error_model, options.callback) == (
        ShopWorker,
        ShopQueue,
        ShopError,
        ship,
    )


def test_the_models_are_those_of_the_worker_class_if_none_are_given():
    options = configure(f"--worker-class={HERE}.ShopWorker").options
    assert (options.queue_model, options.error_model) == (ShopQueue, ShopError)


@pytest.mark.parametrize("name", ["worker-class", "queue-model", "error-model", "callback", "database"])
def test_an_empty_value_counts_as_none_given(name):
    assert vars(configure(f"--{name}=", "--queues=a").options) == {
        **vars(configure("--queues=a").options),
        **({"database": ""} if name == "database" else {}),
    }


@each(
    ("argument", "message"),
    [
        (
            "--worker-class={here}.ShopQueue",
            "option --worker-class: {here}.ShopQueue is not a subclass of Worker",
        ),
        ("--worker-class={here}.ship", "option --worker-class: {here}.ship is not a subclass of Worker"),
        (
            "--queue-model={here}.ShopError",
            "option --queue-model: {here}.ShopError is not a subclass of Queue",
        ),
        (
            "--error-model={here}.ShopQueue",
            "option --error-model: {here}.ShopQueue is not a subclass of Error",
        ),
        ("--callback={here}.NUMBER", "option --callback: The callback is not callable: 3"),
        (
            "--callback={here}.absent",
            "Unable to import \"callback\", --callback={here}.absent: AttributeError: module '{here}' has no "
            "attribute 'absent'",
        ),
        (
            "--callback=absent.module",
            "Unable to import \"callback\", --callback=absent.module: ModuleNotFoundError: No module named 'absent'. "
            "Name the directory that its package is in with --pythonpath, or start from there, not from "
            f"{os.getcwd()}",
        ),
        (
            "--callback=word",
            "Unable to import \"callback\", --callback=word: ValueError: 'word' is not the path of a class or a "
            "function: a module and a name are needed, such as myapp.jobs.ship",
        ),
        (
            "--worker-class={here}.NotQueueWorker",
            "option --queue-model: limpyd_jobs.models.Error is not a subclass of Queue",
        ),
    ],
)
def test_what_an_option_cannot_use_is_refused_in_one_line(capsys, argument, message):
    assert refusal(capsys, "--queues=a", argument.format(here=HERE)) == message.format(here=HERE)


@pytest.mark.parametrize("name", ["worker-class", "queue-model", "error-model", "callback"])
def test_what_cannot_be_imported_is_named_as_version_2_names_it(capsys, name):
    assert f'Unable to import "{name.replace("-", "_")}"' in refusal(capsys, "--queues=a", f"--{name}=foo.bar")


@each(
    ("argument", "message"),
    [
        ("--logger-level=bar", "Invalid logger-level bar"),
        ("--max-loops=-1", "The max-loops argument (-1) must be a positive integer"),
        ("--max-duration=-1", "The max-duration argument (-1) must be a positive integer"),
        ("--timeout=-1", "The timeout argument (-1) must be a positive integer (including 0)"),
        ("--fetch-priorities-delay=0", "The fetch-priorities-delay argument (0) must be a positive integer"),
        ("--fetch-delayed-delay=-1", "The fetch-delayed-delay argument (-1) must be a positive integer"),
        ("--requeue-times=-1", "The requeue-times argument (-1) must be a positive integer (including 0)"),
        ("--requeue-delay-delta=-1", "requeue-delay-delta argument (-1) must be a positive integer (including 0)"),
    ],
)
def test_a_number_or_level_out_of_range_is_refused_in_the_words_of_version_2(capsys, argument, message):
    assert message in refusal(capsys, "--queues=a", argument)


def test_arguments_that_belong_to_no_option_are_ignored_with_a_warning(capsys):
    config = configure("--queues=a", "foo", "", "bar")
    assert (config.options.queues, config.args) == ("a", ["worker", "foo", "", "bar"])
    output = capsys.readouterr()
    assert (output.out, output.err.count("\n")) == ("", 1)
    assert output.err.startswith("worker: warning: ")
    assert "'foo' '' 'bar'" in output.err


def test_a_path_may_lead_through_a_class():
    options = configure(f"--worker-class={HERE}.Shop.Worker", f"--callback={HERE}.Shop.Worker.ship").options
    assert (options.worker_class, options.callback) == (Shop.Worker, Shop.Worker.ship)


def test_the_callback_is_that_of_the_worker_class_if_none_is_given():
    assert configure(f"--worker-class={HERE}.Shop.Worker").options.callback is ship
    config = prepared(f"--worker-class={HERE}.Shop.Worker")
    assert config.worker.callback is ship
    assert configure(f"--worker-class={HERE}.Shop.Worker", f"--callback={HERE}.other").options.callback is other


def test_a_database_that_cannot_be_parsed_is_refused_in_one_line(capsys):
    assert refusal(capsys, "--queues=a", "--database=localhost:port:0").startswith(
        "option --database: 'localhost:port:0' "
    )


def test_a_default_database_that_cannot_be_parsed_is_refused_in_one_line(capsys, monkeypatch, jobs_database):
    monkeypatch.setenv("LIMPYD_JOBS_DATABASE", "localhost:port:0")
    jobs_database.reset()
    assert "LIMPYD_JOBS_DATABASE" in refusal(capsys, "--queues=a", "--dry-run")


def test_no_queue_at_all_is_refused_in_one_line(capsys):
    assert "queue" in refusal(capsys)


def test_the_command_line_may_begin_with_the_name_of_the_program_or_with_options():
    named = WorkerConfig(["/usr/bin/some-worker", "--queues=a", "--no-title"])
    assert (named.prog_name, named.options.queues) == ("some-worker", "a")
    unnamed = WorkerConfig(["--queues=a", "--no-title"])
    assert unnamed.options.queues == "a"
    assert unnamed.prog_name == os.path.basename(sys.argv[0])


def test_without_arguments_the_command_line_is_that_of_the_process(monkeypatch):
    monkeypatch.setattr("sys.argv", ["/usr/bin/limpyd-jobs-worker", "--queues=a", "--no-title"])
    config = WorkerConfig()
    assert (config.prog_name, config.options.queues) == ("limpyd-jobs-worker", "a")


def test_the_version_names_this_library_and_limpyd(capsys):
    with pytest.raises(SystemExit) as exit_:
        configure("--version")
    assert exit_.value.code == 0
    assert re.fullmatch(r"worker \(redis-limpyd-jobs [\d.]+, redis-limpyd [\d.]+\)\n", capsys.readouterr().out)


# Preparing


def test_only_what_is_given_is_passed_to_the_worker_so_that_its_class_decides_on_the_rest():
    config = prepared(f"--worker-class={HERE}.ShopWorker", "--timeout=0.5", "--no-save-errors")
    assert config.prepare_worker_options() == {
        "queue_model": ShopQueue,
        "error_model": ShopError,
        "timeout": 0.5,
        "save_errors": False,
        "terminate_gracefuly": False,
    }
    worker = config.worker
    assert (worker.queues, worker.max_loops, worker.tenant) == (["orders", "mails"], 7, "nobody")
    assert (worker.timeout, worker.save_errors) == (0.5, False)


def test_an_option_that_a_subclass_adds_reaches_a_worker_that_has_it_among_its_parameters():
    arguments = [f"--worker-class={HERE}.ShopWorker", "--tenant=acme", "--colour=red"]
    config = prepared(*arguments, config_class=ShopConfig)
    assert config.worker.tenant == "acme"
    assert config.options.colour == "red"
    assert "colour" not in config.prepare_worker_options()


def test_a_subclass_may_change_each_step():
    class Config(WorkerConfig):
        help = "Run the shop"

        def manage_options(self) -> None:
            super().manage_options()
            self.words = self.args[1:]
            self.options.queues = "set,by,code"

        def prepare_worker_options(self) -> dict[str, Any]:
            return {**super().prepare_worker_options(), "max_loops": len(self.words)}

    config = prepared("one", "two", config_class=Config)
    assert (config.worker.queues, config.worker.max_loops) == (["set", "by", "code"], 2)
    assert "Run the shop" in config.parser.format_help()


def test_a_worker_that_cannot_work_with_its_options_says_so_to_code():
    config = configure("--queues=a")
    config.options.queues = None
    with pytest.raises(ConfigurationException):
        config.prepare_worker()


@pytest.fixture
def far_database() -> Iterator[JobsDatabase]:
    settings = FarQueue.database.connection_settings
    yield FarQueue.database
    FarQueue.database.reset(**settings)


@pytest.mark.usefixtures("jobs_database")
def test_a_database_that_is_given_is_that_of_all_models_and_of_those_of_the_worker(far_database):
    configure("--queues=a", f"--queue-model={HERE}.FarQueue", "--database=unix:///other.sock?db=3").prepare_models()
    expected = parse_database("unix:///other.sock?db=3")
    assert BaseJobsModel.database.connection_settings == expected
    assert Queue.database.connection_settings == expected
    assert far_database.connection_settings == expected


@pytest.mark.usefixtures("far_database")
def test_models_that_the_worker_does_not_use_stay_where_they_are(jobs_database):
    configure("--queues=a", "--database=unix:///other.sock?db=3").prepare_models()
    assert FarQueue.database.connection_settings["host"] == "far.example.com"


def test_without_a_database_all_models_stay_where_they_are(jobs_database):
    before = dict(jobs_database.connection_settings)
    configure("--queues=a").prepare_models()
    assert jobs_database.connection_settings == before


def test_a_logger_without_a_handler_gets_one_to_standard_error(capsys):
    worker = prepared("--queues=a", "--logger-name=limpyd-jobs.test-bare").worker
    (handler,) = worker.logger.handlers
    assert type(handler) is logging.StreamHandler
    assert handler.formatter._fmt == LOG_FORMAT
    worker.log("hello")
    assert re.fullmatch(
        r"\[\d+\] \d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} \(limpyd-jobs\.test-bare\) INFO     \[\d{6}\] hello\n",
        capsys.readouterr().err,
    )


def test_log_lines_are_written_as_python_writes_them():
    ours, pythons = LogFormatter(LOG_FORMAT), logging.Formatter(LOG_FORMAT)
    for moment in (1.0, 1.25, 1.999, 2.0, 1.5, 90_000.001):
        record = logging.makeLogRecord({"msg": "hello", "created": moment, "msecs": moment % 1 * 1000})
        assert ours.format(record) == pythons.format(record)


def test_a_logger_that_has_a_handler_keeps_it():
    handler = logging.NullHandler()
    logging.getLogger("limpyd-jobs").addHandler(handler)
    assert prepared("--queues=a").worker.logger.handlers == [handler]


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_line_is_written_once_where_the_application_writes_to_the_terminal_already(log_format: str, capsys):
    handler = logging.StreamHandler(sys.stderr)
    logging.getLogger().addHandler(handler)
    try:
        worker = prepared("--queues=a", f"--log-format={log_format}", "--logger-name=limpyd-jobs.test-once").worker
        worker.log("hello")
        logging.getLogger("application").warning("of the application")
    finally:
        logging.getLogger().removeHandler(handler)
        logging.getLogger("limpyd-jobs.test-once").handlers.clear()
    lines = capsys.readouterr().err
    assert (lines.count("hello"), lines.count("of the application")) == (1, 1)


def test_a_worker_logs_though_the_application_disables_the_loggers_that_are_there():
    names = ("limpyd-jobs.test-disabled", "limpyd-jobs", "limpyd-jobs.retrying")
    loggers = {name: logging.getLogger(name) for name in (*names, *logging.root.manager.loggerDict)}
    before = {logger: logger.disabled for logger in loggers.values()}
    try:
        logging.config.dictConfig({"version": 1})
        assert [name for name in names if not loggers[name].disabled] == []
        prepared("--queues=a", "--logger-name=limpyd-jobs.test-disabled")
        assert [name for name in names if loggers[name].disabled] == []
    finally:
        for logger, disabled in before.items():
            logger.disabled = disabled


def test_the_level_of_the_logger_is_the_one_given():
    assert prepared("--queues=a", "--logger-level=debug").worker.logger.level == logging.DEBUG


# Running


@pytest.mark.usefixtures("redis_client")
def test_a_dry_run_starts_and_ends_the_worker_without_a_job(capsys):
    config = configure("--queues=a", "--dry-run")
    config.prepare_models()
    config.prepare_worker()
    assert config.worker.end_forced is True
    config.execute()
    assert (config.worker.status, config.worker.num_loops) == ("terminated", 0)
    assert capsys.readouterr().err.endswith(": --dry-run\n")


@pytest.mark.usefixtures("redis_client")
def test_garbage_is_not_looked_for_in_the_code_while_coroutines_wait():
    before, kept = gc.get_freeze_count(), [[] for _ in range(10_000)]
    configure("--queues=a", "--dry-run", "--concurrency=2").execute()
    assert gc.get_freeze_count() >= before + len(kept)


def test_a_redis_that_does_not_answer_is_said_in_one_line(capsys, jobs_database):
    with pytest.raises(SystemExit) as exit_:
        configure("--queues=a", "--database=unix:///no/such.sock", "--wait-for-redis=0").execute()
    assert exit_.value.code == 1
    assert re.fullmatch(r"worker: error: cannot use Redis: .*\n", capsys.readouterr().err)


@pytest.mark.usefixtures("redis_client")
def test_what_would_confuse_a_terminal_is_escaped_in_the_options(capsys):
    prepared("--queues=a\x1b[2J\u202e", "--logger-name=x\n - queues = b").print_options()
    lines = capsys.readouterr().out.splitlines()
    assert r" - queues = a\x1b[2J\u202e" in lines
    assert r" - logger-name = x\n - queues = b" in lines


@pytest.mark.usefixtures("redis_client")
def test_the_options_of_script_and_worker_are_printed(capsys, redis_server):
    prepared("--queues=a,b", f"--callback={HERE}.ship", "--max-duration=0.5").print_options()
    assert capsys.readouterr().out.splitlines() == [
        "The script is running with the following options:",
        " - dry-run = False",
        f" - worker-config = {WorkerConfig}",
        f" - database = unix://{redis_server.socket}?db=0",
        f" - worker-class = {Worker}",
        "The worker will run with the following options:",
        " - queues = a,b",
        f" - callback = {HERE}.ship",
        f" - queue-model = {Queue}",
        f" - error-model = {Error}",
        " - logger-name = limpyd-jobs",
        " - logger-level = 20",
        " - save-errors = True",
        " - save-tracebacks = True",
        " - max-loops = 1000",
        " - max-duration = 0:00:00.500000",
        " - terminate-gracefuly = False",
        " - timeout = 30",
        " - fetch-priorities-delay = 25",
        " - fetch-delayed-delay = 25",
        " - requeue-times = 0",
        " - requeue-priority-delta = -1",
        " - requeue-delay-delta = 30",
        " - retry-policy = None",
        " - lease = 60",
        " - max-rescues = 3",
        " - burst = False",
        " - grace-period = None",
        " - job-timeout = None",
        " - kill-after = None",
        " - keep-success = None",
        " - keep-errors = None",
        " - job-modules = None",
        " - processes = 1",
        " - concurrency = 1",
        " - shards = None",
        " - home = None",
        " - blocking-calls = refuse",
        " - queue-strategy = strict",
        " - prefetch = 1",
        " - prefetch-time = 0.02",
        " - metrics = True",
        " - max-memory = None",
        " - health-port = None",
        " - health-host = 127.0.0.1",
        " - health-file = None",
        " - stalled-after = 60",
        " - wait-for-redis = None",
        " - observers = None",
        " - log-format = text",
    ]


@pytest.mark.usefixtures("redis_client")
def test_options_of_the_class_are_printed_too_and_the_run_method_of_jobs_is_named(capsys):
    prepared(f"--worker-class={HERE}.ShopWorker").print_options()
    lines = capsys.readouterr().out.splitlines()
    assert {' - callback = <jobs "run" method>', " - queues = orders,mails", " - tenant = nobody"} <= set(lines)


@each(
    ("text", "shown"),
    [
        ("localhost:6379:15", "localhost:6379:15"),
        ("[::1]:6380:2", "[::1]:6380:2"),
        ("redis://user:secret@example.com:6380/2", "example.com:6380:2"),
        ("rediss://user:secret@example.com:6380/2", "rediss://example.com:6380/2"),
        ("unix://user:secret@/run/redis.sock?db=2", "unix:///run/redis.sock?db=2"),
        (
            "redis+sentinel://:secret@one:26379,two:26380/main/2",
            "redis+sentinel://one:26379,two:26380/main/2",
        ),
        ("embedded://", "embedded://"),
        ("embedded:///var/tmp/try", "embedded:///var/tmp/try"),
        ("embedded:///var/tmp/try?db=2", "embedded:///var/tmp/try?db=2"),
        ("unix:///run/my%20redis%3F.sock", "unix:///run/my%20redis%3F.sock?db=0"),
        ("redis+sentinel://one/main%2Fold", "redis+sentinel://one:26379/main%2Fold/0"),
    ],
)
def test_a_database_is_shown_without_user_and_password(text, shown):
    assert database_name(parse_database(text)) == shown
    assert parse_database(shown).items() <= parse_database(text).items()


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({}, "localhost:6379:0"),
        ({"host": "example.com", "db": None, "unix_socket_path": None}, "example.com:6379:0"),
        ({"host": "example.com", "username": "user", "password": "secret"}, "example.com:6379:0"),
        ({"host": "user:secret@example.com"}, "example.com:6379:0"),
        ({"unix_socket_path": Path("/run/redis.sock"), "host": "ignored"}, "unix:///run/redis.sock?db=0"),
        ({"embedded": Path("/var/tmp/try")}, "embedded:///var/tmp/try"),
    ],
)
def test_a_database_is_shown_whatever_its_settings_are(settings, shown):
    assert database_name(settings) == shown
    parse_database(shown)


def test_a_default_in_the_help_is_that_of_the_worker():
    stated = {option.dest: re.search(r"\(default: (-?\d+(?:\.\d+)?)\b(?!\.)", option.help) for option in OPTIONS}
    defaults = {name: float(found[1]) for name, found in stated.items() if found}
    assert len(defaults) == 14
    assert defaults == {name: getattr(Worker, name) for name in defaults}


# The title


@pytest.fixture
def worker_config() -> WorkerConfig:
    return prepared("--queues=foo,bar", "--max-duration=90")


def test_the_title_has_no_id_before_there_is_a_worker():
    assert configure("--queues=foo").get_proc_title() == "worker [init]"
    assert WorkerConfig(["some/worker.py", "--queues=foo", "--no-title"]).get_proc_title() == "worker [init]"


def test_the_title_tells_the_state_of_the_worker(redis_client, worker_config):
    worker = worker_config.worker
    assert worker_config.get_proc_title() == f"worker#{worker.id} [init] queues=foo,bar"
    Queue.get_queue("foo").waiting.rpush("x", "y")
    worker.status = "starting"
    assert worker_config.get_proc_title() == (
        f"worker#{worker.id} [starting] queues=foo,bar loop=0/1000 waiting=2 delayed=0"
    )
    worker.end_forced = True
    assert " [starting - ending] " in worker_config.get_proc_title()


def test_the_title_tells_the_duration_and_its_maximum(redis_client, worker_config):
    worker = worker_config.worker
    worker.end_forced = True
    worker.run()
    assert worker.elapsed < timedelta(minutes=1)
    assert re.search(r" duration=0:00:\d\d/0:01:30$", worker_config.get_proc_title())


def test_the_title_costs_a_round_trip_a_second_and_none_per_job(redis_client, worker_config, commands):
    worker_config.worker.status = "running"
    worker_config.get_proc_title()
    with commands() as sent:
        titles = {worker_config.get_proc_title() for _ in range(3)}
    assert len(titles) == 1
    assert len(sent) <= 1  # one if a second passed meanwhile


@pytest.mark.parametrize("state", ["end_forced", "has_waited"])
def test_a_worker_that_ends_or_has_just_waited_does_not_ask_redis_for_its_title(
    redis_client, worker_config, commands, monkeypatch, state
):
    monkeypatch.setattr("limpyd_jobs.workers.process.system.LASTS", 0)
    worker = worker_config.worker
    worker.status = "running"
    worker_config.get_proc_title()
    setattr(worker if state == "end_forced" else worker._run_state, state, True)
    with commands() as sent:
        worker_config.get_proc_title()
    assert sent == []


def test_a_worker_that_waited_asks_once_it_has_no_job_any_more(redis_client, worker_config, commands, monkeypatch):
    monkeypatch.setattr("limpyd_jobs.workers.process.system.LASTS", 0)
    worker_config.worker.status = "waiting"
    worker_config.get_proc_title()
    worker_config.worker._run_state.has_waited = True
    with commands() as sent:
        worker_config.get_proc_title()
    assert len(sent) == 1


NEW_FLAGS = sorted(flag for option in OPTIONS for flag in option.new_flags)


@pytest.mark.matrix(1)
@pytest.mark.parametrize("at_once", [True, False])
def test_an_option_that_version_2_does_not_have_may_be_one_of_the_application(at_once: bool) -> None:
    assert {"--processes", "--burst-delayed", "--terminate-gracefully"} < set(NEW_FLAGS)
    for flag in NEW_FLAGS:
        for dest in ("mine", flag.strip("-").replace("-", "_")):
            config = own_config(make_option(flag, dest=dest), at_once=at_once)(["worker", "--queues=a", f"{flag}=x"])
            assert getattr(config.options, dest) == "x"
            config.prepare_worker()
            assert vars(config.worker._settings) == vars(Worker("a")._settings)
            assert config.parser.format_help().count(f"{flag}=") == 1


def test_it_may_have_the_name_of_a_new_parameter() -> None:
    config = own_config(make_option("--zz", dest="burst"))(["worker", "--queues=a", "--zz=5"])
    config.prepare_worker()
    assert (config.options.burst, config.worker._settings.burst) == ("5", False)
    assert not config.parser.has_option("--burst-delayed")
    assert WorkerConfig(["worker", "--queues=a", "--burst"]).prepare_worker_options()["burst"] is True


def test_a_worker_may_have_such_a_parameter_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    own = type("OwnWorker", (Worker,), {"parameters": (*Worker.parameters, "processes"), "processes": 4})
    monkeypatch.setattr(sys.modules[HERE], "OwnWorker", own, raising=False)
    arguments = ["worker", "--queues=a", f"--worker-class={HERE}.OwnWorker", "--processes=many"]
    config = own_config(make_option("--processes"))(arguments)
    config.prepare_worker()
    assert (config.worker.processes, config.worker._settings.processes) == ("many", 1)


@pytest.mark.parametrize("flag", ["--max-loops", "--terminate-gracefuly", "--dry-run"])
def test_one_that_version_2_has_may_not(flag: str) -> None:
    with pytest.raises(OptionConflictError):
        own_config(make_option(flag))(["worker", "--queues=a"])
