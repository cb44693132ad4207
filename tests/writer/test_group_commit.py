"""One group commit: many commands, one transaction, each decided once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from memoree import clock, ids, limits
from memoree.command import Command
from memoree.database import attempts, meta
from memoree.errors import Code, MemoreeError
from memoree.ids import AttemptId
from memoree.operations import execute
from operations.bench import Bench

REFUSAL = MemoreeError(Code.INTERNAL_ERROR, "given up")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.close()


def claim(bench: Bench, statement: str, **changes: Any) -> Command:
    call = bench.request("claim.assert", {"claim_type": "fact", "statement": statement})
    fields = {"attempt_id": ids.new_attempt_id(), "history": 0, "received_at_ms": clock.milliseconds(bench.clock())}
    return Command(tenant="local", call=call, **fields | changes)


def created_at(bench: Bench) -> list[str]:
    return [instant for (instant,) in bench.db.execute("SELECT created_at FROM claims ORDER BY row_id")]


# --- instants ---------------------------------------------------------------------------------------------------


def test_created_at_has_the_microseconds_of_the_clock(bench: Bench) -> None:
    bench.clock.now = bench.clock.now.replace(microsecond=250_001)
    bench.claim()

    assert created_at(bench) == ["2026-03-02T20:41:07.250001000Z"]


def test_all_commands_of_a_batch_happen_at_one_instant(bench: Bench) -> None:
    started = bench.clock.now
    bench.committer.clock = lambda: _ticking(bench)
    bench.committer.commit([claim(bench, f"s{number}") for number in range(5)], bench.blobs)

    assert len(set(created_at(bench))) == 1
    assert bench.clock.now - started == timedelta(microseconds=1), "the clock is read once per batch"


def _ticking(bench: Bench) -> Any:
    bench.clock.advance(microseconds=1)
    return bench.clock.now


@pytest.mark.parametrize("step_back", [timedelta(microseconds=1), timedelta(milliseconds=3), timedelta(days=1)])
def test_created_at_never_decreases_when_the_clock_steps_back(bench: Bench, step_back: timedelta) -> None:
    bench.clock.now = bench.clock.now.replace(microsecond=250_700)
    bench.claim("first")
    bench.clock.now -= step_back
    bench.claim("second")
    bench.clock.advance(days=2)
    bench.claim("third")

    first, second, third = created_at(bench)
    assert first == second < third


def test_the_hybrid_clock_and_the_instant_agree_to_the_millisecond(bench: Bench) -> None:
    for _ in range(3):
        bench.claim()
        bench.clock.advance(microseconds=123_456)

    for hlc, instant in bench.db.execute("SELECT hlc, created_at FROM events"):
        assert clock.hlc_milliseconds(hlc) == clock.milliseconds(clock.from_stored(instant))


# --- deciding once ----------------------------------------------------------------------------------------------


def test_a_redelivered_attempt_changes_nothing(bench: Bench) -> None:
    command = claim(bench, "once")
    first = bench.committer.commit([command], bench.blobs)
    again = bench.committer.commit([command, command], bench.blobs)

    assert list(again.attempts) == [first.attempts[0]] * 2
    assert (again.meta, again.batch_to_cover) == (first.meta, 1)


def test_an_attempt_twice_in_one_batch_takes_effect_once(bench: Bench) -> None:
    command = claim(bench, "once")

    committed = bench.committer.commit([command, command], bench.blobs)

    assert committed.meta.commit_seq == 1
    assert committed.attempts[0] == committed.attempts[1]


def test_a_refusal_counts_a_batch_and_no_commit_number(bench: Bench) -> None:
    (attempt,) = bench.commit([bench.request("claim.retract", {"claim_id": "clm_missing", "reason": "r"})])

    assert (attempt.status, attempt.code) == ("refused", "NOT_FOUND")
    assert (bench.meta().batch, bench.meta().commit_seq) == (1, 0)


def test_a_batch_with_an_old_and_a_new_command_is_covered_by_the_new_ones_batch(bench: Bench) -> None:
    old = claim(bench, "old")
    bench.committer.commit([old], bench.blobs)

    assert bench.committer.commit([old, claim(bench, "new")], bench.blobs).batch_to_cover == 2


def test_giving_up_an_attempt_that_was_decided_meanwhile_keeps_its_outcome(bench: Bench) -> None:
    command = claim(bench, "applied after all")
    (applied,) = bench.committer.commit([command], bench.blobs).attempts

    (attempt,) = bench.committer.refuse(command.attempt_id, REFUSAL).attempts

    assert attempt == applied
    assert bench.meta().batch == 1


def test_an_attempt_that_is_given_up_is_refused_for_good(bench: Bench) -> None:
    command = claim(bench, "poison")
    bench.committer.refuse(command.attempt_id, REFUSAL)

    (attempt,) = bench.committer.commit([command], bench.blobs).attempts

    assert (attempt.status, attempt.code) == ("refused", "INTERNAL_ERROR")
    assert bench.meta().commit_seq == 0


# --- what is too old --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [{"history": 1}, {"received_at_ms": 1_772_484_067_250 - limits.COMMAND_AGE_SECONDS_MAX * 1000 - 1}],
)
def test_a_command_of_another_history_or_too_old_is_not_applied(bench: Bench, changes: dict[str, int]) -> None:
    (attempt,) = bench.committer.commit([claim(bench, "late", **changes)], bench.blobs).attempts

    assert (attempt.status, attempt.code) == ("expired", "TRANSPORT_ERROR")
    with pytest.raises(MemoreeError) as refused:
        execute.outcome_of(bench.db, attempt)
    assert refused.value.retryable and refused.value.details == {"reason": "expired"}
    assert bench.meta().commit_seq == 0


# --- faults -----------------------------------------------------------------------------------------------------


def test_a_fault_that_is_no_refusal_rolls_the_whole_batch_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = [claim(bench, "sound"), claim(bench, "broken")]

    def decide(tx: Any, call: Any) -> Any:
        if call.input.statement == "broken":
            raise ZeroDivisionError
        return execute.decide(tx, call)

    with monkeypatch.context() as broken:
        broken.setattr("memoree.writer.group_commit.decide", decide)
        with pytest.raises(ZeroDivisionError):
            bench.committer.commit(commands, bench.blobs)
    assert not bench.db.in_transaction
    assert (bench.meta().batch, bench.meta().commit_seq) == (0, 0)
    assert attempts.find(bench.db, commands[0].attempt_id) is None

    assert [attempt.status for attempt in bench.committer.commit(commands, bench.blobs).attempts] == ["applied"] * 2


def test_a_full_disk_stores_nothing_and_the_next_commit_works(bench: Bench) -> None:
    pages = bench.db.execute("PRAGMA page_count").get
    bench.db.execute(f"PRAGMA max_page_count = {pages}")

    with pytest.raises(apsw.FullError):
        bench.committer.commit([claim(bench, "x" * 100_000)], bench.blobs)
    bench.db.execute("PRAGMA max_page_count = 1000000")

    assert meta.read(bench.db).batch == 0
    assert bench.committer.commit([claim(bench, "fits")], bench.blobs).meta.commit_seq == 1


# --- forgetting -------------------------------------------------------------------------------------------------


def refused_attempt(bench: Bench) -> AttemptId:
    (attempt,) = bench.commit([bench.request("claim.retract", {"claim_id": "clm_missing", "reason": "r"})])
    return attempt.attempt_id


def test_the_text_of_a_refusal_is_kept_for_an_hour_after_it_was_covered(bench: Bench) -> None:
    bench.db.execute("UPDATE meta SET covered_at = ?", (clock.stored(bench.clock()),))
    old = refused_attempt(bench)

    def text() -> str | None:
        found = attempts.find(bench.db, old)
        assert found is not None
        return found.error

    bench.clock.advance(seconds=limits.ATTEMPT_BODY_RETENTION_SECONDS + 1)
    bench.claim("notes that the batch is covered")
    assert text() is not None, "it was covered only now, as far as anybody knows"
    bench.clock.advance(seconds=limits.ATTEMPT_BODY_RETENTION_SECONDS - 1)
    bench.claim("too early")
    assert text() is not None
    bench.clock.advance(seconds=2)
    bench.claim("an hour has passed")
    assert text() is None


def test_rows_of_attempts_outlive_the_queue_and_then_go(bench: Bench) -> None:
    old = ids.new_id("att", clock.milliseconds(bench.clock()))
    bench.db.execute("UPDATE meta SET covered_at = ?", (clock.stored(bench.clock()),))
    bench.committer.commit([claim(bench, "old", attempt_id=AttemptId(old))], bench.blobs)
    bench.clock.advance(seconds=limits.ATTEMPT_RETENTION_SECONDS - 1)
    bench.claim()
    assert attempts.find(bench.db, AttemptId(old)) is not None
    bench.clock.advance(seconds=limits.ATTEMPT_BODY_RETENTION_SECONDS + 2)
    bench.claim()
    assert attempts.find(bench.db, AttemptId(old)) is None
