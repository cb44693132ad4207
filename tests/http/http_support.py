"""A real server in a thread, real clients, and services for what the embedded one cannot do."""

from __future__ import annotations

import json
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
from starlette.applications import Starlette

from memoree import limits
from memoree.assembly import embedded_service
from memoree.database.quota import Quota
from memoree.embedded import LOCAL_TENANT, EmbeddedService
from memoree.erasures import Erasure, ErasureReceipt
from memoree.http.server import HttpServer, address_of, listen
from memoree.ids import AttemptId, new_attempt_id
from memoree.service import Check, OperationStatus, Reply, Request, refusal, write_pending
from tenants_support import FakeTenants

Json = dict[str, Any]

CONTEXT: Final[Json] = {"workspace_id": "wsp_lab", "project_id": "prj_kiln"}
DEADLINE_SECONDS = 20.0
JSON_HEADERS: Final = {"Content-Type": "application/json"}


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen in time"
        time.sleep(0.01)


@contextmanager
def serving(app: Starlette, *, metrics_listener: socket.socket | None = None) -> Iterator[str]:
    """The app under the real server on a free port; yields its base URL."""
    listener = listen("127.0.0.1", 0)
    base_url = f"http://{address_of(listener)}"
    server = HttpServer(app, listener, metrics_listener=metrics_listener)
    thread = threading.Thread(target=server.run, name="http server")
    thread.start()
    try:
        wait_for(lambda: server.started or not thread.is_alive(), "the server's start")
        yield base_url
    finally:
        server.stop()
        thread.join(DEADLINE_SECONDS)
        assert not thread.is_alive(), "the server did not stop"


def envelope(op: str, input: Any = None, *, key: str | None = None, **members: Any) -> Json:
    request: Json = {"request_id": f"req_{uuid.uuid4().hex}", "op": op, "context": CONTEXT, "input": input or {}}
    if key is not None:
        request["idempotency_key"] = key
    return request | members


def note(text: str = "cone 6 reached at 21:40") -> Json:
    return {"kind": "note", "title": "Kiln firing 12", "content": {"type": "text", "data": text}}


class Caller:
    """One client of one server, with or without a token."""

    def __init__(self, base_url: str, token: str | None = None) -> None:
        self.base_url = base_url
        headers = dict(JSON_HEADERS)
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        self.http = httpx.Client(base_url=base_url, headers=headers, timeout=60.0)

    def post(self, request: Mapping[str, Any] | bytes, headers: Mapping[str, str] | None = None) -> httpx.Response:
        body = request if isinstance(request, bytes) else json.dumps(request).encode()
        return self.http.post("/v1/call", content=body, headers=dict(headers or {}))

    def put(self, text: str, key: str | None = None) -> Json:
        response = self.post(envelope("artifact.put", note(text), key=key or uuid.uuid4().hex))
        assert response.status_code == 200, response.text
        result: Json = response.json()["result"]
        return result

    def get_artifact(self, artifact_id: str) -> httpx.Response:
        return self.post(envelope("artifact.get", {"artifact_id": artifact_id}))

    def last_commit_seq(self) -> int:
        response = self.post(envelope("doctor", context=None))
        number: int = response.json()["result"]["last_commit_seq"]
        return number

    def close(self) -> None:
        self.http.close()


def peak_rss_bytes(*, reset: bool = False) -> int:
    """The high-water mark of this process, which client and server share; `reset` sets it to what is resident now."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * limits.KIB for line in lines if line.startswith("VmHWM:"))


class Stores(dict[str, EmbeddedService]):
    """Of tenants, by name; opened when they are first asked for."""

    def __init__(self, directory: Path, names: list[str]) -> None:
        super().__init__()
        self._directories = {name: directory / f"tenant-{number}" for number, name in enumerate(names)}

    def __missing__(self, name: str) -> EmbeddedService:
        opened = self[name] = embedded_service(self._directories[name])
        return opened

    def all_opened(self) -> list[EmbeddedService]:
        return [self[name] for name in self._directories]


class Tenants:
    """Several tenants, each with an embedded store of its own."""

    def __init__(self, directory: Path, names: list[str]) -> None:
        self._stores = Stores(directory, names)

    async def call(self, tenant: str, request: Request, *, wait_seconds: float = 10.0, strong: bool = False) -> Reply:
        return await self._stores[tenant].call(LOCAL_TENANT, request)

    async def operation_status(self, tenant: str, attempt_id: AttemptId) -> OperationStatus:
        return await self._stores[tenant].operation_status(LOCAL_TENANT, attempt_id)

    async def record_erasure(self, tenant: str, erasure: Erasure, *, blobs: int) -> ErasureReceipt:
        return await self._stores[tenant].record_erasure(LOCAL_TENANT, erasure, blobs=blobs)

    def granted(self, tenant: str) -> Quota | None:
        return self._stores[tenant].granted(LOCAL_TENANT)

    async def queue_lag(self, tenant: str) -> bool:
        return await self._stores[tenant].queue_lag(LOCAL_TENANT)

    async def newer(self, tenant: str, commit_seq: int, seconds: float) -> bool:
        return await self._stores[tenant].newer(LOCAL_TENANT, commit_seq, seconds)

    async def cursor_key(self) -> bytes:
        """One for all tenants, as in a deployment: only the cursor itself keeps them apart."""
        return await self._stores.all_opened()[0].cursor_key()

    async def readiness(self) -> list[Check]:
        return [check for store in self._stores.all_opened() for check in await store.readiness()]

    async def close(self) -> None:
        for store in self._stores.values():
            await store.close()

    def close_sync(self) -> None:
        for store in self._stores.values():
            store.close_sync()


class Scripted:
    """A service that answers as a test tells it to, for what a healthy store never does."""

    def __init__(self) -> None:
        self.checks = [Check("store", ok=True)]
        self.statuses: dict[str, OperationStatus] = {}
        self.waits: list[float] = []
        self.strong: list[bool] = []
        self.tenants: list[str] = []
        self.keys: list[str] = []
        self.lag = False
        self.quotas: dict[str, Quota] = {}
        self.tenants_told = FakeTenants()
        self.answer: Callable[[Request], Reply] = self.pending

    def pending(self, request: Request) -> Reply:
        return refusal(request.call.request_id, write_pending(new_attempt_id()))

    async def call(self, tenant: str, request: Request, *, wait_seconds: float = 10.0, strong: bool = False) -> Reply:
        self.waits.append(wait_seconds)
        self.strong.append(strong)
        self.tenants.append(tenant)
        self.keys.append(request.envelope.idempotency_key or "")
        return self.answer(request)

    async def record_erasure(self, tenant: str, erasure: Erasure, *, blobs: int) -> ErasureReceipt:
        self.tenants.append(tenant)
        return ErasureReceipt({})

    @property
    def administration(self) -> FakeTenants:
        return self.tenants_told

    def granted(self, tenant: str) -> Quota | None:
        return self.quotas.get(tenant)

    async def queue_lag(self, tenant: str) -> bool:
        self.tenants.append(tenant)
        return self.lag

    async def operation_status(self, tenant: str, attempt_id: AttemptId) -> OperationStatus:
        return self.statuses.get(f"{tenant}/{attempt_id}", OperationStatus("unknown"))

    async def readiness(self) -> list[Check]:
        return self.checks

    async def close(self) -> None:
        return None


def write_tokens(path: Path, entries: Mapping[str, Any]) -> Path:
    """Put a tokens file in place the way an operator should: whole, by renaming."""
    beside = path.with_name(path.name + ".new")
    beside.write_text(json.dumps(entries))
    beside.chmod(0o600)
    beside.replace(path)
    return path


def local_store(directory: Path) -> EmbeddedService:
    return embedded_service(directory / "store")
