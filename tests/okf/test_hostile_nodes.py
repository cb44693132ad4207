"""Files that were made to be read wrongly or to take for ever, and callers that go round the bundle's own doors."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoree.database import events
from memoree.limits import OKF_NODE_BYTES_MAX
from memoree.okf import frontmatter, indexing, links, snippets, terms
from memoree.okf.dialect import Dialect
from memoree.okf.node import Node, parse
from memoree.operations.feed import EventRecord

from .test_work_operations import Store, bench, store  # noqa: F401 - fixtures

SECONDS_MAX = 20.0
"""Of what takes about one; a search that begins anew at every character takes hours."""
SPACED = re.compile(r"\[([^\]]*)\]\([^)]*\)")
UNSPACED = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
FIELDS = "\ntype: Concept\nvisibility: secret\n"


@given(st.text("[]()a \n", max_size=24))
def test_links_are_those_of_the_expressions_they_replace(text: str) -> None:
    assert links.without_targets(text) == SPACED.sub(r"\1", text)
    assert [(link.start, link.end) for link in links.links(text, spaced=False)] == [
        match.span() for match in UNSPACED.finditer(text)
    ]


@pytest.mark.fault_class(55)
@pytest.mark.parametrize("piece", ["[", "[](", "](", "[]", "[a](b ", "[a](b.md) ", "`", "``` ", "ab\n"])
def test_no_body_takes_more_than_its_share_of_time(piece: str) -> None:
    node = Node("concepts/x", {}, piece * (OKF_NODE_BYTES_MAX // len(piece)))
    begun = time.monotonic()
    terms.document(node)
    assert len(list(indexing.edges_of(node))) <= indexing.LINKS_MAX
    snippets.snippet(node.body, [f"{number:x}b" for number in range(256)])
    assert time.monotonic() - begun < SECONDS_MAX


def test_a_node_has_as_many_edges_as_fit_and_each_once() -> None:
    body = " ".join(f"[x](/c/{number}.md)" for number in [*range(indexing.LINKS_MAX + 5), 1])
    edges = [edge.other_id for edge in indexing.edges_of(Node("concepts/x", {}, body))]
    assert edges == [f"c/{number}" for number in range(indexing.LINKS_MAX)]


def test_a_snippet_is_of_the_first_line_that_weighs_most_and_repeated_tokens_weigh_more() -> None:
    body = "one\nrye\nbread\nrye bread\nBread rye\nlast"
    assert snippets.snippet(body, ["rye", "bread"]) == "bread\nrye bread\nBread rye"
    assert snippets.snippet("bread\n\n\nrye", ["rye", "rye", "bread"]) == "rye"
    assert snippets.snippet("печь\n\n\nМукой", ["мук"]) == "Мукой"
    assert snippets.snippet("a\nb\nc", ["zz"]) == "a\nb"


@pytest.mark.proves("okf-12")
@pytest.mark.parametrize(
    "data",
    [
        f"\ufeff\ufeff---{FIELDS}---\n".encode(),
        f"--- # fields{FIELDS}---\n".encode(),
        f"---{FIELDS}---\n".encode("utf-16"),
        f"---{FIELDS}---\n".replace("\n", "\u2028").encode(),
        b'+++\ntitle = "x"\nvisibility = "secret"\n+++\n',
        b"---\nvisibility: secret\nvisibility: public\n---\n",
        b'---\nfoo: "a\nvisibility: secret\nvisibility: public\n---\n',
        "---\nvisi\u200bbility: secret\n---\n".encode(),
        b"---\nmetadata:\n  visibility: secret\n---\n",
        b"---\n<<: {visibility: secret}\n---\n",
        b"---\n" + b"key: value\n" * (frontmatter.FRONT_MATTER_CHARS_MAX // 10) + b"visibility: public\n---\n",
    ],
)
def test_whoever_says_secret_in_whatever_way_is_believed(data: bytes) -> None:
    assert parse("concepts/x", data).is_secret


@pytest.mark.proves("okf-12")
@pytest.mark.parametrize("folder", ["SECRET", "ｓｅｃｒｅｔ", "secret "])
def test_a_folder_that_reads_as_secret_is_secret(folder: str) -> None:
    assert parse(f"concepts/{folder}/x", b"---\ntype: Concept\n---\n").is_secret


def test_the_body_of_a_node_hides_nothing_and_the_reference_reads_the_last_of_repeated_fields() -> None:
    assert not parse("concepts/x", b"---\ntype: Concept\n---\nvisibility: secret\n").is_secret
    assert not parse("concepts/x", b"---\nvisibility: public\nvisibility: public\n---\n").is_secret
    assert frontmatter.read("---\nvisibility: secret\nvisibility: public\n---\n", Dialect.COMPAT).fields == {
        "visibility": "public"
    }


@pytest.mark.proves("okf-12")
def test_a_node_takes_no_bytes_that_nobody_read(store: Store) -> None:  # noqa: F811
    artifact_id, revision_id = store.artifact("concepts/rye")
    wanted = {"artifact_id": artifact_id, "if_revision": revision_id}
    content = {"type": "text", "data": f"---{FIELDS}---\nhidden\n"}
    with store.bench.refused_without_a_trace("INVALID_REQUEST"):
        store.bench.write("artifact.revise", {**wanted, "content": content})
    assert store.get("concepts/rye")["content"].endswith("Dark.\n")
    store.assert_sound()


@pytest.mark.proves("okf-91")
def test_a_task_in_a_mirror_is_not_changed(store: Store) -> None:  # noqa: F811
    store.deliver("mirror/cursor/task.md", b"---\ntype: Task\nstatus: backlog\n---\n")
    wanted = {"id": "mirror/cursor/task", "status": "done", "if_revision": store.artifact("mirror/cursor/task")[1]}
    with store.bench.refused_without_a_trace("INVALID_REQUEST"):
        store.bench.write("task.set_status", wanted)


@pytest.mark.proves("okf-76")
def test_an_event_about_a_secret_is_told_by_no_repeat_of_its_ref_and_by_no_feed(store: Store) -> None:  # noqa: F811
    store.append("secret/merger", "block", action="merger talks", ref="run-1")
    again = store.append("projects/bakery", ref="run-1")
    assert (again["deduped"], again["topic"], again["phase"]) == (True, "projects/bakery", "step")
    store.append("projects/bakery", action="baked", ref="run-2")
    page = [EventRecord.of(event).model_dump() for event in events.after(store.bench.db, 0)]
    assert "merger" not in repr(page)
    told = [(each["entity_id"], each["details"].get("action")) for each in page if each["entity_type"] == "okf_topic"]
    assert told == [("hidden", None), ("projects/bakery", "baked")]


def test_requests_of_several_commits_have_one_acknowledgement_and_events_that_name_the_first(
    store: Store,  # noqa: F811
) -> None:
    bench = store.bench  # noqa: F811
    before = bench.meta().commit_seq
    done = store.set_status("done")
    plan = "rye forget\nwheat archive\ntask-oven forget"
    assert store.review(plan) == ["applied"] * 3
    assert done["commit_seq"] == before + 2, "what the ledger is told is part of it"
    began = bench.db.execute(
        "SELECT commit_seq - ?1, (payload ->> 'began') - ?1 FROM events WHERE commit_seq > ?1", (before,)
    )
    assert list(began) == [(1, None), (2, 1), (3, None), (4, 3), (5, 3)]
    store.assert_sound()
