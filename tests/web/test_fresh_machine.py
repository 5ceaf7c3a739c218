"""One command opens the dashboard on a machine that has nothing of ours, as uvx and pipx do."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from pathlib import Path

from servers import RedisServer

ROOT = Path(__file__).parents[2]


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=280).stdout


def test_a_wheel_with_its_extra_is_all_that_is_needed(tmp_path: Path, redis_binary: str) -> None:
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT))
    (wheel,) = tmp_path.glob("*.whl")
    run(sys.executable, "-m", "venv", str(tmp_path / "venv"))
    programs = tmp_path / "venv" / "bin"
    run(str(programs / "pip"), "install", "-q", f"{wheel}[web]")
    with (
        RedisServer(redis_binary) as server,
        subprocess.Popen(
            [programs / "limpyd-jobs", "web", "--port=0", f"--database={server.url}"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout
            address = process.stdout.readline().strip()
            page = urllib.request.urlopen(address, timeout=60).read().decode()
            for name in re.findall(r'(?:src|href)="/(static/[^"]+)"', page):
                assert urllib.request.urlopen(f"{address}{name}", timeout=60).status == 200
        finally:
            process.terminate()
    assert "Ready for a first job" in page
