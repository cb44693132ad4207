"""The change files a replica needs, by name: fetched whole and verified before the first page is written."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence

from memoree.objects import ObjectMissing, ObjectStore
from memoree.replication.ltx import RAW_LEVEL, LtxError, LtxFile, LtxName, decode, format_name, parse_name, plan_fill

FETCH_CONCURRENCY = 16
GUESSED_FILES_MAX = 64
"""Beyond this distance the prefix is listed instead of asking for every file by name."""
DECODE_IN_LOOP_BYTES_MAX = 64 * 1024
"""Handing a small file to a thread costs more than decoding it."""
GAP_BYTES_MAX = 64 * 1024 * 1024
"""Compressed, and all of it in memory at once, because nothing is written before everything is verified. Beyond this
a restore is the better way, and happens in a process of its own."""
WHOLE_BYTES_MAX = 16 * 1024 * 1024
"""Compressed, of a file with the whole database that is read here and not by a process of its own."""


class GapTooWide(Exception):
    """The changes between the two positions are not there as files any more: restore instead."""


class Changes:
    """Verified change files of one prefix, the newest kept up to a bound in bytes until every copy has them."""

    def __init__(self, store: ObjectStore, prefix: str, *, kept_bytes_max: int) -> None:
        self._store = store
        self._prefix = prefix
        self._kept: OrderedDict[LtxName, LtxFile] = OrderedDict()
        self._kept_bytes = 0
        self._kept_bytes_max = kept_bytes_max

    async def between(self, position: int, target: int) -> Sequence[LtxFile]:
        """Files that bring a copy from `position` to exactly `target`, in order.

        Raises `GapTooWide`, `LtxError` for a damaged file, and `StoreUnavailable`.
        """
        if target - position <= GUESSED_FILES_MAX:
            names = [LtxName(RAW_LEVEL, txid, txid) for txid in range(position + 1, target + 1)]
            try:
                return await self._load(names)
            except ObjectMissing:
                pass  # one file may hold several commits, and raw files vanish in time: look what is there
        plan = plan_fill(position, target, await self.available())
        if plan is None:
            raise GapTooWide(f"no files lead from TXID {position} to {target}")
        try:
            return await self._load(plan)
        except ObjectMissing as error:
            raise GapTooWide(f"a file vanished while filling from TXID {position} to {target}") from error

    async def from_the_beginning(self, target: int) -> Sequence[LtxFile] | None:
        """Files that make `target` out of nothing: a young prefix begins with one that holds the whole database. `None`
        when they are many, large, damaged or not there any more. Raises `StoreUnavailable`."""
        if target > GUESSED_FILES_MAX:
            return None
        first = LtxName(RAW_LEVEL, 1, 1)
        try:
            if (await self._store.head(self._prefix + format_name(first))).size > WHOLE_BYTES_MAX:
                return None
            return await self.between(0, target)
        except (ObjectMissing, GapTooWide, LtxError):
            return None

    async def available(self) -> list[LtxName]:
        """Every change file of the prefix."""
        names = [parse_name(info.key) async for info in self._store.list(self._prefix)]
        return [name for name in names if name is not None]

    def forget_up_to(self, position: int) -> None:
        """Every copy is at `position` or later: older files are not needed again."""
        for name in [name for name in self._kept if name.max_txid <= position]:
            self._drop(name)

    async def _load(self, names: Sequence[LtxName]) -> Sequence[LtxFile]:
        permits = asyncio.Semaphore(FETCH_CONCURRENCY)
        gap_bytes = 0

        async def one(name: LtxName) -> LtxFile:
            nonlocal gap_bytes
            if (kept := self._kept.get(name)) is not None:
                return kept
            async with permits:
                found = await self._store.get(self._prefix + format_name(name))
            assert found is not None
            gap_bytes += len(found.body)
            if gap_bytes > GAP_BYTES_MAX:
                raise GapTooWide(f"more than {GAP_BYTES_MAX} bytes lead up to TXID {names[-1].max_txid}")
            file = await _decoded(found.body, name)
            self._keep(name, file)
            return file

        tasks = [asyncio.ensure_future(one(name)) for name in names]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    def _keep(self, name: LtxName, file: LtxFile) -> None:
        size = len(file.body)
        if size > self._kept_bytes_max // 2 or name in self._kept:
            return
        self._kept[name] = file
        self._kept_bytes += size
        while self._kept_bytes > self._kept_bytes_max:
            self._drop(next(iter(self._kept)))

    def _drop(self, name: LtxName) -> None:
        self._kept_bytes -= len(self._kept.pop(name).body)


async def _decoded(body: bytes, name: LtxName) -> LtxFile:
    if len(body) <= DECODE_IN_LOOP_BYTES_MAX:
        return decode(body, name)
    return await asyncio.to_thread(decode, body, name)
