"""A replica follows recorded change files: what it shows, and what it refuses to show."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from memoree import limits
from memoree.database.connection import scalar
from memoree.errors import Code, MemoreeError
from memoree.objects import StoreUnavailable
from memoree.reader import replica as replica_module
from memoree.reader.replica import Replica
from memoree.replication.ltx import LtxName
from replication.memory_store import Fault, MemoryStore

from .recorded import TENANT, Recorder, Restores, environment

HEAD = f"tenants/{TENANT}/head.json"


class Bench:
    """A recorded tenant and a replica of it."""

    def __init__(self, directory: Path) -> None:
        self.store = MemoryStore()
        self.restores = Restores(self.store)
        self.directory = directory
        self.environment = environment(self.restores, directory / "runtime")
        self.replica = Replica(TENANT, self.environment, self.environment.directory.path / "replica")
        self._recorders: list[Recorder] = []

    def reign(self, **how: Any) -> Recorder:
        recorder = self.restores.know(Recorder(self.store, self.directory, **how))
        self._recorders.append(recorder)
        return recorder

    def born(self, *statements: str) -> Recorder:
        recorder = self.reign()
        recorder.cover()
        for statement in statements:
            recorder.write(statement)
        return recorder

    async def shown(self) -> list[str]:
        """Refresh, then the statements a reader sees."""
        await self.replica.refresh_anew()
        return self.visible()

    def visible(self) -> list[str]:
        with self.replica.generation.connection() as db:
            return [text for (text,) in db.execute("SELECT statement FROM claim_revisions ORDER BY row_id")]

    def files(self) -> list[str]:
        return sorted(path.name for path in self.environment.directory.path.iterdir())

    def requests_since(self, begun: int) -> list[str]:
        return [request.replace(f"tenants/{TENANT}/", "") for request in self.store.requests[begun:]]

    def close(self) -> None:
        for recorder in self._recorders:
            recorder.close()
        self.environment.executor.shutdown()
        self.environment.directory.remove()


@pytest.fixture
def young(tmp_path: Path) -> Iterator[Bench]:
    """Whose first file is small enough to be read at once."""
    bench = Bench(tmp_path)
    yield bench
    bench.close()


@pytest.fixture
def bench(young: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Whose first file is too large for that."""
    monkeypatch.setattr("memoree.reader.changes.WHOLE_BYTES_MAX", -1)
    return young


def run(bench: Bench, body: Coroutine[Any, Any, None]) -> None:
    async def main() -> None:
        try:
            await body
        finally:
            await bench.replica.close()

    asyncio.run(main())


async def refused(code: Code, work: Coroutine[Any, Any, Any]) -> MemoreeError:
    with pytest.raises(MemoreeError) as caught:
        await work
    assert caught.value.code is code, caught.value
    return caught.value


# --- following --------------------------------------------------------------------------------------------------


def test_each_commit_costs_one_look_at_head_and_one_file(bench: Bench) -> None:
    async def body() -> None:
        recorder = bench.born("first")
        assert await bench.shown() == ["first"]
        for number in range(5):
            recorder.write(f"s{number}")
            begun = len(bench.store.requests)
            assert (await bench.shown())[-1] == f"s{number}"
            requests = bench.requests_since(begun)
            assert len(requests) == 2 and requests[0] == "GET head.json"
        assert bench.restores.count == 1
        assert len(bench.files()) == 2, "two copies, never more without slow readers"

    run(bench, body())


def test_an_unchanged_head_costs_one_request(bench: Bench) -> None:
    async def body() -> None:
        bench.born("first")
        await bench.shown()
        begun = len(bench.store.requests)
        await bench.shown()
        assert bench.requests_since(begun) == ["GET head.json"]

    run(bench, body())


def test_several_commits_at_once_are_caught_up_with_in_one_step(bench: Bench) -> None:
    async def body() -> None:
        recorder = bench.born("first")
        await bench.shown()
        for number in range(10):
            recorder.write(f"s{number}")
        assert len(await bench.shown()) == 11
        assert bench.restores.count == 1

    run(bench, body())


def test_what_head_does_not_cover_is_shown_to_nobody(bench: Bench) -> None:
    async def body() -> None:
        recorder = bench.born("covered")
        recorder.commit("uploaded and not covered")
        assert await bench.shown() == ["covered"]
        recorder.cover()
        assert await bench.shown() == ["covered", "uploaded and not covered"]

    run(bench, body())


def test_a_gap_of_raw_files_is_filled_from_a_compacted_one(bench: Bench) -> None:
    async def body() -> None:
        recorder = bench.born("first")
        await bench.shown()
        for number in range(4):
            recorder.write(f"s{number}")
        recorder.compact(3, 5)
        assert len(await bench.shown()) == 5
        assert bench.restores.count == 1

    run(bench, body())


def test_a_gap_that_no_file_fills_is_restored_across(bench: Bench) -> None:
    async def body() -> None:
        recorder = bench.born("first")
        await bench.shown()
        recorder.write("second")
        bench.store.remove(recorder.key(LtxName(0, recorder.txid, recorder.txid)))
        recorder.compact(1, recorder.txid - 1)
        recorder.write("third")
        bench.store.place(recorder.key(LtxName(9, 1, recorder.txid)), b"a snapshot")
        assert await bench.shown() == ["first", "second", "third"]
        assert bench.restores.count == 2
        assert len(bench.files()) == 1, "nothing of the earlier copies is left"

    run(bench, body())


@pytest.mark.fault_class(43)
def test_a_damaged_change_file_is_never_applied(bench: Bench) -> None:
    async def body() -> None:
        recorder = bench.born("first")
        await bench.shown()
        recorder.write("second")
        key = recorder.key(LtxName(0, recorder.txid, recorder.txid))
        body = bytearray(bench.store.body(key))
        body[-1] ^= 1  # of the checksum: a bit of a compressed page may make no difference
        bench.store.place(key, bytes(body))
        assert await bench.shown() == ["first", "second"], "the whole state was fetched instead"
        assert bench.restores.count == 2

    run(bench, body())


def test_a_takeover_is_followed_into_the_new_prefix(bench: Bench) -> None:
    async def body() -> None:
        first = bench.born("one")
        assert await bench.shown() == ["one"]
        second = bench.reign(epoch=2, parent=first)
        first.cover(epoch=2, owner="another")
        assert await bench.shown() == ["one"], "claimed, and still served from the old prefix"
        second.cover()
        second.write("two")
        assert await bench.shown() == ["one", "two"]

    run(bench, body())


# --- a young prefix ---------------------------------------------------------------------------------------------


def test_a_young_prefix_is_read_without_a_process_and_followed_as_any_other(young: Bench) -> None:
    async def body() -> None:
        recorder = young.born("one", "two")
        assert await young.shown() == ["one", "two"]
        recorder.write("three")
        begun = len(young.store.requests)
        assert await young.shown() == ["one", "two", "three"]
        assert len(young.requests_since(begun)) == 2
        second = young.reign(epoch=2, parent=recorder)
        second.cover()
        second.write("four")
        assert await young.shown() == ["one", "two", "three", "four"]
        assert young.restores.count == 0
        assert len(young.files()) <= 2

    run(young, body())


@pytest.mark.parametrize("harm", ["gone", "damaged"])
def test_a_young_prefix_without_its_first_file_is_restored(young: Bench, harm: str) -> None:
    async def body() -> None:
        recorder = young.born("one")
        first = recorder.key(LtxName(0, 1, 1))
        if harm == "gone":
            recorder.compact(1, 2)
        else:
            young.store.place(first, young.store.versions[first][-1][:-1] + b"?")
        assert await young.shown() == ["one"]
        assert young.restores.count == 1
        assert len(young.files()) == 1

    run(young, body())


def test_a_young_prefix_that_head_does_not_vouch_for_is_not_shown(young: Bench) -> None:
    async def body() -> None:
        recorder = young.born("one")
        recorder.cover(integrity="00" * 32)
        await refused(Code.INDEX_NOT_READY, young.shown())
        assert young.files() == []

    run(young, body())


# --- troubles that pass -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("failing", [1, 2])
def test_a_store_that_does_not_answer_costs_neither_the_state_nor_a_restore(bench: Bench, failing: int) -> None:
    async def body() -> None:
        recorder = bench.born("first")
        await bench.shown()
        recorder.write("second")
        for _ in range(5):
            bench.store.reads.extend([Fault.NONE] * (failing - 1) + [Fault.BEFORE])
            with pytest.raises(StoreUnavailable):
                await bench.replica.refresh_anew()
            assert bench.visible() == ["first"]
        assert len(bench.files()) <= 2, "every failed try left a file"
        assert await bench.shown() == ["first", "second"]
        assert bench.restores.count == 1

    run(bench, body())


def test_a_full_disk_keeps_the_state_and_is_told_as_not_ready(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        recorder = bench.born("first")
        await bench.shown()
        recorder.write("second")

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as broken:
            broken.setattr(replica_module, "apply", full)
            await refused(Code.INDEX_NOT_READY, bench.replica.refresh_anew())
        assert bench.visible() == ["first"]
        assert await bench.shown() == ["first", "second"]

    run(bench, body())


def test_a_restore_that_overtakes_head_waits_for_head_and_raises_no_alarm(bench: Bench) -> None:
    async def body() -> None:
        recorder = bench.born("first")
        covered = recorder.head()
        recorder.commit("second, in flight")
        recorder.compact(covered.txid, recorder.txid)
        for _ in range(3):
            await refused(Code.INDEX_NOT_READY, bench.replica.refresh_anew())
        assert not bench.replica.is_alarmed
        recorder.cover()
        assert await bench.shown() == ["first", "second, in flight"]

    run(bench, body())


def test_concurrent_callers_share_one_look(bench: Bench) -> None:
    async def body() -> None:
        bench.born("first")
        await bench.shown()
        begun = len(bench.store.requests)
        await asyncio.gather(*(bench.replica.refresh() for _ in range(50)))
        assert len(bench.store.requests) - begun == 1

    run(bench, body())


# --- states that are not the tenant's ---------------------------------------------------------------------------


def lying(**changes: Any) -> Callable[[Recorder], None]:
    return lambda recorder: recorder.cover(**changes)


@pytest.mark.parametrize(
    "lie", [lying(commit_seq=9), lying(batch=9), lying(history=3), lying(txid=1, batch=9)], ids=range(4)
)
def test_a_state_that_head_does_not_vouch_for_is_never_shown(bench: Bench, lie: Callable[[Recorder], None]) -> None:
    async def body() -> None:
        recorder = bench.born("first")
        await bench.shown()
        recorder.commit("second")
        lie(recorder)
        for _ in range(3):
            await refused(Code.INDEX_NOT_READY, bench.replica.refresh_anew())
        assert bench.replica.is_alarmed
        assert not bench.replica.is_loaded, "both copies are discarded"
        assert bench.files() == []

    run(bench, body())


def test_files_of_another_lineage_apply_cleanly_and_are_still_told_apart(bench: Bench) -> None:
    async def body() -> None:
        recorder = bench.born("first")
        await bench.shown()
        other = bench.reign(epoch=2)
        other.commit("another first")
        other.commit("another second")
        recorder.write("second")
        assert other.txid == recorder.txid
        name = LtxName(0, other.txid, other.txid)
        bench.store.place(recorder.key(name), bench.store.body(other.key(name)))
        await refused(Code.INDEX_NOT_READY, bench.replica.refresh_anew())

    run(bench, body())


def test_after_two_foreign_states_no_more_is_fetched_until_the_pause_is_over(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RESTORE_BACKOFF_SECONDS", (0.05, 0.05))

    async def body() -> None:
        recorder = bench.born("first")
        await bench.shown()
        recorder.write("second")
        recorder.cover(commit_seq=9)
        for _ in range(2):
            await refused(Code.INDEX_NOT_READY, bench.replica.refresh_anew())
        begun = len(bench.store.requests)
        await refused(Code.INDEX_NOT_READY, bench.replica.refresh_anew())
        assert len(bench.store.requests) == begun, "not even a strong read may be answered from what is there"
        recorder.cover()
        while not bench.replica.is_loaded:
            with suppress(MemoreeError):
                await bench.replica.refresh_anew()
            await asyncio.sleep(0.002)
        assert bench.visible() == ["first", "second"]
        assert not bench.replica.is_alarmed

    run(bench, body())


def test_a_head_that_goes_back_is_not_followed(bench: Bench) -> None:
    async def body() -> None:
        recorder = bench.born("first")
        earlier = bench.store.body(HEAD)
        recorder.write("second")
        assert len(await bench.shown()) == 2
        bench.store.place(HEAD, earlier)
        await refused(Code.INDEX_NOT_READY, bench.replica.refresh_anew())

    run(bench, body())


def test_nothing_of_a_replaced_history_is_served_not_even_while_the_new_one_cannot_be_had(bench: Bench) -> None:
    async def body() -> None:
        first = bench.born("of the old history")
        await bench.shown()
        restored = bench.reign(epoch=2, history=1)
        restored.write("of the new history")
        bench.store.reads.extend([Fault.NONE, Fault.BEFORE])
        bench.restores.recorders.clear()
        for _ in range(2):
            with pytest.raises((KeyError, MemoreeError, StoreUnavailable)):
                await bench.replica.refresh_anew()
            assert not bench.replica.is_loaded
        bench.restores.know(first)
        bench.restores.know(restored)
        assert await bench.shown() == ["of the new history"]

    run(bench, body())


# --- head missing -----------------------------------------------------------------------------------------------


def test_a_tenant_that_never_was_is_an_empty_store(bench: Bench) -> None:
    async def body() -> None:
        assert await bench.shown() == []
        assert bench.replica.generation.meta.commit_seq == 0
        bench.born("born meanwhile")
        assert await bench.shown() == ["born meanwhile"]

    run(bench, body())


@pytest.mark.proves("fault-19")
@pytest.mark.parametrize("loaded", [True, False])
def test_a_missing_head_is_damage_and_an_alarm_and_never_an_empty_store(bench: Bench, loaded: bool) -> None:
    async def body() -> None:
        bench.born("first")
        if loaded:
            await bench.shown()
        head = bench.store.body(HEAD)
        bench.store.remove(HEAD)
        error = await refused(Code.INTEGRITY_ERROR, bench.replica.refresh_anew())
        assert "head missing" in error.message
        assert bench.replica.is_alarmed
        assert not bench.replica.is_loaded and bench.replica.size_bytes == 0, "what was deleted stays on no disk"
        bench.store.place(HEAD, head)
        assert await bench.shown() == ["first"]
        assert not bench.replica.is_alarmed

    run(bench, body())


def test_a_replica_that_was_discarded_is_loaded_again_and_not_taken_for_empty(bench: Bench) -> None:
    async def body() -> None:
        bench.born("first")
        await bench.shown()
        bench.replica.discard()
        await refused(Code.INDEX_NOT_READY, _generation(bench))
        assert await bench.shown() == ["first"]

    run(bench, body())


async def _generation(bench: Bench) -> None:
    _ = bench.replica.generation


def test_a_head_that_vanishes_after_the_copies_were_discarded_is_still_missed(bench: Bench) -> None:
    async def body() -> None:
        recorder = bench.born("first")
        await bench.shown()
        bench.replica.discard()
        bench.store.remove(HEAD)
        for key in bench.store.keys(f"tenants/{TENANT}/{recorder.prefix}"):
            bench.store.remove(key)
        await refused(Code.INTEGRITY_ERROR, bench.replica.refresh_anew())

    run(bench, body())


@pytest.mark.fault_class(51)
@pytest.mark.proves("operations-76")
def test_a_store_of_a_later_program_is_refused(bench: Bench) -> None:
    async def body() -> None:
        recorder = bench.born("first")
        await bench.shown()
        recorder.cover(schema_version=999)
        for _ in range(2):
            await refused(Code.CONFIG_ERROR, bench.replica.refresh_anew())

    run(bench, body())


# --- readers and files ------------------------------------------------------------------------------------------


def test_a_read_that_begins_late_sees_the_state_it_was_promised(bench: Bench) -> None:
    async def body() -> None:
        recorder = bench.born("first")
        await bench.shown()
        recorder.write("second")
        await bench.shown()
        busy, gate = ThreadPoolExecutor(1), threading.Event()
        busy.submit(gate.wait, 30)
        late = bench.replica.generation.read(busy, lambda db: scalar(db, "SELECT count(*) FROM claims"))
        for number in range(4):
            recorder.write(f"s{number}")
            await bench.shown()
        assert len(bench.visible()) == 6
        gate.set()
        assert await late == 2
        busy.shutdown()
        recorder.write("last")
        await bench.shown()
        recorder.write("very last")
        await bench.shown()
        assert len(bench.files()) == 2, "the third copy goes when its readers have gone"

    run(bench, body())


def test_a_slow_reader_keeps_its_file_and_delays_nobody(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "IDLE_COPY_WAIT_SECONDS", 0.02)

    async def body() -> None:
        recorder = bench.born("first")
        await bench.shown()
        with bench.replica.generation.connection() as slow:
            for number in range(6):
                recorder.write(f"s{number}")
                assert len(await bench.shown()) == number + 2
                assert scalar(slow, "SELECT count(*) FROM claims") == 1
            assert len(bench.files()) == 3

    run(bench, body())


def test_an_evicted_replica_disturbs_no_reader_and_leaves_no_file(bench: Bench) -> None:
    async def body() -> None:
        bench.born("first")
        await bench.shown()
        generation = bench.replica.generation
        with generation.connection() as db:
            bench.replica.discard()
            assert scalar(db, "SELECT count(*) FROM claims") == 1
        assert bench.files() == []

    run(bench, body())


def test_closing_ends_a_refresh_under_way_and_leaves_no_file(bench: Bench) -> None:
    async def body() -> None:
        bench.born("first")
        await bench.shown()
        blocked = asyncio.Event()

        async def never(*_: object, **__: object) -> None:
            blocked.set()
            await asyncio.Event().wait()

        bench.store.get = never  # type: ignore[method-assign, assignment]
        refreshing = asyncio.ensure_future(bench.replica.refresh())
        await blocked.wait()
        await bench.replica.close()
        with pytest.raises(asyncio.CancelledError):
            await refreshing
        assert bench.files() == []

    run(bench, body())
