"""Running a call against a view: reads, replays, and the one place where a mutation is decided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import apsw
import orjson

from memoree.database import idempotency
from memoree.database.attempts import Attempt
from memoree.errors import Code, MemoreeError, erased, shown
from memoree.operations.call import Call
from memoree.operations.content import StagedContent
from memoree.operations.quota import require_room
from memoree.operations.registry import Mutation, Read
from memoree.operations.view import Transaction, View


@dataclass(frozen=True, slots=True)
class Success:
    """A mutation's acknowledgement: where it is recorded, its commit, and whether it is a repeat."""

    idempotency_row: int
    commit_seq: int
    result: dict[str, Any]
    replayed: bool


def run_read(view: View, call: Call[Any]) -> dict[str, Any]:
    """The result object of a read."""
    assert isinstance(call.operation, Read)
    result = call.operation.run(view, call)
    return result if isinstance(result, dict) else result.model_dump(mode="json", exclude_none=True)


def find_replay(view: View, call: Call[Any]) -> Success | None:
    """The recorded outcome of an identical earlier request. Raises `IDEMPOTENCY_CONFLICT` when the key was used
    for a different one."""
    record = idempotency.find(view.db, call.idempotency_namespaced)
    if record is None:
        return None
    if record.result == idempotency.ERASED_RESULT:
        erased("the outcome of", call.idempotency_key)
    if record.operation != call.operation.name or record.fingerprint != call.fingerprint:
        raise MemoreeError(
            Code.IDEMPOTENCY_CONFLICT,
            f"the key {shown(call.idempotency_key)} was used for a different {record.operation} request",
            details={"idempotency_key": call.idempotency_key},
        )
    return success_of(record, replayed=True)


def success_of(record: idempotency.Record, *, replayed: bool) -> Success:
    """Raises `NOT_FOUND` of the kind `erased` where the acknowledgement told of something that was erased."""
    if record.result == idempotency.ERASED_RESULT:
        erased("what commit", str(record.commit_seq))
    result = orjson.loads(record.result)
    if replayed:
        result["created"] = False
    return Success(record.row_id, record.commit_seq, result, replayed)


def replay_from_snapshot(view: View, call: Call[Any]) -> Success | None:
    """An exact replay, answered without the writer; anything else, conflicts included, is the writer's to judge.

    Safe on a stale snapshot because records only grow (design §5.1).
    """
    operation = call.operation
    assert isinstance(operation, Mutation)
    if not operation.replay_on_snapshot:
        return None
    record = idempotency.find(view.db, call.idempotency_namespaced)
    if record is None or (record.operation, record.fingerprint) != (operation.name, call.fingerprint):
        return None
    if operation.before_replay is not None:
        operation.before_replay(view, call)
    return success_of(record, replayed=True)


def decide(tx: Transaction, call: Call[Any]) -> Success:
    """Apply a mutation, or repeat its recorded outcome. Raises `MemoreeError` for a refusal; the caller then
    rolls back to its savepoint."""
    operation = call.operation
    assert isinstance(operation, Mutation)
    if operation.before_replay is not None:
        operation.before_replay(tx, call)
    if (replay := find_replay(tx, call)) is not None:
        return replay
    if call.content is not None:
        _require_content(tx, call.content)
    applied = operation.apply(tx, call)
    require_room(tx)
    result = applied.to_result()
    record = idempotency.insert(
        tx.db,
        key=call.idempotency_namespaced,
        operation=operation.name,
        fingerprint=call.fingerprint,
        commit_seq=applied.commit_seq,
        result=orjson.dumps(result).decode(),
    )
    tx.sum.add(idempotency.entry(record))
    return Success(record.row_id, applied.commit_seq, result, replayed=False)


def _require_content(tx: Transaction, content: StagedContent) -> None:
    if content.refusal is not None:
        raise content.refusal
    if not content.at_hand:
        tx.require_blob(content.digest)


def outcome_of(db: apsw.Connection, attempt: Attempt) -> Success:
    """The acknowledgement of a decided attempt. Raises the refusal it met."""
    if attempt.idempotency_row is not None:
        return success_of(idempotency.by_row(db, attempt.idempotency_row), replayed=attempt.replayed)
    if attempt.error is None:
        assert attempt.code is not None
        raise MemoreeError(Code(attempt.code), "the write was refused; its explanation is no longer kept")
    raise MemoreeError.from_wire(orjson.loads(attempt.error))
