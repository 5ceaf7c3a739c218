"""What mypy, in the hands of an application, knows of what the models return."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import limpyd_jobs

APPLICATION = """
from __future__ import annotations

from typing import Any

from limpyd import fields

from limpyd_jobs import Error, Job, Queue


class SendMail(Job):
    queue_name = "mails"
    to = fields.InstanceHashField()

    @classmethod
    def for_customer(cls, number: int) -> SendMail:
        return cls.add_job(f"welcome:{number}")


class Translated(SendMail):
    @classmethod
    def add_job(cls, *args: Any, **kwargs: Any) -> Translated:
        return super().add_job(*args, **kwargs)


class MailQueue(Queue):
    pass


class MailError(Error):
    pass


job = SendMail.add_job("a")
reveal_type(job)
reveal_type(SendMail.add_jobs(["a"])[0])
reveal_type(SendMail.for_customer(1))
reveal_type(Job.get_from_ident("myapp.SendMail:1"))
reveal_type(MailQueue.get_queue("mails"))
reveal_type(MailQueue.get_all("mails")[0])
reveal_type(MailQueue.get_all_by_priority("mails")[0])
reveal_type(MailError.add_error("mails", job, KeyError("to")))
reveal_type(MailError.add_error("mails", job, KeyError))
"""

SETTINGS = """
[mypy]
strict = true
disallow_subclassing_any = false

[mypy-limpyd.*]
ignore_missing_imports = true

[mypy-limpyd_jobs.*]
follow_imports = silent
"""

KNOWN = ["SendMail", "SendMail", "SendMail", "Job", "MailQueue", "MailQueue", "MailQueue", "MailError", "MailError"]


def test_what_is_made_by_a_class_is_of_that_class(tmp_path: Path) -> None:
    (tmp_path / "myapp.py").write_text(APPLICATION)
    (tmp_path / "mypy.ini").write_text(SETTINGS)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=mypy.ini", "myapp.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(Path(limpyd_jobs.__file__).parent.parent)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert re.findall(r'Revealed type is "[\w.]*?(\w+)"', done.stdout) == KNOWN, done.stdout + done.stderr
    assert "error:" not in done.stdout
