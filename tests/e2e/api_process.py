"""An api process beside those of a stack, from `deployment.env` alone."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from e2e.deployment import Deployment, environment, until

BACKLOG = 128


@dataclass(frozen=True)
class Api:
    """Nobody starts it again when it ends."""

    process: subprocess.Popen[bytes]
    url: str

    def wait_until_live(self) -> None:
        def is_live() -> bool:
            with contextlib.suppress(httpx.TransportError):
                return httpx.get(f"{self.url}/livez", trust_env=False, timeout=5).status_code == httpx.codes.OK
            return False

        until(is_live, "a live api process")


@contextlib.contextmanager
def api_process(stack: Deployment, runtime_dir: Path) -> Iterator[Api]:
    """Killed at the end of the block, if not before."""
    variables = {**stack.deployment_variables(), "MEMOREE_RUNTIME_DIR": str(runtime_dir)}
    with contextlib.ExitStack() as opened:
        listeners = [opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)) for _ in range(2)]
        descriptors = [listener.fileno() for listener in listeners]
        process = subprocess.Popen(
            [sys.executable, "-m", "memoree.stack.processes", "api", *map(str, descriptors)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment(**variables),
            pass_fds=descriptors,
        )
        url = f"http://127.0.0.1:{listeners[0].getsockname()[1]}"
    try:
        yield Api(process, url)
    finally:
        process.kill()
        process.wait()
