"""What a tenant may hold: counted as it is written, bounded by its writer, and never in the way of removing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memoree.database import integrity, quota
from memoree.database.quota import Quota
from memoree.errors import MemoreeError
from memoree.ids import new_ulid
from memoree.jobs.tenancy import request_of
from memoree.objects.audit import DirectoryAudit
from memoree.objects.filesystem import FilesystemStore
from memoree.operations.execute import outcome_of
from memoree.verification.store import verify
from mixed_mutations import mixed_mutations

from .bench import Bench, Json, disagreements, put_input

BODY = "cone 6 reached at 21:40"


def held(bench: Bench) -> tuple[int, int]:
    counters = bench.meta()
    return counters.held_rows, counters.held_bytes


def counted(bench: Bench) -> tuple[int, int]:
    found = integrity.recount(bench.db)
    return found.held_rows, found.held_bytes


def internal(bench: Bench, op: str, input: Json) -> Json:
    """The acknowledgement of what no door takes. Raises its refusal."""
    (attempt,) = bench.commit([request_of(op, input, new_ulid()).call])
    return outcome_of(bench.db, attempt).result


def allow(bench: Bench, **limits: Any) -> Json:
    return internal(bench, "tenant.quota", limits)


def refused(write: Callable[[], object]) -> dict[str, Any]:
    """The error of a write that must not succeed, `{}` when it did."""
    try:
        write()
    except MemoreeError as error:
        return error.to_wire()
    return {}


def erase(bench: Bench, entity: Json) -> None:
    internal(bench, "store.erase", {"entities": [entity["artifact_id"]], "reason": "no longer needed"})


@pytest.mark.proves("operations-77")
def test_what_is_held_is_counted_as_it_is_written(bench: Bench) -> None:
    first = bench.put(BODY)
    assert held(bench) == (1, len(BODY))
    bench.revise(first, BODY + "!")
    bench.claim()
    assert held(bench) == (3, 2 * len(BODY) + 1)
    bench.write("artifact.forget", {"artifact_id": first["artifact_id"], "reason": "a draft"})
    assert held(bench) == (3, 2 * len(BODY) + 1)
    erase(bench, first)
    assert held(bench) == (1, 0)
    mixed_mutations(bench.write)
    assert held(bench) == counted(bench)
    assert held(bench)[0] > 20


@pytest.mark.proves("operations-77")
def test_what_was_refused_is_not_counted(bench: Bench) -> None:
    bench.put(BODY)
    bench.clock.advance(seconds=1)
    good, bad = bench.request("artifact.put", put_input("good")), bench.request("artifact.put", put_input("x" * 100))
    allow(bench, bytes_max=len(BODY) + 10)
    first, second = bench.commit([good, bad])
    assert (first.status, second.status) == ("applied", "refused")
    assert held(bench) == counted(bench) == (2, len(BODY) + 4)


@pytest.mark.proves("operations-78")
@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"rows_max": 2}, {"limit": "rows", "used": 2, "quota": 2}),
        ({"bytes_max": 50}, {"limit": "bytes", "used": 46, "quota": 50}),
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_nothing(
    bench: Bench, limits: dict[str, int], told: dict[str, Any]
) -> None:
    allow(bench, **limits)
    bench.put(BODY)
    bench.put(BODY)
    with bench.refused_without_a_trace("CONTENT_TOO_LARGE"):
        bench.put(BODY)
    error = refused(lambda: bench.put(BODY))
    assert (error.get("code"), error.get("details"), error.get("retryable")) == ("CONTENT_TOO_LARGE", told, False)
    assert held(bench) == counted(bench)


@pytest.mark.proves("operations-78")
def test_exactly_what_is_allowed_fits(bench: Bench) -> None:
    allow(bench, rows_max=1, bytes_max=len(BODY))
    assert refused(lambda: bench.put(BODY)) == {}


@pytest.mark.proves("operations-79")
def test_a_refusal_is_decided_once_and_the_same_request_passes_when_there_is_room(bench: Bench) -> None:
    kept = bench.put(BODY)
    allow(bench, rows_max=1)
    request = bench.request("artifact.put", put_input("later"), key="later")
    command = bench._command(request, True)
    [attempt] = bench.committer.commit([command], bench.blobs).attempts
    erase(bench, kept)
    [again] = bench.committer.commit([command], bench.blobs).attempts
    assert attempt.status == "refused"
    assert (again.attempt_id, again.status, again.batch) == (attempt.attempt_id, "refused", attempt.batch)
    assert bench.write("artifact.put", put_input("later"), key="later")["created"] is True


@pytest.mark.proves("operations-80")
def test_whoever_holds_too_much_can_still_take_away(bench: Bench) -> None:
    names = mixed_mutations(bench.write)
    before = held(bench)
    allow(bench, rows_max=0, bytes_max=0)
    removals = {
        "artifact.forget": {"artifact_id": names["recipes"]["artifact_id"], "reason": "old"},
        "claim.retract": {"claim_id": names["reached"]["claim_id"], "reason": "wrong"},
        "projection.drop": {"projection_id": names["summary"]["projection_id"], "reason": "old"},
    }
    assert {op: refused(lambda op=op, input=input: bench.write(op, input)) for op, input in removals.items()} == {
        op: {} for op in removals
    }
    assert refused(lambda: erase(bench, names["log"])) == {}
    assert held(bench) < before
    assert held(bench) == counted(bench)
    assert refused(lambda: bench.claim()).get("code") == "CONTENT_TOO_LARGE"


@pytest.mark.proves("operations-80")
def test_a_replay_and_a_write_that_changes_nothing_need_no_room(bench: Bench) -> None:
    source = bench.write("source.register", {"name": "wiki", "kind": "wiki"})["source_id"]
    item = {"source_id": source, "external_id": "page", "external_revision": "v1"}
    delivery = item | {"kind": "page", "title": "page", "content": {"type": "text", "data": "raku"}}
    bench.write("source.ingest", delivery, key="one")
    allow(bench, rows_max=1, bytes_max=1)
    assert refused(lambda: bench.write("source.ingest", delivery, key="one")) == {}
    assert refused(lambda: bench.write("source.ingest", delivery, key="two")) == {}


@pytest.mark.proves("operations-81")
def test_a_quota_is_set_member_by_member_and_taken_away_by_null(bench: Bench) -> None:
    assert quota.read(bench.db) == quota.NONE
    allow(bench, rows_max=5, rate_per_second=2)
    first = allow(bench, bytes_max=7, rate_burst=3)
    assert quota.read(bench.db) == Quota(5, 7, 2.0, 3)
    allow(bench, rows_max=None)
    assert quota.read(bench.db) == Quota(None, 7, 2.0, 3)
    same = allow(bench, bytes_max=7)
    assert (first["created"], same["created"]) == (True, False)
    assert same["commit_seq"] == bench.meta().commit_seq
    assert integrity.recompute(bench.db) == bench.meta().integrity
    assert disagreements(bench.db) == []
    events = bench.db.execute("SELECT operation, payload FROM events ORDER BY commit_seq").fetchall()
    assert [operation for operation, _ in events] == ["tenant.quota"] * 3
    assert events[-1][1] == '{"rows_max":null,"bytes_max":7,"rate_per_second":2.0,"rate_burst":3}'


@pytest.mark.parametrize(
    "input", [{"rows_max": -1}, {"bytes_max": 1.5}, {"rate_per_second": 0}, {"rate_burst": 0}, {"rows": 1}]
)
def test_an_impossible_quota_is_refused(bench: Bench, input: Json) -> None:
    with pytest.raises(MemoreeError, match="input"):
        allow(bench, **input)


@pytest.mark.proves("operations-81")
def test_the_deployments_quota_holds_where_the_tenant_has_none_of_its_own(bench: Bench) -> None:
    bench.committer.quota_default = Quota(rows_max=1)
    bench.put(BODY)
    assert refused(lambda: bench.put(BODY)).get("details") == {"limit": "rows", "used": 1, "quota": 1}
    allow(bench, rows_max=2)
    assert refused(lambda: bench.put(BODY)) == {}
    allow(bench, rows_max=None)
    assert refused(lambda: bench.put(BODY)).get("details") == {"limit": "rows", "used": 2, "quota": 1}


def test_a_batch_is_bounded_command_by_command(bench: Bench) -> None:
    allow(bench, rows_max=3)
    attempts = bench.commit([bench.request("artifact.put", put_input(f"note {number}")) for number in range(5)])
    assert [attempt.status for attempt in attempts] == ["applied"] * 3 + ["refused"] * 2
    assert held(bench) == counted(bench)
    assert outcome_of(bench.db, attempts[0]).result["created"] is True


@pytest.mark.proves("operations-82")
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("held_rows = held_rows + 1", "counters store: say that 2 rows are held; the tables hold 1"),
        ("held_bytes = held_bytes - 1", f"counters store: say that {len(BODY) - 1} bytes are held; the tables hold"),
    ],
)
def test_verify_tells_a_count_that_the_tables_do_not_have(bench: Bench, damage: str, said: str) -> None:
    bench.put(BODY)
    bench.db.execute(f"UPDATE meta SET {damage}")
    lines = verify(bench.db, DirectoryAudit(FilesystemStore(bench.blobs.root), "local")).lines()
    assert len(lines) == 1, lines
    assert lines[0].startswith(said)


@pytest.mark.proves("operations-81")
def test_a_quota_bounds_what_follows_it_in_its_own_batch(bench: Bench) -> None:
    put = bench.request("artifact.put", put_input("first"))
    bound = request_of("tenant.quota", {"rows_max": 1}, new_ulid()).call
    late = bench.request("artifact.put", put_input("second"))
    assert [attempt.status for attempt in bench.commit([put, bound, late])] == ["applied", "applied", "refused"]
