"""A real PostgreSQL for the tests: a server of its own in a temporary directory, gone at the end."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

HOME = "/usr/lib/postgresql"  # where Debian has the programs of each version
USER = "postgres"  # whom Debian makes for it: PostgreSQL does not run as root


class PostgreSQL:
    """A server that runs inside a ``with``, and listens on a unix socket in `directory` only.

    >>> with PostgreSQL(find_postgresql()) as server:
    ...     psycopg.connect(server.dsn)
    """

    def __init__(self, programs: Path) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="limpyd-jobs-postgresql-", dir="/tmp"))
        self.dsn = f"host={self.directory} user={USER} dbname=postgres"
        self._programs = programs

    def __enter__(self) -> PostgreSQL:
        if os.geteuid() == 0:
            shutil.chown(self.directory, USER)
        try:
            self._run("initdb", "--auth=trust", f"--username={USER}", "--no-sync", "--encoding=UTF8")
            options = f"-k {self.directory} -c listen_addresses='' -c fsync=off"
            self._run("pg_ctl", "-w", "-o", options, "-l", str(self.directory / "log"), "start")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._run("pg_ctl", "-m", "immediate", "stop", check=False)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _run(self, program: str, *arguments: str, check: bool = True) -> None:
        command = [str(self._programs / program), "-D", str(self.directory / "data"), *arguments]
        user = USER if os.geteuid() == 0 else None
        subprocess.run(command, user=user, check=check, cwd=self.directory, stdout=subprocess.DEVNULL)


def find_postgresql() -> Path | None:
    """Return the directory of the programs of the newest PostgreSQL that is installed; None if there is none."""
    if found := shutil.which("initdb"):
        return Path(found).parent
    found_here = sorted(Path(HOME).glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    return found_here[-1].parent if found_here else None
