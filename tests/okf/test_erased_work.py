"""A node that agents and curators worked on is erased: nothing tells of it any more, in no request that took several
commit numbers either."""

from __future__ import annotations

from pathlib import Path

import pytest

from memoree.database import compaction
from operations.bench import Bench
from operations.test_erasure import erase, marker, pieces_in

from .inbox_support import issues
from .test_work_operations import NODES, Store, bench  # noqa: F401 - a fixture


@pytest.fixture
def worked_on(bench: Bench) -> tuple[Store, dict[str, str], str]:  # noqa: F811
    """A store, ids of artifacts by what was done to them, and the word that is in all they say."""
    word = marker()
    task = f"projects/task-{word}"
    store = Store(bench, {**NODES, f"{task}.md": f"---\ntype: Task\ntitle: {word}\nstatus: backlog\n---\n{word}\n"})
    artifact_id, revision_id = store.artifact(task)
    wanted = {"id": task, "status": "blocked", "blocked_reason": f"for {word}", "if_revision": revision_id}
    bench.write("task.set_status", {**wanted, "actor": "cursor"})
    store.deliver(f"concepts/{word}.md", f"---\ntype: Concept\ntitle: {word}\n---\n{word}\n".encode())
    concept, _ = store.artifact(f"concepts/{word}")
    store.review(f"concepts/{word} forget\n{task} archive\nrye forget")
    entry = bench.write("inbox.put", {"content": f"of {word}", "title": word, "actor": "cursor"})["entry_id"]
    promoted = bench.write(
        "inbox.promote",
        {
            "entry_id": entry,
            "approved_by": "Ann",
            "path": f"concepts/promoted-{word}.md",
            "content": f"---\ntype: Concept\ntitle: {word}\n---\n{word}\n",
        },
    )["artifact_id"]
    return store, {"task": artifact_id, "concept": concept, "entry": entry, "promoted": promoted}, word


@pytest.mark.fault_class(16)
def test_nothing_of_a_node_is_left_in_what_was_said_of_the_work_on_it(
    worked_on: tuple[Store, dict[str, str], str], tmp_path: Path
) -> None:
    store, ids, word = worked_on
    assert issues(store.bench) == []
    erase(store.bench, *ids.values())
    compaction.compact(store.bench.db)
    assert issues(store.bench) == []
    assert pieces_in(tmp_path, word) == set()
