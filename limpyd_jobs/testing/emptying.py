"""Emptying the database of tests, and no other one."""

from __future__ import annotations

from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.redis.database import JobsDatabase, database_name
from limpyd_jobs.redis.embedded import is_temporary_here


def empty_database(database: JobsDatabase | None = None) -> None:
    """Delete all that is stored on the server of a database, if this process started it: that of ``embedded://``.

    Another server is never touched. So a test that forgot to choose its database deletes nothing.

    >>> BaseJobsModel.database.from_url("embedded://")
    <client of unix:///tmp/limpyd-jobs-1fkd2l/redis.sock?db=0>
    >>> empty_database()

    Parameters
    ----------
    database: JobsDatabase
        By default the one of `BaseJobsModel`.

    Raises
    ------
    ConfigurationException
        If the server is not a temporary one, or another process started it.
    """
    database = database or BaseJobsModel.database
    client = database.connect()
    if not is_temporary_here(client.connection_pool.connection_kwargs.get("path")):
        name = database_name(database.connection_settings)
        raise ConfigurationException(
            f"{name} is not emptied, because this process did not start its server, or its data are kept: call "
            'BaseJobsModel.database.from_url("embedded://") before'
        )
    client.flushall()
    database.forget_contents()
