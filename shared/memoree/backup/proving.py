"""Proving the copy of a large database in a process of its own.

The proof is work for an interpreter, seconds of it for a hundred megabytes, and the one that makes the backup packs,
stores and asks meanwhile.

    python -m memoree.backup.proving DATABASE < counters of the snapshot, as JSON
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from memoree.backup import checkpoint
from memoree.database.meta import Meta
from memoree.errors import Code, MemoreeError

APART_BYTES_MIN = 16 * 1024 * 1024
"""A smaller database is proved in less time than an interpreter starts."""
WORDS_SHOWN = 500


async def prove(database: Path, size: int, copied: asyncio.Future[Meta]) -> None:
    """As `checkpoint.prove`, once it is copied, of about `size` bytes; and raises `INTERNAL_ERROR` for a process that
    ended without a verdict. The process starts while the copy is made. Cancelled, nobody reads the file any more."""
    if size < APART_BYTES_MIN:
        proving = asyncio.create_task(asyncio.to_thread(checkpoint.prove, database, await copied))
        try:
            await asyncio.shield(proving)
        finally:
            await asyncio.gather(proving, return_exceptions=True)
        return
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__, str(database)),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        verdict, words = await process.communicate(_told(await copied))
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if verdict:
        raise MemoreeError.from_wire(orjson.loads(verdict))
    if process.returncode != 0:
        last_words = words.decode(errors="replace").strip()[-WORDS_SHOWN:]
        raise MemoreeError(
            Code.INTERNAL_ERROR, f"the copy could not be proved: status {process.returncode}: {last_words}"
        )


def _told(snapshot: Meta) -> bytes:
    return orjson.dumps({**asdict(snapshot), "integrity": snapshot.integrity.hex()})


def _heard(told: bytes) -> Meta:
    counters: dict[str, Any] = orjson.loads(told)
    return Meta(**{**counters, "integrity": bytes.fromhex(counters["integrity"])})


def main() -> int:
    """The verdict goes to stdout: nothing, or the refusal."""
    try:
        checkpoint.prove(Path(sys.argv[1]), _heard(sys.stdin.buffer.read()))
    except MemoreeError as error:
        sys.stdout.buffer.write(orjson.dumps(error.to_wire()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
