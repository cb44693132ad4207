"""Large memories for retrieval, filled without a server and then served by one.

Rows are written by the product's own table modules, in transactions as large as the writer's, but without the audit
events, idempotency records and integrity sum of real commands: no retrieval reads them, and a million claims take a
minute or two instead of five. Beside each store goes a plain full-text index of the same texts, the floor of
`memory.recall`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

import apsw
from blake3 import blake3

from memoree import ids, limits
from memoree.clock import stored, utc_now
from memoree.data_directory import DATABASE_NAME
from memoree.database import artifacts, claims, meta
from memoree.database.connection import open_reader, open_writer
from memoree.database.index import index_artifact_revision, index_claim_revision
from memoree.database.schema import create_or_migrate
from memoree.owner import Owner

from . import data
from .processes import Memory, memory_of
from .wire import Caller

PLAIN_NAME = "plain.sqlite3"
PLAIN_SCHEMA = """
    CREATE VIRTUAL TABLE claims USING fts5 (text, content = '', tokenize = 'unicode61');
    CREATE VIRTUAL TABLE artifacts USING fts5 (title, body, content = '', tokenize = 'unicode61');
"""
PLAIN_CLAIMS = "SELECT rowid FROM claims WHERE claims MATCH ? ORDER BY rank LIMIT 100"
PLAIN_ARTIFACTS = "SELECT rowid FROM artifacts WHERE artifacts MATCH ? ORDER BY rank LIMIT 100"
CHECKPOINT_PAGES = 10_000
SAID_EVERY_CLAIMS = 100_000
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 20.0
POLL_SECONDS = 0.02
READY = "LISTENING_ON "
Item = TypeVar("Item")
OWNER = Owner(data.CONTEXT["workspace_id"], data.CONTEXT["project_id"], None, None)


@dataclass(frozen=True, slots=True)
class ServedMemory:
    """A store of so many claims behind a server, and the plain index of the same texts."""

    claims: int
    url: str
    pid: int
    plain: apsw.Connection

    async def caller(self) -> Caller:
        """The server asks for no token."""
        return await Caller.open(self.url, token="")

    def resident(self) -> Memory:
        return memory_of(self.pid)

    def plain_seconds(self, terms: Sequence[str]) -> float:
        """The reference query on claims and on artifacts."""
        match = " OR ".join(f'"{term}"' for term in terms)
        began = time.perf_counter()
        self.plain.execute(PLAIN_CLAIMS, (match,)).fetchall()
        self.plain.execute(PLAIN_ARTIFACTS, (match,)).fetchall()
        return time.perf_counter() - began


class Filler:
    """A store and a plain index in `directory`, which grow. `close` it before either is served or copied."""

    def __init__(self, directory: Path) -> None:
        self._store = open_writer(directory / DATABASE_NAME, replicated=True)
        self._store.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        create_or_migrate(self._store)
        self._plain = open_writer(directory / PLAIN_NAME, replicated=True)
        self._plain.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        if not self._plain.execute("SELECT 1 FROM sqlite_schema").fetchall():
            self._plain.execute(PLAIN_SCHEMA)
        self._now = stored(utc_now())
        self._counters = meta.read(self._store)

    def add_artifacts(self, documents: int) -> None:
        """The documents that claims cite, and so many that are there to be found. They come before any claim."""
        texts = [data.Document("source", text) for text in data.sources()]
        self._in_batches([*texts, *data.documents(documents)], self._add_artifact)

    def add_claims(self, statements: Iterator[data.Statement], say: Callable[[str], None]) -> None:
        """The next claims, each citing a span of one of the documents."""
        cited = self._cited()
        done = 0
        while some := list(islice(statements, SAID_EVERY_CLAIMS)):
            self._in_batches(some, lambda statement: self._add_claim(statement, cited[statement.source]))
            say(f"filled {(done := done + len(some))} more claims")

    def close(self) -> None:
        for db in (self._store, self._plain):
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            db.close()

    def _in_batches(self, items: Sequence[Item], add: Callable[[Item], None]) -> None:
        for first in range(0, len(items), limits.BATCH_COMMANDS_MAX):
            for db in (self._store, self._plain):
                db.execute("BEGIN IMMEDIATE")
            for item in items[first : first + limits.BATCH_COMMANDS_MAX]:
                self._counters.commit_seq += 1
                add(item)
            self._counters.batch += 1
            meta.write(self._store, self._counters)
            for db in (self._store, self._plain):
                db.execute("COMMIT")

    def _add_artifact(self, document: data.Document) -> None:
        row, body = self._counters.commit_seq, document.body.encode()
        artifact = artifacts.Artifact(ids.new_id("art"), "document", OWNER, "active", None, row, 1, self._now, row)
        revision = artifacts.Revision(
            revision_id=ids.new_id("arev"),
            revision_number=1,
            title=document.title,
            media_type="text/plain",
            blob_hash=blake3(body).digest(),
            size_bytes=len(body),
            provenance="{}",
            actor=None,
            created_at=self._now,
            row_id=row,
        )
        artifacts.insert(self._store, artifact)
        artifacts.insert_revision(self._store, artifact, revision, body)
        index_artifact_revision(
            self._store, revision_row=row, title=document.title, text=document.body, stored_inline=True
        )
        self._plain.execute(
            "INSERT INTO artifacts (rowid, title, body) VALUES (?, ?, ?)", (row, document.title, document.body)
        )

    def _add_claim(self, statement: data.Statement, cited: artifacts.Revision) -> None:
        row, start = self._counters.commit_seq, statement.start_byte
        claim = claims.Claim(
            claim_id=ids.new_id("clm"),
            claim_type=statement.claim_type,
            owner=OWNER,
            status="active",
            retraction_reason=None,
            valid_from=None,
            valid_until=None,
            head_row=row,
            revision_count=1,
            created_at=self._now,
            row_id=row,
        )
        revision = claims.Revision(ids.new_id("crev"), 1, statement.text, None, None, self._now, row)
        artifact_id = ""  # told by the revision's row, and stored nowhere
        evidence = claims.Evidence(artifact_id, cited.revision_id, cited.row_id, start, start + data.SPAN_BYTES)
        claims.insert(self._store, claim)
        claims.insert_revision(self._store, claim, revision, [evidence])
        index_claim_revision(self._store, revision_row=row, statement=statement.text)
        self._plain.execute("INSERT INTO claims (rowid, text) VALUES (?, ?)", (row, statement.text))

    def _cited(self) -> Sequence[artifacts.Revision]:
        return [revision for _, revision in islice(artifacts.every_revision(self._store), data.SOURCES)]


def fill(directory: Path, *, documents: int, statements: Iterator[data.Statement], say: Callable[[str], None]) -> None:
    """A new store with its artifacts and first claims."""
    directory.mkdir(mode=0o700)
    filler = Filler(directory)
    filler.add_artifacts(documents)
    filler.add_claims(statements, say)
    filler.close()


def grow(directory: Path, grown: Path, *, statements: Iterator[data.Statement], say: Callable[[str], None]) -> None:
    """A copy of a store that nobody has written to since, with further claims."""
    grown.mkdir(mode=0o700)
    for name in (DATABASE_NAME, PLAIN_NAME):
        shutil.copyfile(directory / name, grown / name)
    filler = Filler(grown)
    filler.add_claims(statements, say)
    filler.close()


@asynccontextmanager
async def served(directory: Path, claims: int) -> AsyncIterator[ServedMemory]:
    """`memoree serve` on a filled directory; stopped on leaving."""
    async with server(directory) as (url, pid):
        with closing(open_reader(directory / PLAIN_NAME, immutable=True)) as plain:
            yield ServedMemory(claims, url, pid, plain)


@asynccontextmanager
async def server(directory: Path, *options: str, **variables: str) -> AsyncIterator[tuple[str, int]]:
    """The URL and process of a `memoree serve` on a directory; stopped on leaving."""
    log_path = directory.with_name(f"{directory.name}{''.join(options[:1])}.log")
    with log_path.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "memoree.cli.main", "serve", "--data-dir", str(directory), "--port", "0"),
            *options,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **variables},
        )
    try:
        async with asyncio.timeout(START_SECONDS_MAX):
            url = await _url(process, log_path)
        yield url, process.pid
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS_MAX)
        except TimeoutError:
            process.kill()
            await process.wait()


async def _url(process: asyncio.subprocess.Process, log_path: Path) -> str:
    while (ready := _ready_line(log_path)) is None:
        if process.returncode is not None:
            raise RuntimeError(f"the server did not start, see {log_path}")
        await asyncio.sleep(POLL_SECONDS)
    return f"http://{ready.removeprefix(READY)}"


def _ready_line(log_path: Path) -> str | None:
    lines = log_path.read_text(errors="replace").splitlines()
    return next((line for line in lines if line.startswith(READY)), None)
