"""Short reads run in the event loop as long as they are short."""

from __future__ import annotations

import time
from typing import cast

import pytest

from memoree.operations.registry import catalogue
from memoree.operations.view import View
from memoree.reader import short_reads
from memoree.reader.short_reads import KINDS_KEPT_MAX, SHORT_SECONDS_MAX, ShortReads

KIND = ("acme", "relation.list")
NO_VIEW = cast(View, None)


def run(reads: ShortReads, seconds: float, monkeypatch: pytest.MonkeyPatch, kind: tuple[str, str] = KIND) -> None:
    """One read that takes so long by the clock."""
    ticks = iter((0.0, seconds))
    with monkeypatch.context() as patched:
        patched.setattr(short_reads, "perf_counter", lambda: next(ticks))
        reads.timed(kind, lambda view: None)(NO_VIEW)


def test_what_was_never_seen_runs_in_a_thread() -> None:
    assert not ShortReads().run_at_once(KIND)


def test_the_last_run_decides_where_the_next_one_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = ShortReads()
    for seconds, at_once in ((SHORT_SECONDS_MAX / 2, True), (SHORT_SECONDS_MAX, False), (0.0, True), (1.0, False)):
        run(reads, seconds, monkeypatch)
        assert reads.run_at_once(KIND) is at_once


def test_one_tenant_and_one_operation_say_nothing_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = ShortReads()
    run(reads, 0.0, monkeypatch)
    assert not reads.run_at_once(("other", KIND[1]))
    assert not reads.run_at_once((KIND[0], "claim.get"))


def test_a_read_that_fails_is_timed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = ShortReads()
    run(reads, 0.0, monkeypatch)

    def fail(view: View) -> None:
        time.sleep(2 * SHORT_SECONDS_MAX)
        raise LookupError

    with pytest.raises(LookupError):
        reads.timed(KIND, fail)(NO_VIEW)
    assert not reads.run_at_once(KIND)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = ShortReads()
    for number in range(KINDS_KEPT_MAX + 1):
        run(reads, 0.0, monkeypatch, ("tenant", f"operation {number}"))
    assert len(reads._seconds) <= KINDS_KEPT_MAX


def test_no_operation_is_both_short_and_long_and_none_that_may_read_blobs_is_short() -> None:
    operations = catalogue()
    assert not [each.name for each in operations.values() if each.short and (each.long or each.mutating)]
    reading_blobs = ("artifact.get", "citation.get", "search", "verify", "backup.create")
    assert not [name for name in reading_blobs if operations[name].short]
