from __future__ import annotations

import pytest

from memoree.envelope import AmbientContext
from memoree.errors import MemoreeError
from memoree.operations.context import same_scope
from memoree.owner import Owner

from .bench import LAB, Bench


@pytest.mark.proves("machine-32")
def test_the_context_is_resolved_as_it_was_sent(bench: Bench) -> None:
    context = LAB | {"task_id": "tsk_glaze", "pins": ["art_1@arev_1"]}
    assert bench.read("context.resolve", context=context) == {
        "resolved": True,
        "context": context | {"resolved_from": "none", "horizon": "ambient", "broadened": False},
    }


@pytest.mark.proves("machine-31")
def test_without_a_context_there_is_nothing_to_resolve(bench: Bench) -> None:
    with pytest.raises(MemoreeError) as refusal:
        bench.read("context.resolve", context=None)
    assert refusal.value.code == "NO_AMBIENT_CONTEXT"


@pytest.mark.parametrize(
    ("owner_task", "task", "allowed"),
    [(None, None, True), (None, "t", True), ("t", None, True), ("t", "t", True), ("t", "u", False)],
)
def test_two_different_tasks_do_not_share_a_scope(owner_task: str | None, task: str | None, allowed: bool) -> None:
    owner = Owner("w", "p", owner_task, "component")
    assert same_scope(owner, AmbientContext(workspace_id="w", project_id="p", task_id=task)) is allowed
    for workspace, project in (("w", "q"), ("v", "p")):
        elsewhere = AmbientContext(workspace_id=workspace, project_id=project, task_id=task)
        assert not same_scope(owner, elsewhere)


def test_a_scope_violation_names_both_places_and_no_content(bench: Bench) -> None:
    record = bench.put("the secret glaze recipe", title="secret")
    with pytest.raises(MemoreeError) as refusal:
        bench.write(
            "artifact.forget",
            {"artifact_id": record["artifact_id"], "reason": "r"},
            context={"workspace_id": "wsp_lab", "project_id": "prj_other", "task_id": "tsk_1", "pins": ["x"]},
        )
    message = refusal.value.message
    assert all(name in message for name in (record["artifact_id"], "prj_kiln", "prj_other", "tsk_1"))
    assert "secret" not in message
