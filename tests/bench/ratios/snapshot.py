"""A snapshot of MemoryProtocol, streamed, against the same rows read bare from the same file.

`snapshot_rss_grown_mb` is by how much the resident memory of the server grew at most while it sent one; 50 are allowed.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

from memoree import clock
from memoree.data_directory import DATABASE_NAME
from memoree.database import episodes as table
from memoree.database import meta
from memoree.database.connection import open_reader

from .. import data, episodes
from ..figures import Figure, Ratio
from ..memories import server
from ..processes import memory_of
from ..site import Site, say

READ_BYTES = 1 << 18
WATCHED_EVERY_SECONDS = 0.05
ROUNDS = 3


async def measure(site: Site) -> Figure:
    directory = site.directory / "snapshot"
    number = site.plan.snapshot_rows // 2  # of each a chunk and the episode itself
    texts = (statement.text for statement in data.statements(number))
    await asyncio.to_thread(episodes.fill, directory, number, texts, say)
    http = bare = grown = 0.0
    async with server(directory) as (url, pid):
        await _streamed(url)
        for _ in range(ROUNDS):
            bare += await asyncio.to_thread(_selected, directory, 2 * number)
            before = memory_of(pid).rss
            watching = asyncio.create_task(_largest(pid))
            seconds, rows = await _streamed(url)
            watching.cancel()
            grown = max(grown, await _peak(watching) - before)
            assert rows == 2 * number, f"{rows} lines of {2 * number}"
            http += seconds
    rows_read = ROUNDS * 2 * number
    absolute = {
        "snapshot_rows_per_s": rows_read / http,
        "bare_snapshot_rows_per_s": rows_read / bare,
        "snapshot_rss_grown_mb": max(grown, 0.01),
    }
    return Figure(rows_read / http, rows_read / bare, absolute)


async def _streamed(url: str) -> tuple[float, int]:
    """Seconds, and lines: a carriage return is only in what frames the pieces."""
    parts = urlsplit(url)
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=READ_BYTES)
    position = f"{clock.milliseconds(clock.utc_now())}.0"
    writer.write(f"GET /v1/snapshot/{position} HTTP/1.1\r\nhost: {parts.netloc}\r\nconnection: close\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in head.split(b"\r\n", 1)[0], head
    lines = 0
    while piece := await reader.read(READ_BYTES):
        lines += piece.count(b"\n") - piece.count(b"\r")
    writer.close()
    return time.perf_counter() - began, lines


def _selected(directory: Path, rows: int) -> float:
    with closing(open_reader(directory / DATABASE_NAME, immutable=False)) as db:
        seen = meta.read(db).commit_seq
        began = time.perf_counter()
        found = sum(1 for _ in table.chunks_at(db, seen=seen, row=0, ordinal=-1))
        found += sum(1 for _ in table.contents_at(db, seen=seen, episode_id=""))
        seconds = time.perf_counter() - began
    assert found == rows
    return seconds


async def _largest(pid: int) -> float:
    largest = 0.0
    try:
        while True:
            largest = max(largest, memory_of(pid).rss)
            await asyncio.sleep(WATCHED_EVERY_SECONDS)
    except asyncio.CancelledError:
        return largest


async def _peak(watching: asyncio.Task[float]) -> float:
    return await watching


RATIO = Ratio(
    name="snapshot_rows_per_s_over_bare_select",
    measured_is="rows/s of a snapshot of MemoryProtocol with 200 000",
    floor_is="the same rows selected bare from the same file",
    must=0.3,
    aim=0.5,
    measure=measure,
    higher_is_better=True,
)
