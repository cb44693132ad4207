"""A deployment under fault: a real store, real writer processes with their Litestream children, and clients that
retry as the contract tells them to, remembering every acknowledgement."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from memoree.assembly import replicated_service
from memoree.objects.s3 import S3Settings
from memoree.operations.call import decode, validate
from memoree.reader.service import ReplicatedService
from memoree.service import Reply, Request
from memoree.settings import StackSettings

QUICK = {
    "lease_ttl_seconds": 3.0,
    "lease_renew_seconds": 1.0,
    "visibility_seconds": 3.0,
    "sync_timeout_seconds": 2,
}
"""Intervals short enough for a test to wait for, in the proportions of the defaults."""
WRITE_SECONDS_MAX = 60.0
CONTEXT = {"workspace_id": "wsp_faults", "project_id": "prj_faults"}


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A write the service said is durable."""

    tenant: str
    key: str
    statement: str
    claim_id: str
    commit_seq: int


@dataclass(slots=True)
class Site:
    """One deployment: its own queue and local directories, tenants of its own in a shared bucket."""

    directory: Path
    s3: S3Settings
    overrides: Mapping[str, Any] = field(default_factory=dict)
    tenant: str = field(default_factory=lambda: f"t-{uuid.uuid4().hex[:12]}")

    @property
    def settings(self) -> StackSettings:
        return StackSettings(**self._values())

    def _values(self) -> dict[str, Any]:
        return {
            "bucket": self.s3.bucket,
            "endpoint_url": self.s3.endpoint_url,
            "region": self.s3.region,
            "access_key_id": self.s3.access_key_id,
            "secret_access_key": self.s3.secret_access_key,
            "queue_url": f"sqlite://{self.directory / 'queue.sqlite3'}",
            "runtime_dir": self.directory / "runtime",
            **QUICK,
            **self.overrides,
        }

    @contextlib.contextmanager
    def writer(
        self, *, crash_at: str | None = None, leased: bool = True, environment: Mapping[str, str] | None = None
    ) -> Iterator[Writer]:
        """A writer process; killed on leaving if it still runs."""
        values = {f"MEMOREE_{name.upper()}": _text(value) for name, value in self._values().items()}
        mark = self.directory / f"crashed-{uuid.uuid4().hex}"
        if crash_at is not None:
            values |= {"MEMOREE_TEST_CRASH_AT": crash_at, "MEMOREE_TEST_CRASH_MARK": str(mark)}
        log_path = self.directory / f"writer-{uuid.uuid4().hex[:6]}.log"
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "memoree.stack.processes", "writer" if leased else "supervised-writer"],
                env={**os.environ, **values, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        writer = Writer(process, log_path, mark)
        try:
            yield writer
        finally:
            writer.kill()

    @contextlib.asynccontextmanager
    async def clients(self) -> AsyncIterator[Clients]:
        async with replicated_service(self.settings, authorization=False) as service:
            yield Clients(self, service)


@dataclass(slots=True)
class Writer:
    process: subprocess.Popen[bytes]
    log_path: Path
    mark: Path

    def kill(self) -> None:
        """SIGKILL, and reap. A stopped process dies of it too."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def stop(self, seconds: float = 20) -> int:
        """SIGTERM: settle and end; returns the exit status."""
        self.process.terminate()
        return self.process.wait(seconds)

    async def crashed(self, seconds: float = 30) -> None:
        """Wait until the process died at its crash point."""
        await until(lambda: self.process.poll() is not None, seconds, what="the crash")
        assert self.process.returncode == -signal.SIGKILL, self.log()
        assert self.mark.exists(), f"the process died elsewhere:\n{self.log()}"

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")


class Clients:
    """Writes that are retried with the same key until they are decided, and what was acknowledged."""

    def __init__(self, site: Site, service: ReplicatedService) -> None:
        self.site = site
        self.service = service
        self.acknowledged: list[Acknowledged] = []

    async def call(
        self,
        operation: str,
        payload: Mapping[str, Any],
        *,
        key: str | None = None,
        tenant: str | None = None,
        wait_seconds: float = 3.0,
        strong: bool = False,
    ) -> Reply:
        return await self.service.call(
            tenant or self.site.tenant,
            make_request(operation, payload, key=key),
            wait_seconds=wait_seconds,
            strong=strong,
        )

    async def write(self, key: str, *, tenant: str | None = None) -> Acknowledged:
        """Assert one claim; the identical request is sent again while its outcome is unknown."""
        tenant = tenant or self.site.tenant
        statement = f"statement {key} of {tenant}"
        payload = {"claim_type": "fact", "statement": statement}
        deadline = time.monotonic() + WRITE_SECONDS_MAX
        while True:
            reply = await self.call("claim.assert", payload, key=key, tenant=tenant)
            if reply.status == 200:
                break
            assert reply.envelope["error"]["retryable"], reply.envelope
            assert time.monotonic() < deadline, f"{key} was never decided: {reply.envelope}"
            await asyncio.sleep(0.05)
        result = reply.envelope["result"]
        written = Acknowledged(tenant, key, statement, result["claim_id"], reply.envelope["commit_seq"])
        self.acknowledged.append(written)
        return written

    async def write_many(self, prefix: str, count: int, *, concurrency: int = 8, tenant: str | None = None) -> None:
        permits = asyncio.Semaphore(concurrency)

        async def one(number: int) -> None:
            async with permits:
                await self.write(f"{prefix}-{number}", tenant=tenant)

        await asyncio.gather(*(one(number) for number in range(count)))


def make_request(operation: str, payload: Mapping[str, Any], *, key: str | None = None) -> Request:
    body: dict[str, Any] = {"request_id": "req_faults", "op": operation, "context": CONTEXT, "input": payload}
    if key is not None:
        body["idempotency_key"] = key
    envelope = decode(orjson.dumps(body))
    return Request(envelope, validate(envelope))


async def until(reached: Any, seconds: float, *, what: str) -> None:
    """Wait for a condition, with a deadline."""
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        await asyncio.sleep(0.02)


def child_pids(pid: int) -> list[int]:
    """Direct children of a process."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found


def descendants(pid: int) -> Sequence[int]:
    children = child_pids(pid)
    return [*children, *(grandchild for child in children for grandchild in descendants(child))]


def _text(value: Any) -> str:
    return orjson.dumps(value).decode() if isinstance(value, list | tuple) else str(value)
