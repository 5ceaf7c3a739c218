"""``limpyd-jobs metrics``: serve the metrics of all workers to Prometheus."""

from __future__ import annotations

import sys
from contextlib import closing

from limpyd_jobs.classes.imports import installed_only
from limpyd_jobs.commandline.options import WorkerOption, between
from limpyd_jobs.commands.shared.command import Command
from limpyd_jobs.commands.shared.options import READING_OPTIONS
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.texts import one_line

# Where it listens by default.
HOST, PORT = "127.0.0.1", 8781


class Metrics(Command):
    """Exit status: 1 if it cannot listen there; 2 if the command line is wrong, or what it needs is not installed."""

    summary = "Serve the metrics of all workers, on all hosts, to Prometheus"
    words = f"""[options]

It prints its address once it listens. It answers whoever asks: listen on other
addresses than {HOST} only in a network of your own. limpyd-jobs web serves the
same under /metrics, to those who may look."""
    option_list = (
        *READING_OPTIONS,
        WorkerOption("--host", default=HOST, help=f"The address to listen on (default: {HOST})"),
        WorkerOption(
            "--port",
            type="int",
            default=PORT,
            check=between(0, 65535),
            help=f"The port to listen on; 0 for any that is free (default: {PORT})",
        ),
        WorkerOption("--once", action="store_true", help="Only print the metrics, and end"),
    )

    def run(self) -> int:
        if self.given:
            self.parser.error(f"unexpected argument: {self.given[0]!r}")
        if not self.options.host:
            self.parser.error("option --host: an address is needed, as 127.0.0.1 or 0.0.0.0")
        try:
            with installed_only():
                from limpyd_jobs.contrib.prometheus import exposition
        except ImportError as error:
            self.parser.error(f"what it needs is not installed: pip install 'redis-limpyd-jobs[prometheus]' ({error})")
        if self.options.once:
            sys.stdout.write(exposition(BaseJobsModel.database).content.decode())
            return 0
        self._serve(self.options.host, self.options.port)
        return 0

    def _serve(self, host: str, port: int) -> None:
        from limpyd_jobs.contrib.prometheus.exposition import PATH, answering
        from limpyd_jobs.observing.responder import Responder  # not at the start of each command

        try:
            responder = Responder(host, port, answering(BaseJobsModel.database))
        except ConfigurationException as error:
            self.fail(1, one_line(error))
        with closing(responder):
            print(f"{responder.address}{PATH}", flush=True)
            responder.serve_until_ended()
