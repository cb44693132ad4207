"""What the reference program answers over files, the store answers over its copy of them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memoree.errors import Code, MemoreeError
from memoree.okf import dates, graph
from memoree.okf.dialect import Dialect
from memoree.okf.validate import validate

from .golden import BUNDLE, as_of_ms, expected, needs_golden, vectors
from .stored import Store, node, opened, write


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path / "data") as found:
        yield found


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """The golden bundle with its mirror and its ledger."""
    with opened(tmp_path_factory.mktemp("golden") / "data") as found:
        found.imported(BUNDLE, include_mirror=True)
        yield found


def recalled(store: Store, vector: dict[str, Any], **more: Any) -> dict[str, Any]:
    given = {"query": vector["query"], "k": vector["k"], "as_of": dates.iso(as_of_ms())}
    given |= {"include_mirror": vector.get("includeMirror", False)}
    given |= {"include_superseded": vector.get("includeSuperseded", False)}
    if "excludeSource" in vector:
        given["exclude_source"] = vector["excludeSource"]
    found: dict[str, Any] = store.ask("okf.search", **given, **more)
    return found


@needs_golden
@pytest.mark.proves("okf-37")
@pytest.mark.parametrize(
    "vector", [each for each in vectors("recall") if each["query"].strip()], ids=lambda vector: vector["query"]
)
def test_the_stored_copy_recalls_what_the_files_do(golden: Store, vector: dict[str, Any]) -> None:
    found = recalled(golden, vector)["results"]
    told = [(hit["id"], hit["type"], hit["title"], hit["hygiene"] or "") for hit in found]
    assert told == [(hit["id"], hit["type"], hit["title"], hit["label"]) for hit in vector["hits"]]
    for hit, wanted in zip(found, vector["hits"], strict=True):
        assert hit["score"] == pytest.approx(wanted["score"], abs=5.1e-5)  # the payload has four decimals


@needs_golden
@pytest.mark.proves("okf-60")
@pytest.mark.parametrize("vector", vectors("expand"), ids=lambda vector: f"{vector['query']} {vector['budget']}")
def test_the_stored_copy_expands_as_the_files_do(golden: Store, vector: dict[str, Any]) -> None:
    found = recalled(golden, vector, expand=True, expand_budget=vector["budget"])["expanded"]
    told = [(each["id"], each["kind"], each["expandedFrom"]) for each in found]
    assert told == [(each["id"], each["kind"], each["expandedFrom"]) for each in vector["expanded"]]


@needs_golden
@pytest.mark.proves("okf-20")
def test_the_stored_copy_is_judged_as_the_files_are(golden: Store) -> None:
    assert golden.ask("okf.validate") == validate(BUNDLE, Dialect.SERVICE).to_json()


@needs_golden
@pytest.mark.proves("okf-33")
def test_the_stored_copy_has_the_links_of_the_files(golden: Store) -> None:
    found = golden.ask("okf.links")
    assert found == graph.of_bundle(BUNDLE, Dialect.SERVICE).to_json()
    assert len(found["nodes"]) == 28
    assert sorted(map(sorted, (edge.items() for edge in found["edges"]))) == sorted(
        map(sorted, (edge.items() for edge in expected()["links"]["edges"]))
    )


def test_folders_stand_among_files_as_a_walk_finds_them(empty: Store, tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        path: node(path, relations=f"\n  oddly: /{path}\n  about: /nowhere.md")
        for path in ("a/x.md", "a-b/x.md", "a.md", "a0.md", "Z/x.md")
    }
    root = write(tmp_path / "bundle", files)
    empty.imported(root)
    assert empty.ask("okf.validate") == validate(root, Dialect.SERVICE).to_json()
    assert empty.ask("okf.links") == graph.of_bundle(root, Dialect.SERVICE).to_json()


def test_no_front_matter_and_an_empty_one_are_told_apart(empty: Store, tmp_path: Path) -> None:
    root = write(tmp_path / "bundle", {"a.md": "no front matter\n", "b.md": "---\n---\nempty\n"})
    empty.imported(root)
    found = empty.ask("okf.validate")
    assert [finding["rule"] for finding in found["findings"]] == ["V1", "V2"]
    assert found == validate(root, Dialect.SERVICE).to_json()


def test_a_project_without_a_bundle_has_no_files_and_nothing_wrong(empty: Store) -> None:
    assert empty.ask("okf.files") == {"files": []}
    assert empty.ask("okf.validate")["concepts"] == 0
    assert empty.ask("okf.links")["nodes"] == []


@needs_golden
def test_pages_of_files_come_to_all_of_them_once(golden: Store) -> None:
    paths: list[str] = []
    after: dict[str, Any] = {}
    while True:
        page = golden.ask("okf.files", limit=5, with_content=True, **after)
        assert len(page["files"]) <= 5
        for file in page["files"]:
            paths.append(file["path"])
            assert base64.b64decode(file["data"]) == (BUNDLE / file["path"]).read_bytes()
        if "next_after" not in page:
            break
        after = {"after": page["next_after"]}
    assert paths == sorted(golden.listing(), key=lambda path: path.removesuffix(".md"))
    assert len(paths) == 32


def test_a_page_with_content_ends_before_a_response_would_be_too_large(empty: Store, tmp_path: Path) -> None:
    large = "x " * 1_000_000
    root = write(tmp_path / "bundle", {f"concepts/n{at}.md": node(f"N{at}", large) for at in range(6)})
    empty.imported(root)
    assert len(empty.ask("okf.files", with_content=True)["files"]) == 4
    assert len(empty.ask("okf.files")["files"]) == 6
    assert sorted(empty.files()) == [f"concepts/n{at}.md" for at in range(6)]


@pytest.mark.parametrize("end", ["concepts/ghost", "x", "../a", "concepts/a"])
def test_an_edge_joins_two_nodes_that_exist(empty: Store, tmp_path: Path, end: str) -> None:
    empty.imported(write(tmp_path / "bundle", {"concepts/a.md": node("A"), "deep/x.md": node("X")}))
    edge = {"source": "concepts/a", "relation": "supersedes", "target": end, "key": "supersedes", "kind": "supersedes"}
    with pytest.raises(MemoreeError) as refused:
        empty.tell("okf.relate", **edge)
    assert refused.value.code in (Code.NOT_FOUND, Code.INVALID_REQUEST)
    assert empty.relations() == []


def test_an_edge_that_is_there_stays_as_it_is(empty: Store, tmp_path: Path) -> None:
    empty.imported(write(tmp_path / "bundle", {"concepts/a.md": node("A"), "concepts/b.md": node("B")}))
    edge = {"source": "concepts/b", "relation": "derived_from", "target": "concepts/a", "kind": "informs"}
    first = empty.tell("okf.relate", **edge, key="informs")
    seq = empty.commit_seq
    again = empty.tell("okf.relate", **edge, key="led_to")
    assert (first["created"], again["created"]) == (True, False)
    assert again["metadata"] == {"okf_key": "informs", "okf_kind": "informs"}
    assert empty.commit_seq == seq
    listed = empty.ask("relation.list", entity_type="artifact", entity_id=first["source_id"])
    assert [each["relation_id"] for each in listed["relations"]] == [first["relation_id"]]
