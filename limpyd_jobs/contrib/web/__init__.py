"""A dashboard: a web application that shows queues, jobs and workers, and changes them.

`application` makes it, to be served by itself or mounted under another application. ``limpyd-jobs web`` serves it.

It has no search and no verb of its own: it shows what `limpyd_jobs.query` returns, and calls the verbs there.

A page is one file in ``limpyd_jobs/contrib/web/pages/`` with a `Page`, one template of the same name in ``templates/``,
and a row in ``pages/__init__.py``. The handler returns a value; the template shows it, or it is sent as JSON. A verb is
an `Act` in the file of its page: see ``protocol.py``.
"""

from limpyd_jobs.contrib.web.app import application
from limpyd_jobs.contrib.web.users import User

__all__ = ["User", "application"]
