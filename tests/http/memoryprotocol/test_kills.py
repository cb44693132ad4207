"""All of an episode or nothing, also when the process dies (contract §5)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw
import httpx
import pytest

from memoree.data_directory import DATABASE_NAME

from .protocol import Protocol

EPISODES = 500
WORKERS = 4
KILLED_AFTER = 120
LONG = "".join(f"## Recipe {number}\n\nceladon, {number % 7} % iron oxide\n\n" for number in range(200))
"""Of several chunks."""
INCOMPLETE = """
    SELECT episode_id FROM episodes p WHERE NOT EXISTS (SELECT 1 FROM artifact_chunks c WHERE c.revision_row = p.row_id)
    UNION ALL
    SELECT p.episode_id FROM episodes p JOIN artifact_revisions r ON r.row_id = p.row_id
    WHERE (SELECT max(c.end_byte) FROM artifact_chunks c WHERE c.revision_row = p.row_id) <> r.size_bytes
    UNION ALL
    SELECT c.row_id FROM artifact_chunks c WHERE c.revision_row NOT IN (SELECT row_id FROM episodes)
"""


@contextmanager
def served(data_dir: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "memoree.cli.main", "serve", "--data-dir", str(data_dir), "--port", "0"],
        stderr=subprocess.PIPE,
        env={**os.environ, "MEMOREE_HOME": str(data_dir.with_name("home"))},
        text=True,
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if line.startswith("LISTENING_ON "):
                yield process, f"http://{line.split()[1]}"
                return
        raise AssertionError("the server ended")
    finally:
        process.kill()
        process.wait(30)
        process.stderr.close()


def numbered(number: int) -> str:
    return f"01KJR4GZXJDFPSG3SB9V6{number:05}"


@pytest.mark.proves("memoryprotocol-30")
def test_after_a_kill_among_many_ingests_every_episode_is_whole(tmp_path: Path) -> None:
    acknowledged: list[int] = []
    with served(tmp_path / "store") as (process, url):
        waiting = iter(range(EPISODES))

        def ingest() -> None:
            with closing(Protocol(url)) as caller:
                for number in waiting:
                    try:
                        caller.ingest(f"# Batch {number}\n\n{LONG}", id=numbered(number))
                    except httpx.TransportError:
                        return
                    acknowledged.append(number)
                    if len(acknowledged) == KILLED_AFTER:
                        process.send_signal(signal.SIGKILL)

        threads = [threading.Thread(target=ingest) for _ in range(WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(90)
        assert process.wait(30) == -signal.SIGKILL
    assert KILLED_AFTER <= len(acknowledged) < EPISODES

    with served(tmp_path / "store") as (_, url), closing(Protocol(url)) as caller:
        for number in acknowledged:
            assert caller.episode(numbered(number))["content"] == f"# Batch {number}\n\n{LONG}"
        caller.ingest("after it all", id=numbered(EPISODES))
        verified = caller.request("POST", "/v1/call", {"request_id": "r", "op": "verify", "input": {}}).json()
        assert verified["result"]["issues"] == []
    with closing(apsw.Connection(str(tmp_path / "store" / DATABASE_NAME), flags=apsw.SQLITE_OPEN_READONLY)) as db:
        assert list(db.execute(INCOMPLETE)) == []
        assert db.execute("SELECT count(*) FROM artifact_chunks").get > len(acknowledged) * 2
