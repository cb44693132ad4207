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
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from memoree.assembly import replicated_service
from memoree.ids import AttemptId
from memoree.objects.s3 import S3Settings
from memoree.operations.call import decode, validate
from memoree.reader.service import ReplicatedService
from memoree.service import Reply, Request
from memoree.settings import StackSettings

QUICK = {
    "lease_ttl_seconds": 3.0,
    "lease_renew_seconds": 1.0,
    "visibility_seconds": 2.0,
    "sync_timeout_seconds": 2,
}
"""Intervals short enough for a test to wait for, in the proportions of the defaults."""
WRITE_SECONDS_MAX = 60.0
THINKING_SECONDS = 0.02
ENTRUSTED_EVERY = 2
DECIDED_SECONDS_MAX = 15.0
CONTEXT = {"workspace_id": "wsp_faults", "project_id": "prj_faults"}


WRITER = Path(__file__).with_name("writer_process.py")
CITED_BYTES = 20 * 1024
"""More than what lives in a row: a cited text is a blob."""


@dataclass(frozen=True, slots=True)
class Citation:
    """Bytes of a revision that a claim cites, as they were when it did."""

    artifact_id: str
    revision_id: str
    start: int
    end: int
    quoted: bytes

    def locator(self) -> dict[str, Any]:
        return {
            "artifact_id": self.artifact_id,
            "revision_id": self.revision_id,
            "start_byte": self.start,
            "end_byte": self.end,
        }


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A claim the service said is durable."""

    tenant: str
    key: str
    statement: str
    claim_id: str
    commit_seq: int
    citation: Citation | None = None


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

    @property
    def environment(self) -> dict[str, str]:
        """For a process of this deployment."""
        return {**os.environ, **environment_of(self._values())}

    @contextlib.contextmanager
    def writer(
        self,
        *,
        crash_at: str | None = None,
        freeze_at: str | None = None,
        subject: str | None = None,
        leased: bool = False,
        endpoint_url: str | None = None,
        clock_offset_seconds: float | None = None,
        checkpoint_seconds: float | None = None,
        command_version: int | None = None,
        unknown_seconds: float | None = None,
        **overrides: Any,
    ) -> Iterator[Writer]:
        """A writer process, killed on leaving if it still runs. It dies, or stops, at a named crash point if told to,
        and honours the leases of others only if `leased`."""
        values = self._values() | overrides
        if endpoint_url is not None:
            values["endpoint_url"] = endpoint_url
        mark = self.directory / f"reached-{uuid.uuid4().hex}"
        test_settings = {
            "MEMOREE_TEST_CRASH_AT": crash_at or freeze_at,
            "MEMOREE_TEST_CRASH_SIGNAL": "SIGSTOP" if freeze_at else None,
            "MEMOREE_TEST_CRASH_SUBJECT": subject,
            "MEMOREE_TEST_CRASH_MARK": mark,
            "FAULTS_CLOCK_OFFSET_SECONDS": clock_offset_seconds,
            "FAULTS_CHECKPOINT_SECONDS": checkpoint_seconds,
            "FAULTS_COMMAND_VERSION": command_version,
            "FAULTS_UNKNOWN_SECONDS": unknown_seconds,
        }
        environment = environment_of(values)
        environment |= {name: str(value) for name, value in test_settings.items() if value is not None}
        log_path = self.directory / f"writer-{uuid.uuid4().hex[:6]}.log"
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, str(WRITER), "writer" if leased else "supervised-writer"],
                env={**os.environ, **environment},
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
    async def clients(self, **overrides: Any) -> AsyncIterator[Clients]:
        settings = StackSettings(**(self._values() | overrides))
        async with replicated_service(settings, authorization=False) as service:
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

    async def frozen(self, seconds: float = 30) -> None:
        """Wait until the process stopped at its crash point."""
        await until(self.mark.exists, seconds, what="the freeze")

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")


class Clients:
    """Writes that are retried with the same key until they are decided, and what was acknowledged."""

    def __init__(self, site: Site, service: ReplicatedService) -> None:
        self.site = site
        self.service = service
        self.acknowledged: list[Acknowledged] = []
        self.entrusted: list[tuple[str, AttemptId]] = []

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

    async def decided(
        self, operation: str, payload: Mapping[str, Any], *, key: str, tenant: str | None = None
    ) -> Mapping[str, Any]:
        """The envelope of a successful mutation. The identical request is sent again while its outcome is unknown,
        and when it was given up for having ended the writer three times."""
        deadline = time.monotonic() + WRITE_SECONDS_MAX
        while True:
            reply = await self.call(operation, payload, key=key, tenant=tenant)
            if reply.status == 200:
                return reply.envelope
            error = reply.envelope["error"]
            assert error["retryable"] or "is given up" in error["message"], reply.envelope
            assert time.monotonic() < deadline, f"{key} was never decided: {reply.envelope}"
            await asyncio.sleep(0.05)

    async def write(self, key: str, *, tenant: str | None = None, citation: Citation | None = None) -> Acknowledged:
        """Assert one claim."""
        tenant = tenant or self.site.tenant
        payload: dict[str, Any] = {"claim_type": "fact", "statement": f"statement {key} of {tenant}"}
        if citation is not None:
            payload["evidence"] = [citation.locator()]
        envelope = await self.decided("claim.assert", payload, key=key, tenant=tenant)
        claim_id, commit_seq = envelope["result"]["claim_id"], envelope["commit_seq"]
        written = Acknowledged(tenant, key, payload["statement"], claim_id, commit_seq, citation)
        self.acknowledged.append(written)
        return written

    async def write_cited(self, key: str, *, tenant: str | None = None) -> Acknowledged:
        """Put an artifact large enough to be a blob, and assert a claim that cites a span of it."""
        tenant = tenant or self.site.tenant
        text = f"{key} of {tenant}: ".ljust(CITED_BYTES, "é")
        payload = {"kind": "note", "title": key, "content": {"type": "text", "data": text}}
        artifact = (await self.decided("artifact.put", payload, key=f"artifact of {key}", tenant=tenant))["result"]
        start, end = 4, 1004
        quoted = text.encode()[start:end]
        citation = Citation(artifact["artifact_id"], artifact["revision_id"], start, end, quoted)
        return await self.write(key, tenant=tenant, citation=citation)

    async def write_disputed(self, key: str, *, tenant: str | None = None) -> Acknowledged:
        """Assert a claim and one that contradicts it, and revise that one: four commits that one case joins."""
        tenant = tenant or self.site.tenant
        written = await self.write(key, tenant=tenant)
        other = await self.decided(
            "claim.assert",
            {"claim_type": "fact", "statement": f"not {key} of {tenant}"},
            key=f"other of {key}",
            tenant=tenant,
        )
        claim_id, revision_id = other["result"]["claim_id"], other["result"]["revision_id"]
        ends = {"source_id": claim_id, "target_id": written.claim_id, "source_type": "claim", "target_type": "claim"}
        await self.decided("relation.put", ends | {"relation": "contradicts"}, key=f"edge of {key}", tenant=tenant)
        revision = {"claim_id": claim_id, "if_revision": revision_id, "statement": f"still not {key} of {tenant}"}
        await self.decided("claim.revise", revision, key=f"revision of {key}", tenant=tenant)
        return written

    async def entrust(self, key: str, *, tenant: str) -> None:
        """Assert a claim, once, and do not wait for it: from now on it is the service's task."""
        payload = {"claim_type": "fact", "statement": f"statement {key} of {tenant}"}
        reply = await self.call("claim.assert", payload, key=key, tenant=tenant, wait_seconds=0)
        assert reply.envelope["error"]["code"] == "WRITE_PENDING", reply.envelope
        self.entrusted.append((tenant, reply.envelope["error"]["details"]["attempt_id"]))

    async def await_entrusted(self) -> None:
        """W1 without a client's help: what the queue took is decided, though nobody sends it again."""
        for tenant, attempt_id in self.entrusted:
            deadline = time.monotonic() + DECIDED_SECONDS_MAX
            while (status := await self.service.operation_status(tenant, attempt_id)).state == "pending":
                assert time.monotonic() < deadline, f"W1: {attempt_id} was taken out of the queue undecided"
                await asyncio.sleep(0.05)
            given_up = status.error is not None and "is given up" in status.error["message"]
            assert status.state == "applied" or given_up, status

    async def repeat_all(self) -> None:
        """W1 as the client sees it: every acknowledged request, sent again, gets the same answer."""
        for written in list(self.acknowledged):
            evidence = {} if written.citation is None else {"evidence": [written.citation.locator()]}
            payload = {"claim_type": "fact", "statement": written.statement, **evidence}
            envelope = await self.decided("claim.assert", payload, key=written.key, tenant=written.tenant)
            again = (envelope["result"]["claim_id"], envelope["commit_seq"], envelope["result"]["created"])
            assert again == (written.claim_id, written.commit_seq, False), f"W1: {written.key} was done again"

    @contextlib.asynccontextmanager
    async def traffic(self, prefix: str, *, tenants: Sequence[str] = (), per_tenant: int = 2) -> AsyncIterator[None]:
        """Clients that write one after the other until the block ends; then all they sent is decided."""
        stop = asyncio.Event()

        async def one(name: str, tenant: str) -> None:
            number = 0
            while not stop.is_set():
                number += 1
                if number % ENTRUSTED_EVERY == 0:
                    await self.entrust(f"{name}-{number}-entrusted", tenant=tenant)
                kinds = (self.write_disputed, self.write, self.write_cited, self.write)
                await kinds[number % len(kinds)](f"{name}-{number}", tenant=tenant)
                await asyncio.sleep(THINKING_SECONDS)

        tasks = [
            asyncio.create_task(one(f"{prefix}-{number}", tenant))
            for tenant in tenants or [self.site.tenant]
            for number in range(per_tenant)
        ]
        try:
            yield
        finally:
            stop.set()
            await asyncio.gather(*tasks)

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


async def until(reached: Callable[[], object], seconds: float, *, what: str) -> None:
    """Wait for a condition, with a deadline."""
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        await asyncio.sleep(0.02)


class StoreProcess:
    """The object store's own process, to be frozen. Started by this process, found by its port."""

    def __init__(self, s3: S3Settings) -> None:
        option = f"-s3.port={urlsplit(s3.endpoint_url or '').port}".encode()
        self._pids = [pid for pid in descendants(os.getpid()) if option in _arguments(pid)]
        assert self._pids, "no descendant of this process is the store"

    def freeze(self) -> None:
        for pid in self._pids:
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        for pid in self._pids:
            os.kill(pid, signal.SIGCONT)


def _arguments(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except FileNotFoundError:
        return []


def child_pids(pid: int) -> list[int]:
    """Direct children of a process."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found


def descendants(pid: int) -> Sequence[int]:
    children = child_pids(pid)
    return [*children, *(grandchild for child in children for grandchild in descendants(child))]


def environment_of(values: Mapping[str, Any]) -> dict[str, str]:
    return {f"MEMOREE_{name.upper()}": _text(value) for name, value in values.items()}


def _text(value: Any) -> str:
    return orjson.dumps(value).decode() if isinstance(value, list | tuple) else str(value)
