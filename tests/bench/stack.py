"""The stack under measurement: `memoree up` as a child process, and further api processes started by hand."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from memoree.objects.s3 import S3Settings
from memoree.replication.litestream import Credentials, ReplicaTarget

from .wire import Caller

UNLIMITED = "1000000"
"""The rate limiter is not what is measured."""
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 20.0
BACKLOG = 128
LOG_CHARS_SHOWN = 2000
SCOPES = ["recall", "ingest", "forget", "inbox", "admin"]


@dataclass(frozen=True, slots=True)
class Stack:
    """A running stack: where it listens, how to reach its store, the token of each tenant."""

    data_dir: Path
    pid: int
    url: str
    s3: S3Settings
    tokens: dict[str, str] = field(repr=False)

    async def caller(self, tenant: str, *, url: str | None = None, route: str = "POST /v1/call") -> Caller:
        return await Caller.open(url or self.url, self.tokens[tenant], route)

    @property
    def queue_path(self) -> Path:
        return self.data_dir / "queue.sqlite3"

    @property
    def ingest_queue_path(self) -> Path:
        return self.data_dir / "ingest.sqlite3"

    @property
    def replicas_dir(self) -> Path:
        return self.data_dir / "runtime" / "replicas"

    def replica_target(self, prefix: str) -> ReplicaTarget:
        assert self.s3.access_key_id is not None and self.s3.secret_access_key is not None
        keys = Credentials(self.s3.access_key_id, self.s3.secret_access_key)
        return ReplicaTarget(f"s3://{self.s3.bucket}/{prefix}", self.s3.endpoint_url, self.s3.region, keys)

    @asynccontextmanager
    async def api_process(self, name: str) -> AsyncIterator[str]:
        """A further api process, with local files of its own; its URL at once, before it listens. Killed after."""
        listeners = [_listener(), _listener()]
        descriptors = [listener.fileno() for listener in listeners]
        with (self.data_dir / f"{name}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "memoree.stack.processes", "api", *map(str, descriptors)),
                env=self.environment(self.data_dir / name),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=descriptors,
            )
        try:
            yield "http://{}:{}".format(*listeners[0].getsockname()[:2])
        finally:
            process.kill()
            await process.wait()
            for listener in listeners:
                listener.close()

    def environment(self, runtime_dir: Path) -> dict[str, str]:
        """For a process of this deployment."""
        assert self.s3.endpoint_url is not None
        assert self.s3.access_key_id is not None and self.s3.secret_access_key is not None
        return {
            **os.environ,
            "MEMOREE_BUCKET": self.s3.bucket,
            "MEMOREE_ENDPOINT_URL": self.s3.endpoint_url,
            "MEMOREE_REGION": self.s3.region,
            "MEMOREE_ACCESS_KEY_ID": self.s3.access_key_id,
            "MEMOREE_SECRET_ACCESS_KEY": self.s3.secret_access_key,
            "MEMOREE_QUEUE_URL": f"sqlite://{self.queue_path}",
            "MEMOREE_RUNTIME_DIR": str(runtime_dir),
            "MEMOREE_TOKENS_FILE": str(self.data_dir / "tokens.json"),
            "MEMOREE_RATE_PER_SECOND": UNLIMITED,
            "MEMOREE_RATE_BURST": UNLIMITED,
        }


@asynccontextmanager
async def running_stack(data_dir: Path, tenants: Sequence[str]) -> AsyncIterator[Stack]:
    """`memoree up` with one api process and a token per tenant; settled and stopped on leaving."""
    tokens = {tenant: secrets.token_urlsafe(32) for tenant in tenants}
    tokens_file = data_dir / "tokens.json"
    tokens_file.touch(mode=0o600)
    tokens_file.write_bytes(
        orjson.dumps({token: {"tenant": tenant, "scopes": SCOPES} for tenant, token in tokens.items()})
    )
    with (data_dir / "up.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "memoree.cli.main", "up", "--data-dir", str(data_dir)),
            *("--tokens", str(tokens_file), "--rate", UNLIMITED, "--burst", UNLIMITED),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(START_SECONDS_MAX):
            line = await process.stdout.readline()
        if not line:
            raise RuntimeError("the stack did not start")
        state = orjson.loads(line)
        yield Stack(data_dir, process.pid, state["url"], _s3_settings(data_dir, state), tokens)
    except Exception:
        sys.stderr.write(_last_words(data_dir))
        raise
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS_MAX)
        except TimeoutError:
            process.kill()
            await process.wait()


def _s3_settings(data_dir: Path, state: dict[str, Any]) -> S3Settings:
    """The service's own identity, as the stack keeps it beside its store."""
    identities = orjson.loads((data_dir / "seaweedfs" / "s3.json").read_bytes())["identities"]
    keys = next(each["credentials"][0] for each in identities if each["name"] == "memoree")
    return S3Settings(
        bucket=state["bucket"],
        endpoint_url=state["s3_url"],
        access_key_id=keys["accessKey"],
        secret_access_key=keys["secretKey"],
    )


def _last_words(data_dir: Path) -> str:
    """The end of every log, which is gone with the directory when the benchmark fails."""
    return "".join(
        f"--- {path.name}\n{path.read_text(errors='replace')[-LOG_CHARS_SHOWN:]}" for path in data_dir.glob("*.log")
    )


def _listener() -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    listener.listen(BACKLOG)
    return listener
