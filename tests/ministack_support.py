"""An SQS without Amazon: ministack as a child process from its own virtual environment."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from memoree.queue.sqs import SqsEndpoint

ROOT = Path(__file__).parents[1]
START_SECONDS_MAX = 30.0


@contextlib.contextmanager
def running_ministack(home: Path, *, services: str = "sqs") -> Iterator[SqsEndpoint]:
    """A server of its own on a free port, until the block ends. `home` is its directory, `services` a list with
    commas."""
    port = free_port()
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [ROOT / ".venv-ministack/bin/python", "-m", "ministack"],
            cwd=home,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(home),
                "TMPDIR": str(home),
                "BIND_HOST": "127.0.0.1",
                "GATEWAY_PORT": str(port),
                "SERVICES": services,
                "LOG_LEVEL": "WARNING",
            },
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_for_port(port, process, home / "log")
        yield SqsEndpoint(
            endpoint_url=f"http://127.0.0.1:{port}",
            region="us-east-1",
            access_key_id="test",
            secret_access_key="test",
        )
    finally:
        process.kill()
        process.wait()


def install_ministack(lock: Path) -> None:
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        subprocess.run([ROOT / "scripts/install-ministack"], check=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise RuntimeError(f"ministack did not start:\n{log.read_text()}")
