"""LTX names, bytes and plans, on files that the real Litestream wrote."""

from __future__ import annotations

import asyncio
import os
import struct
from dataclasses import dataclass
from pathlib import Path

import fastcrc
import lz4.block
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoree.replication import ltx
from memoree.replication.litestream import Litestream, ReplicaTarget, restore
from memoree.replication.ltx import LtxError, LtxName

from .conftest import Database, directory_files, with_litestream

PAGE_SIZE = 512
unhurried = settings(deadline=None)
"""The machine may be busy; how long one example takes proves nothing here."""


@dataclass(frozen=True)
class RealFiles:
    """Every raw file of one epoch, and what `litestream restore` makes of each TXID."""

    bodies: dict[LtxName, bytes]
    restored: dict[int, bytes]

    @property
    def snapshot(self) -> bytes:
        return self.bodies[LtxName(0, 1, 1)]

    @property
    def smallest(self) -> bytes:
        return min(self.bodies.values(), key=len)


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> RealFiles:
    home = tmp_path_factory.mktemp("real")
    database = Database(home / "epoch")
    target = ReplicaTarget((home / "replica").as_uri())

    async def write_grow_and_shrink(litestream: Litestream) -> None:
        await litestream.sync()
        for count in (1, 1, 100):
            with database.connection:
                for number in range(count):
                    database.commit(f"note {number} " * 50)
            await litestream.sync()
        database.connection.execute("DELETE FROM note WHERE id > 2")
        await litestream.sync()
        database.connection.execute("VACUUM")
        await litestream.sync()

    with_litestream(database, target, write_grow_and_shrink)
    database.connection.close()
    files = directory_files(home / "replica")
    bodies = {name: files[name].read_bytes() for name in sorted(files) if name.level == ltx.RAW_LEVEL}

    async def restore_every_boundary() -> dict[int, bytes]:
        restored = {}
        for txid in ltx.restorable_boundaries(files):
            await restore(target, txid, home / f"{txid}.db")
            restored[txid] = (home / f"{txid}.db").read_bytes()
        return restored

    return RealFiles(bodies, asyncio.run(restore_every_boundary()))


def encode(
    pages: list[tuple[int, bytes]],
    *,
    commit_pages: int = 3,
    page_size: int = PAGE_SIZE,
    txids: tuple[int, int] = (2, 2),
    file_flags: int = 2,
    page_flags: int = 1,
    index: bytes = b"\0",
) -> bytes:
    """A file with a correct checksum around whatever content a test wants to see refused."""
    header = struct.pack(">4sIIIQQQQ", b"LTX1", file_flags, page_size, commit_pages, *txids, 7, 0)
    stored = covered = header.ljust(100, b"\0")
    for number, page in pages:
        block = lz4.block.compress(page, store_size=False)
        head = struct.pack(">IHI", number, page_flags, len(block))
        stored += head + block
        covered += head + page
    tail = bytes(6) + index + struct.pack(">Q", len(index)) + bytes(8)
    checksum = fastcrc.crc64.go_iso(covered + tail) | 1 << 63
    return stored + tail + struct.pack(">Q", checksum)


def page(byte: int) -> bytes:
    return bytes([byte]) * PAGE_SIZE


names = st.builds(
    lambda level, start, length: LtxName(level, start, start + length),
    st.integers(0, 9),
    st.integers(1, 12),
    st.integers(0, 6),
)


class TestNames:
    @unhurried
    @given(names)
    def test_a_name_survives_the_way_through_its_key(self, name: LtxName) -> None:
        assert ltx.parse_name("tenants/t/ltx/00000001-ABCDEFGH/" + ltx.format_name(name)) == name

    def test_the_key_is_the_one_litestream_writes(self) -> None:
        assert ltx.format_name(LtxName(1, 1, 31)) == "0001/0000000000000001-000000000000001f.ltx"

    @pytest.mark.parametrize(
        "key",
        [
            "",
            "0000/0000000000000001-0000000000000001.ltx.tmp",
            "x0000/0000000000000001-0000000000000001.ltx",
            "000a/0000000000000001-0000000000000001.ltx",
            "0000/0000000000000002-0000000000000001.ltx",
            "0000/0000000000000000-0000000000000001.ltx",
            "0000/000000000000000A-000000000000000A.ltx",
            "0000/0000000000000001-0000000000000001.ltx\n",
        ],
    )
    def test_other_keys_are_no_ltx_files(self, key: str) -> None:
        assert ltx.parse_name(key) is None

    def test_an_impossible_name_cannot_be_made(self) -> None:
        with pytest.raises(ValueError, match="not an LTX file"):
            LtxName(0, 3, 2)


class TestDecoding:
    def test_applying_every_file_in_turn_gives_what_litestream_restores(self, real: RealFiles, tmp_path: Path) -> None:
        copy = os.open(tmp_path / "copy.db", os.O_RDWR | os.O_CREAT)
        sizes = []
        for name, body in real.bodies.items():
            file = ltx.decode(body, name)
            ltx.apply(file, copy)
            assert os.fstat(copy).st_size == file.header.database_bytes
            assert os.pread(copy, file.header.database_bytes, 0) == real.restored[name.max_txid]
            sizes.append(file.header.database_bytes)
        os.close(copy)
        assert max(sizes) > sizes[-1], "the last files shrink the database"

    def test_the_first_file_of_a_prefix_is_the_whole_database(self, real: RealFiles) -> None:
        file = ltx.decode(real.snapshot)
        assert list(dict(file.pages())) == list(range(1, file.header.commit_pages + 1))

    def test_a_file_under_another_name_is_refused(self, real: RealFiles) -> None:
        with pytest.raises(LtxError, match="holds TXIDs 1 to 1"):
            ltx.decode(real.snapshot, LtxName(0, 2, 2))

    def test_a_file_cut_anywhere_is_refused(self, real: RealFiles) -> None:
        for body in (real.smallest, real.snapshot):
            for length in range(len(body)):
                with pytest.raises(LtxError):
                    ltx.decode(body[:length])

    def test_no_flipped_bit_changes_a_page_unnoticed(self, real: RealFiles) -> None:
        intact = ltx.decode(real.smallest)
        for bit in range(len(real.smallest) * 8):
            damaged = bytearray(real.smallest)
            damaged[bit // 8] ^= 1 << bit % 8
            assert decodes_only_to(bytes(damaged), intact)

    @unhurried
    @given(data=st.data())
    def test_no_overwritten_bytes_change_a_page_unnoticed(self, real: RealFiles, data: st.DataObject) -> None:
        body = data.draw(st.sampled_from(list(real.bodies.values())))
        start = data.draw(st.integers(0, len(body) - 1))
        noise = data.draw(st.binary(min_size=1, max_size=64))
        damaged = (body[:start] + noise + body[start + len(noise) :])[: len(body)]
        assert decodes_only_to(damaged, ltx.decode(body))

    @unhurried
    @given(st.binary(min_size=1, max_size=64))
    def test_bytes_after_the_end_are_refused(self, real: RealFiles, extra: bytes) -> None:
        with pytest.raises(LtxError):
            ltx.decode(real.smallest + extra)

    @unhurried
    @given(st.binary(max_size=400))
    def test_noise_is_refused(self, noise: bytes) -> None:
        with pytest.raises(LtxError):
            ltx.decode(noise)

    def test_a_well_formed_file_is_accepted(self) -> None:
        file = ltx.decode(encode([(1, page(1)), (3, page(3))]), LtxName(0, 2, 2))
        assert dict(file.pages()) == {1: page(1), 3: page(3)}
        assert file.header == ltx.LtxHeader(PAGE_SIZE, 3, 2, 2, 7)

    @pytest.mark.parametrize(
        ("body", "why"),
        [
            (encode([(4, page(1))]), "page 4 after page 0 in a database of 3 pages"),
            (encode([(2, page(1)), (1, page(1))]), "page 1 after page 2"),
            (encode([(1, page(1)), (1, page(1))]), "page 1 after page 1"),
            (encode([(0, page(1))]), "page 0"),
            (encode([(1, page(1)[:-1])]), "expands to 511 bytes"),
            (encode([(1, page(1) + b"x")]), "damaged page block"),
            (encode([(1, page(1))], page_flags=0), "flags 0x0"),
            (encode([(1, page(1))], file_flags=0), "flags 0x0"),
            (encode([(1, bytes(1000))], page_size=1000), "page size 1000"),
            (encode([], commit_pages=0), "an empty database"),
            (encode([], txids=(3, 2)), "TXIDs 3 to 2"),
            (encode([], txids=(0, 2)), "TXIDs 0 to 2"),
            (encode([(1, page(1))], index=b""), "the page index is missing"),
        ],
    )
    def test_a_correct_checksum_does_not_excuse_impossible_content(self, body: bytes, why: str) -> None:
        with pytest.raises(LtxError, match=why):
            ltx.decode(body)


def decodes_only_to(damaged: bytes, intact: ltx.LtxFile) -> bool:
    """Refused, or the damage lies in compressed bytes that expand to the very same page all the same."""
    try:
        decoded = ltx.decode(damaged)
    except LtxError:
        return True
    return decoded.header == intact.header and dict(decoded.pages()) == dict(intact.pages())


class TestFilling:
    def test_raw_files_are_taken_in_order(self) -> None:
        raw = [LtxName(0, txid, txid) for txid in (4, 3, 2)]
        assert ltx.plan_fill(1, 4, raw) == [LtxName(0, 2, 2), LtxName(0, 3, 3), LtxName(0, 4, 4)]

    def test_a_gap_is_closed_by_the_compacted_file_that_reaches_furthest(self) -> None:
        available = [LtxName(0, 2, 2), LtxName(1, 1, 4), LtxName(2, 1, 6), LtxName(1, 5, 9), LtxName(0, 7, 7)]
        assert ltx.plan_fill(1, 7, available) == [LtxName(0, 2, 2), LtxName(2, 1, 6), LtxName(0, 7, 7)]

    def test_nothing_reaches_past_the_target(self) -> None:
        assert ltx.plan_fill(1, 4, [LtxName(1, 2, 5)]) is None

    def test_a_snapshot_fills_nothing(self) -> None:
        assert ltx.plan_fill(1, 4, [LtxName(9, 1, 4)]) is None

    def test_at_the_target_there_is_nothing_to_do(self) -> None:
        assert ltx.plan_fill(4, 4, []) == []

    @unhurried
    @given(st.lists(names, max_size=14), st.integers(0, 10), st.integers(0, 8))
    def test_a_plan_exists_exactly_when_some_chain_of_files_does(
        self, available: list[LtxName], position: int, distance: int
    ) -> None:
        target = position + distance
        files = [name for name in available if name.level < ltx.SNAPSHOT_LEVEL]
        plan = ltx.plan_fill(position, target, available)
        assert (plan is not None) == (target in reachable(position, target, files))
        for name in plan or []:
            assert name in files
            assert name.min_txid <= position + 1
            assert position < name.max_txid <= target
            position = name.max_txid
        assert plan is None or position == target


class TestBoundaries:
    def test_a_raw_file_is_a_boundary_while_its_predecessors_are_there(self) -> None:
        assert ltx.restorable_boundaries([LtxName(0, 2, 2), LtxName(0, 1, 1), LtxName(0, 4, 4)]) == [1, 2]

    def test_inside_a_compacted_file_there_is_no_boundary(self) -> None:
        names = [LtxName(1, 1, 5), LtxName(0, 6, 6), LtxName(0, 4, 4), LtxName(2, 1, 8)]
        assert ltx.restorable_boundaries(names) == [5, 6, 8]

    def test_a_snapshot_starts_a_new_chain(self) -> None:
        assert ltx.restorable_boundaries([LtxName(9, 1, 7), LtxName(0, 8, 8), LtxName(0, 6, 6)]) == [7, 8]

    def test_an_empty_prefix_has_none(self) -> None:
        assert ltx.restorable_boundaries([]) == []

    @unhurried
    @given(st.lists(names, max_size=14))
    def test_the_boundaries_are_the_ends_of_chains_that_never_reach_past_them(self, available: list[LtxName]) -> None:
        expected = [txid for txid in range(1, 20) if txid in reachable(0, txid, available)]
        assert ltx.restorable_boundaries(available) == expected


def reachable(position: int, target: int, available: list[LtxName]) -> set[int]:
    """Every position some chain of files reaches, none of them past the target: found by trying all."""
    found = {position}
    while True:
        more = {
            name.max_txid
            for name in available
            for reached in found
            if name.min_txid <= reached + 1 and reached < name.max_txid <= target
        }
        if more <= found:
            return found
        found |= more
