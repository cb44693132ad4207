"""`verify` and `backup.create` read everything: others do not wait for them, and nobody has many of them."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import apsw
import orjson
import pytest
from http_support import Caller, Json, envelope, serving, wait_for, write_tokens

from memoree import limits
from memoree.backup import directory
from memoree.embedded import EmbeddedService
from memoree.errors import Code, MemoreeError
from memoree.http.app import create_app
from memoree.http.settings import HttpSettings
from memoree.long_reads import LongReads, Stop
from memoree.objects.audit import BlobRef
from memoree.verification import store as verification

VERIFY: Json = envelope("verify", context=None)
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT sum(i) FROM n"


class Gate:
    """Holds up the function it stands before until it is opened."""

    def __init__(self, behind: Callable[..., Any]) -> None:
        self._behind = behind
        self._open = threading.Event()
        self.arrived = 0

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.arrived += 1
        self._open.wait()
        return self._behind(*arguments, **options)

    def open(self) -> None:
        self._open.set()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch, stack: ExitStack) -> Gate:
    """Before the checks of `verify`."""
    gate = Gate(verification.verify)
    monkeypatch.setattr(verification, "verify", gate)
    stack.callback(gate.open)
    return gate


def leave_after(caller: Caller, request: Json, begun: Callable[[], bool]) -> None:
    """Send a request and close the connection once it is being served."""
    address, body = urlsplit(caller.base_url), orjson.dumps(request)
    with socket.create_connection((address.hostname, address.port)) as connection:
        head = f"POST /v1/call HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
        connection.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        wait_for(begun, "the work")


def test_ordinary_requests_do_not_wait_for_a_long_read_and_a_second_one_is_refused(caller: Caller, gate: Gate) -> None:
    with ThreadPoolExecutor(1) as pool:
        verifying = pool.submit(caller.post, VERIFY)
        wait_for(lambda: gate.arrived == 1, "the work")
        for _ in range(12):
            refused = caller.post(VERIFY)
            error = refused.json()["error"]
            assert (refused.status_code, error["code"], error["retryable"]) == (503, "TRANSPORT_ERROR", True)
            assert "under way" in error["message"]
            assert int(refused.headers["retry-after"]) >= 1
        assert caller.put("written meanwhile")["created"]
        assert caller.last_commit_seq() == 1
        gate.open()
        assert verifying.result().json()["result"]["ok"]
    assert gate.arrived == 1
    assert caller.post(VERIFY).json()["result"]["ok"]


def test_a_client_that_leaves_ends_its_long_read_within_a_statement(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()

    def endless(db: apsw.Connection, blobs: object) -> None:
        begun.set()
        db.execute(ENDLESS).fetchall()

    with monkeypatch.context() as patched:
        patched.setattr(verification, "verify", endless)
        leave_after(caller, VERIFY, begun.is_set)
    wait_for(lambda: caller.post(VERIFY).status_code == 200, "the end of the work")


def test_a_bulk_request_that_ends_takes_its_long_read_along(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = threading.Event()

    def endless(db: apsw.Connection, blobs: object) -> None:
        begun.set()
        db.execute(ENDLESS).fetchall()

    address, line = urlsplit(caller.base_url), orjson.dumps(VERIFY) + b"\n"
    with (
        monkeypatch.context() as patched,
        socket.create_connection((address.hostname, address.port)) as connection,
    ):
        patched.setattr(verification, "verify", endless)
        head = f"POST /v1/bulk HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/x-ndjson\r\n"
        connection.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(line) + line)
        wait_for(begun.is_set, "the work")
    wait_for(lambda: caller.post(VERIFY).status_code == 200, "the end of the work")


def test_a_backup_is_finished_for_a_client_that_has_left(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, stack: ExitStack, tmp_path: Path
) -> None:
    caller.put("kept")
    gate, destination = Gate(directory.back_up), tmp_path / "backup"
    stack.callback(gate.open)
    monkeypatch.setattr(directory, "back_up", gate)
    request = envelope("backup.create", {"destination": str(destination)}, context=None)
    leave_after(caller, request, lambda: gate.arrived == 1)
    gate.open()
    wait_for(destination.exists, "the backup")


def test_a_read_that_was_stopped_asks_for_no_further_blob(store: EmbeddedService) -> None:
    stop = Stop()

    def referenced() -> Iterator[BlobRef]:
        yield BlobRef(b"\1" * 32, 1)
        stop.ask()
        yield BlobRef(b"\2" * 32, 1)

    with store._view() as view:
        with pytest.raises(MemoreeError), stop.watching(view) as watched:
            assert watched.upkeep is not None
            list(watched.upkeep.blob_audit().faults(referenced()))
        view.db.execute("SELECT count(*) FROM artifacts").fetchall()


def test_a_process_has_few_long_reads_and_a_tenant_one() -> None:
    async def body() -> None:
        reads, opened = LongReads(), threading.Event()

        def begin(threads: Executor, stop: Stop) -> asyncio.Future[bool]:
            return asyncio.get_running_loop().run_in_executor(threads, opened.wait)

        tenants = [f"tenant-{number}" for number in range(limits.LONG_READS_AT_ONCE_MAX)]
        running = [asyncio.create_task(reads.run(tenant, begin)) for tenant in tenants]
        await asyncio.sleep(0)
        for tenant in (*tenants, "another"):
            with pytest.raises(MemoreeError) as refused:
                await reads.run(tenant, begin)
            assert (refused.value.code, refused.value.retryable) == (Code.TRANSPORT_ERROR, True)
        running[0].cancel()
        await asyncio.gather(running[0], return_exceptions=True)
        with pytest.raises(MemoreeError):  # its thread is still at work
            await reads.run("another", begin)
        opened.set()
        await running[1]
        assert await reads.run("another", begin)
        await reads.close()

    asyncio.run(body())


@pytest.mark.parametrize(("scope", "status"), [("recall", 403), ("admin", 200)])
def test_verify_needs_a_token_that_may_administer(
    store: EmbeddedService, stack: ExitStack, tmp_path: Path, scope: str, status: int
) -> None:
    tokens = write_tokens(tmp_path / "tokens", {"token": {"tenant": "local", "scopes": [scope]}})
    settings = HttpSettings(tokens_file=tokens, only_tenant="local")
    with closing(Caller(stack.enter_context(serving(create_app(store, settings))), "token")) as caller:
        assert caller.post(VERIFY).status_code == status
