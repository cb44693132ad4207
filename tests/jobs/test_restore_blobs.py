"""Which blobs a restored state needs, and which stay condemned."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from memoree import clock, limits
from memoree.backup.database import copy_database
from memoree.database.condemned import NO_COMMIT, Condemned
from memoree.erasures import Erasure
from memoree.errors import Code, MemoreeError
from memoree.jobs.restore_blobs import carried_over, needed_blobs
from memoree.objects.blobs import blob_digest
from operations.bench import Bench

LARGE, OTHER = "é" * 20_000, "è" * 20_000
GARBAGE = "4a" * 32


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    directory = tmp_path / "live"
    directory.mkdir()
    bench = Bench(directory)
    yield bench
    bench.close()


def database_of(bench: Bench, tmp_path: Path) -> Path:
    path = tmp_path / "past.sqlite3"
    copy_database(Path(bench.db.filename), path)
    return path


def digest_of(text: str) -> str:
    return blob_digest(text.encode())


def condemned(digest: str, bench: Bench, *, seconds_ago: float) -> Condemned:
    at = bench.clock() - timedelta(seconds=seconds_ago)
    return Condemned(bytes.fromhex(digest), clock.stored(at), NO_COMMIT)


@pytest.mark.proves("operations-15")
def test_what_only_an_erased_artifact_needs_is_not_needed(bench: Bench, tmp_path: Path) -> None:
    erased, _, _ = bench.put(LARGE), bench.put(OTHER), bench.put("short")
    shared = bench.put(OTHER)
    database = database_of(bench, tmp_path)
    entities = (erased["artifact_id"], shared["artifact_id"])
    erasures = [Erasure("ers_1", clock.stored(bench.clock()), 9, entities, (digest_of(LARGE),))]

    assert {ref.digest.hex() for ref in needed_blobs(database, [])} == {digest_of(LARGE), digest_of(OTHER)}
    needed = [(ref.digest.hex(), ref.size) for ref in needed_blobs(database, erasures)]
    assert needed == [(digest_of(OTHER), len(OTHER.encode()))]


def test_a_blob_that_is_being_collected_cannot_be_restored_before_that_is_over(bench: Bench, tmp_path: Path) -> None:
    bench.put(LARGE)
    database = database_of(bench, tmp_path)
    garbage = condemned(GARBAGE, bench, seconds_ago=1)
    young = condemned(digest_of(LARGE), bench, seconds_ago=limits.COLLECT_RELEASE_SECONDS_MIN - 1)
    with pytest.raises(MemoreeError, match=digest_of(LARGE)) as refused:
        carried_over(database, [], [garbage, young], bench.clock)
    assert refused.value.code is Code.TRANSPORT_ERROR
    assert refused.value.details == {"reason": "digest_condemned", "digest": digest_of(LARGE)}

    old = condemned(digest_of(LARGE), bench, seconds_ago=limits.COLLECT_RELEASE_SECONDS_MIN)
    assert carried_over(database, [], [garbage, old], bench.clock) == [garbage]
    assert carried_over(database, [], [], bench.clock) == []
