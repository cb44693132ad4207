"""Explicit retrieval feedback (machine protocol §4.27 to §4.29)."""

from __future__ import annotations

import re

from contract.door import Json

from .entities import Feedback
from .model import Call, Done, invalid, not_found, operation

QUERY_BYTES_MAX, QUERY_WORDS_MAX = 8192, 48
WORD = re.compile(r"\w+")


@operation("feedback.record")
def record(call: Call) -> Done:
    query: str = call.input["query"]
    if len(query.encode()) > QUERY_BYTES_MAX or not 1 <= len(WORD.findall(query)) <= QUERY_WORDS_MAX:
        invalid()
    call.replay_or_go_on()
    commit = call.commit()
    made = Feedback(
        call.model.named("fb"),
        query,
        call.input["outcome"],
        call.input.get("retain_query", False),
        call.input.get("citations", []),
        call.input.get("note"),
        call.input.get("actor"),
        call.owner,
        commit.at,
        commit.seq,
    )
    call.model.feedback.append(made)
    return Done(made.record(), commit.seq)


@operation("feedback.get")
def get(call: Call) -> Json:
    wanted = call.input["feedback_id"]
    found = next((each for each in call.model.feedback if each.id == wanted), None) or not_found()
    call.must_own(found.owner)
    return found.record()


def _visible(call: Call) -> list[Feedback]:
    """Newest first; always the ambient horizon."""
    return [each for each in reversed(call.model.feedback) if call.context.same_scope(each.owner)]


@operation("feedback.list")
def list_feedback(call: Call) -> Json:
    shown, closing = call.page(_visible(call), "before_commit_seq", lambda each: each.commit_seq)
    return {"feedback": [each.record() for each in shown]} | closing


@operation("feedback.export")
def export(call: Call) -> Json:
    retained = [each for each in _visible(call) if each.retained]
    shown, closing = call.page(retained, "before_commit_seq", lambda each: each.commit_seq)
    return {
        "schema_version": 1,
        "format": "memoree_retrieval_feedback_v1",
        "cases": [each.exported() for each in shown],
    } | closing
