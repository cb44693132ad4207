"""The framed transport (machine protocol §1.6) over a real unix socket."""

from __future__ import annotations

import asyncio
import json
import socket
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from http_support import envelope, note

from memoree import limits
from memoree.embedded import EmbeddedService
from memoree.errors import Code, MemoreeError
from memoree.http.socket import FramedServer

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
WAIT_SECONDS = 10.0


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def connect(path: Path) -> Streams:
    return await asyncio.open_unix_connection(path)


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


async def rest(streams: Streams) -> bytes:
    """Everything until the server closes."""
    reader, writer = streams
    try:
        return await asyncio.wait_for(reader.read(), WAIT_SECONDS)
    except ConnectionError:
        return b""
    except TimeoutError:
        pytest.fail(f"the server kept the connection open for {WAIT_SECONDS} s")
    finally:
        writer.close()


async def exchange(path: Path, payload: bytes) -> Any:
    streams = await connect(path)
    streams[1].write(frame(payload))
    answer = await rest(streams)
    size = int.from_bytes(answer[:4], "big")
    assert len(answer) == 4 + size, "exactly one frame"
    return json.loads(answer[4:])


Scenario = Callable[[Path], Awaitable[None]]


@pytest.fixture
def serve(store: EmbeddedService, tmp_path: Path) -> Callable[..., None]:
    def run(scenario: Scenario, **settings: Any) -> None:
        async def inside() -> None:
            path = tmp_path / "run" / "m.sock"
            async with FramedServer(store, path, **settings):
                await scenario(path)

        asyncio.run(inside())

    return run


Serve = Callable[..., None]
CAPABILITIES = json.dumps(envelope("capabilities", context=None)).encode()


@pytest.mark.proves("machine-19")
def test_a_frame_that_is_no_request_gets_a_structured_refusal(serve: Serve) -> None:
    async def scenario(path: Path) -> None:
        for payload in (b"{", b"", b"[]", b'{"request_id":"r","op":"nope","input":{}}'):
            answer = await exchange(path, payload)
            assert (answer["request_id"], answer["error"]["code"]) == ("req_transport", "INVALID_REQUEST")

    serve(scenario)


@pytest.mark.proves("machine-20")
def test_a_prefix_over_the_limit_closes_the_connection_without_a_response(serve: Serve) -> None:
    async def scenario(path: Path) -> None:
        for size in (limits.FRAME_BYTES_MAX + 1, 2**32 - 1):
            streams = await connect(path)
            streams[1].write(size.to_bytes(4, "big"))
            assert await rest(streams) == b""

    serve(scenario)


@pytest.mark.proves("machine-21")
def test_one_valid_frame_gets_one_frame_and_the_connection_ends(serve: Serve) -> None:
    async def scenario(path: Path) -> None:
        put = await exchange(path, json.dumps(envelope("artifact.put", note("x" * 3_000_000), key="k")).encode())
        assert put["ok"] is True
        got = await exchange(
            path, json.dumps(envelope("artifact.get", {"artifact_id": put["result"]["artifact_id"]})).encode()
        )
        assert len(got["result"]["content"]["data"]) == 3_000_000

    serve(scenario)


def test_a_frame_of_exactly_the_limit_is_read(serve: Serve) -> None:
    async def scenario(path: Path) -> None:
        answer = await exchange(path, CAPABILITIES + b" " * (limits.FRAME_BYTES_MAX - len(CAPABILITIES)))
        assert answer["ok"] is True

    serve(scenario)


@pytest.mark.proves("machine-22")
def test_a_fifth_connection_is_closed_and_a_freed_place_is_usable(serve: Serve) -> None:
    async def scenario(path: Path) -> None:
        held = [await connect(path) for _ in range(limits.UNIX_CONNECTIONS_MAX)]
        assert await rest(await connect(path)) == b""

        held[0][1].write(frame(CAPABILITIES))
        assert b'"ok":true' in await rest(held[0])
        await until(lambda: served(path))
        for _, writer in held[1:]:
            writer.close()

    serve(scenario)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.01)


async def served(path: Path) -> bool:
    streams = await connect(path)
    streams[1].write(frame(CAPABILITIES))
    return b'"ok":true' in await rest(streams)


@pytest.mark.proves("machine-23")
def test_an_incomplete_frame_is_given_up(serve: Serve) -> None:
    async def scenario(path: Path) -> None:
        for part in (b"", b"\x00\x00", (100).to_bytes(4, "big") + b"{"):
            streams = await connect(path)
            streams[1].write(part)
            assert await rest(streams) == b""

    serve(scenario, read_seconds_max=0.1)


def test_a_peer_that_does_not_read_is_given_up(store: EmbeddedService, tmp_path: Path) -> None:
    path = tmp_path / "m.sock"

    async def scenario() -> None:
        async with FramedServer(store, path, write_seconds_max=0.1) as server:

            async def idle() -> bool:
                return not server._connections

            put = await exchange(path, json.dumps(envelope("artifact.put", note("x" * 5_000_000), key="k")).encode())
            wanted = json.dumps(envelope("artifact.get", {"artifact_id": put["result"]["artifact_id"]})).encode()
            reader, writer = await asyncio.open_unix_connection(path, limit=1024)
            writer.write(frame(wanted))
            assert await reader.readexactly(4)
            await until(idle)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await reader.readexactly(5_000_000)
            writer.close()

    asyncio.run(scenario())


@pytest.mark.proves("machine-24")
def test_the_socket_belongs_to_its_user_only_and_goes_with_the_server(serve: Serve) -> None:
    seen: list[tuple[Path, int, int]] = []

    async def scenario(path: Path) -> None:
        seen.append((path, mode_of(path), mode_of(path.parent)))

    serve(scenario)
    path, socket_mode, directory_mode = seen[0]
    assert (socket_mode, directory_mode) == (0o600, 0o700)
    assert not path.exists()


def leave_a_dead_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as abandoned:
        abandoned.bind(str(path))
    assert path.is_socket()


def test_a_live_socket_is_never_taken_and_a_leftover_is(store: EmbeddedService, tmp_path: Path) -> None:
    path = tmp_path / "m.sock"

    async def scenario() -> None:
        async with FramedServer(store, path):
            with pytest.raises(MemoreeError) as refused:
                await FramedServer(store, path).start()
            assert refused.value.code is Code.TRANSPORT_ERROR
            assert (await exchange(path, CAPABILITIES))["ok"] is True
        leave_a_dead_socket(path)
        async with FramedServer(store, path):
            assert (await exchange(path, CAPABILITIES))["ok"] is True

    asyncio.run(scenario())


@pytest.mark.proves("machine-25")
def test_a_path_that_cannot_be_served_is_a_config_error(store: EmbeddedService, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    for path in (tmp_path / ("x" * 120), tmp_path / "file", tmp_path / "file" / "m.sock"):
        with pytest.raises(MemoreeError) as refused:
            asyncio.run(FramedServer(store, path).start())
        assert refused.value.code is Code.CONFIG_ERROR
    assert (tmp_path / "file").read_text() == "precious"
