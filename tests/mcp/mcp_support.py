"""The official client, as a model's host runs it: over the pipes of a child process, or over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult

from mcp import Client
from memoree.mcp.asking import Caller
from memoree.mcp.endpoints import CONCURRENT_MAX, EndpointAsk, HeldStore
from memoree.mcp.sdk import sdk_server

Json = dict[str, Any]
Result = TypeVar("Result")

PROGRAM = Path(sys.executable).with_name("memoree")
CONTEXT: Json = {"workspace_id": "wsp_default", "project_id": "prj_default"}
"""That of HTTP without tokens, so that every door of a test is in the same project."""
ANSWER_SECONDS_MAX = 60.0
START_SECONDS_MAX = 60.0
LISTENING = b"LISTENING_ON "


def environment(**variables: str) -> dict[str, str]:
    """Ours without any setting, and these."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MEMOREE_", "SAMEMIND_"))}
    return {**inherited, "MEMOREE_CONTEXT": json.dumps(CONTEXT), **variables}


class Model:
    """A client in a session of its own, to be asked from a test that waits."""

    def __init__(self, connect: Callable[[AsyncExitStack], Awaitable[Client]]) -> None:
        self._connect = connect
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="model", daemon=True)
        self._opened = threading.Event()
        self._fault: BaseException | None = None
        self._client: Client | None = None

    def __enter__(self) -> Model:
        self._thread.start()
        self._stop = asyncio.Event()
        self._session = asyncio.run_coroutine_threadsafe(self._hold(), self._loop)
        assert self._opened.wait(START_SECONDS_MAX), "the session did not begin"
        if self._fault is not None:
            self._end()
            raise self._fault
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._session.result(ANSWER_SECONDS_MAX)
        self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(ANSWER_SECONDS_MAX)
        self._loop.close()

    async def _hold(self) -> None:
        """The session begins and ends in one task, as its cancel scopes want."""
        try:
            async with AsyncExitStack() as stack:
                self._client = await self._connect(stack)
                self._opened.set()
                await self._stop.wait()
        except BaseException as error:
            self._fault = error
            self._opened.set()

    @property
    def client(self) -> Client:
        assert self._client is not None
        return self._client

    def run(self, ask: Callable[[Client], Awaitable[Result]]) -> Result:
        async def asked() -> Result:
            return await ask(self.client)

        return asyncio.run_coroutine_threadsafe(asked(), self._loop).result(ANSWER_SECONDS_MAX)

    def call(self, tool: str, arguments: Mapping[str, Any] | None = None) -> CallToolResult:
        """The client holds what comes back against the tool's output schema."""
        return self.run(lambda client: client.call_tool(tool, dict(arguments or {})))

    def ok(self, tool: str, **arguments: Any) -> Json:
        done = self.call(tool, arguments)
        assert not done.is_error, text_of(done)
        payload: Json = done.structured_content
        assert json.loads(text_of(done)) == payload
        return payload

    def refused(self, tool: str, **arguments: Any) -> str:
        done = self.call(tool, arguments)
        assert done.is_error, text_of(done)
        assert done.structured_content is None
        return text_of(done)

    def tools(self) -> Json:
        listed = self.run(lambda client: client.list_tools())
        return {tool.name: tool for tool in listed.tools}


def text_of(done: CallToolResult) -> str:
    assert len(done.content) == 1
    return str(done.content[0].text)  # type: ignore[union-attr]


def local_model(data_dir: Path, *, profile: str = "agent", agent: str | None = None) -> Model:
    """The client and the server in this process: the same messages, without a transport."""
    store = HeldStore(data_dir)
    ambient = {"context": CONTEXT, "context_source": "session"}

    async def connect(stack: AsyncExitStack) -> Client:
        stack.callback(store.close)
        gate = asyncio.Semaphore(CONCURRENT_MAX)

        async def caller(_: object) -> Caller:
            return Caller(EndpointAsk(store, ambient, gate), CONTEXT, agent)

        return await stack.enter_async_context(Client(sdk_server(caller, lambda _: profile)))

    return Model(connect)


def stdio_model(
    data_dir: Path | None, *options: str, mode: str = "auto", cwd: Path | None = None, **variables: str
) -> Model:
    """`memoree mcp` as a child of the client."""
    where = {} if data_dir is None else {"MEMOREE_DATA_DIR": str(data_dir)}

    async def connect(stack: AsyncExitStack) -> Client:
        parameters = StdioServerParameters(
            command=str(PROGRAM), args=["mcp", *options], env=environment(**where, **variables), cwd=cwd or "/"
        )
        return await stack.enter_async_context(Client(stdio_client(parameters), mode=mode))

    return Model(connect)


def http_model(url: str, token: str | None = None, *, mode: str = "auto", profile: str | None = None) -> Model:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    async def connect(stack: AsyncExitStack) -> Client:
        http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False))
        address = f"{url}/mcp" + ("" if profile is None else f"?profile={profile}")
        return await stack.enter_async_context(Client(streamable_http_client(address, http_client=http), mode=mode))

    return Model(connect)


@contextmanager
def serving(data_dir: Path, *options: str) -> Iterator[str]:
    """`memoree serve` on a free port; yields its base URL."""
    process = subprocess.Popen(
        [PROGRAM, "serve", "--data", data_dir, "--port", "0", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment(),
        cwd="/",
    )
    assert process.stderr is not None
    try:
        line = next(line for line in process.stderr if line.startswith(LISTENING))
        rest = threading.Thread(target=process.stderr.read, daemon=True)
        rest.start()
        yield f"http://{line.removeprefix(LISTENING).decode().strip()}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(START_SECONDS_MAX)
        rest.join(START_SECONDS_MAX)
        process.stderr.close()


@dataclass(frozen=True)
class Shell:
    """The command line on the same store, and in the same context."""

    data_dir: Path

    def call(self, op: str, payload: Mapping[str, Any], key: str | None = None) -> Json:
        document: Json = {"v": 1, "request_id": "req_shell", "op": op, "input": payload}
        if key is not None:
            document["idempotency_key"] = key
        done = self.run("call", stdin=json.dumps(document))
        envelope = json.loads(done.stdout)
        assert envelope["ok"], envelope
        result: Json = envelope["result"]
        return result

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [PROGRAM, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            env=environment(MEMOREE_DATA_DIR=str(self.data_dir)),
            cwd="/",
            timeout=START_SECONDS_MAX,
        )
