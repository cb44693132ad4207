"""Nodes of an OKF bundle in the store (OKF contract §8.3, §8.4, decision 0021).

A project has at most one bundle: a source of kind `okf`. A node is an item of it, its path the external id and the
SHA-256 of its bytes the external revision; what stands in the bytes is kept beside as rows that are searched.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any, NoReturn

import orjson

from memoree.database import artifacts, okf
from memoree.database import sources as rows
from memoree.database.artifacts import MIRROR_KIND, RESERVED_KIND, Artifact, Revision
from memoree.database.okf import NodeRow
from memoree.database.sources import Item, Source
from memoree.errors import Code, MemoreeError, invalid, not_found, shown
from memoree.limits import KIND_BYTES_MAX, OKF_NODE_BYTES_MAX
from memoree.okf import ids, indexing
from memoree.okf.bundle import SKIPPED
from memoree.okf.ids import SUFFIX, InvalidId, path_of, safe_id
from memoree.okf.node import Node, parse
from memoree.operations.artifacts import Draft, add_revision, create, read_body
from memoree.operations.call import Call
from memoree.operations.content import StagedContent
from memoree.operations.view import Transaction, View
from memoree.owner import Owner

BUNDLE_KIND = "okf"
"""Of sources that are bundles."""
MEDIA_TYPE = "text/markdown; charset=utf-8"
NODE_KIND_PREFIX = "okf."
UNTYPED = "node"
INVALID_ID, AMBIGUOUS = "INVALID_ID", "AMBIGUOUS"
"""`details.reason` of refusals that the bundle's own doors tell by these names."""
TITLE_BYTES_MAX = 1024


# --- bundles ----------------------------------------------------------------------------------------------------------


def bundle_of(view: View, owner: Owner) -> Source | None:
    """The bundle of a project, if it has one."""
    found = rows.of_kind(view.db, owner, BUNDLE_KIND)
    return found[0] if found else None


def require_bundle(view: View, call: Call[Any]) -> Source:
    """Raises `NOT_FOUND` for a project without one."""
    bundle = bundle_of(view, call.owner)
    if bundle is None:
        not_found("the bundle of project", call.ambient.project_id)
    return bundle


def ensure_bundle(tx: Transaction, owner: Owner) -> Source:
    """The project's bundle, made by this commit where there is none yet."""
    if (bundle := bundle_of(tx, owner)) is not None:
        return bundle
    bundle = Source(
        source_id=tx.new_id("src"),
        name=f"{BUNDLE_KIND}:{owner.project_id}",
        kind=BUNDLE_KIND,
        locator=None,
        metadata="{}",
        owner=replace(owner, task_id=None, component=None),
        health="healthy",
        health_message=None,
        cursor=None,
        last_observed_at=None,
        created_at=tx.now,
        updated_at=tx.now,
        commit_seq=tx.commit_seq,
        row_id=tx.commit_seq,
    )
    rows.insert(tx.db, bundle)
    tx.sum.add(rows.entry(bundle))
    return bundle


def refuse_second_bundle(tx: Transaction, owner: Owner) -> None:
    """Raises `INVALID_REQUEST`: ids of nodes name files of the one bundle of a project."""
    if owner.task_id is not None:
        invalid("kind: a bundle belongs to a project, not to a task; register it without one")
    if (bundle := bundle_of(tx, owner)) is not None:
        invalid(f"kind: the project has a bundle already, source {bundle.source_id}; another one wants another project")


# --- reading ----------------------------------------------------------------------------------------------------------


def named(view: View, bundle: Source, given: str) -> NodeRow:
    """The node that a caller means by an id, a path, or the end of one. Raises `INVALID_REQUEST` with the reason
    `INVALID_ID` or `AMBIGUOUS`, and `NOT_FOUND`."""
    wanted = caller_id(given)
    found = okf.by_id(view.db, bundle.row_id, wanted)
    if found is not None:
        return found
    candidates = ids.matching(wanted, okf.ids(view.db, bundle.row_id))
    if len(candidates) > 1:
        told = ", ".join(path_of(each) for each in candidates[:10])
        _refuse(AMBIGUOUS, f"id: {shown(given)} may be {told}; write more of its path", candidates=candidates[:10])
    if not candidates:
        not_found("node", given)
    found = okf.by_id(view.db, bundle.row_id, candidates[0])
    assert found is not None, "its id was listed just now"
    return found


def caller_id(given: str) -> str:
    """Raises `INVALID_REQUEST` with the reason `INVALID_ID`."""
    try:
        return safe_id(given)
    except InvalidId as error:
        _refuse(INVALID_ID, f"id: {shown(given)}: {error}")


def node_bytes(view: View, row: NodeRow) -> bytes:
    """The file, byte for byte. Raises what reading a revision raises."""
    return read_body(view, artifacts.revision_by_row(view.db, row.revision_row))


def item_of(view: View, bundle: Source, row: NodeRow) -> Item:
    item = rows.find_item(view.db, bundle, f"{row.node_id}{SUFFIX}")
    assert item is not None, "every node is an item of its bundle"
    return item


# --- writing ----------------------------------------------------------------------------------------------------------


def parsed(external_id: str, data: bytes) -> Node:
    """The node in a file. Raises `INVALID_REQUEST` for a path that is none, for a secret, and for too many bytes."""
    if not external_id.endswith(SUFFIX):
        _refuse(INVALID_ID, f"external_id: {shown(external_id)} is not the path of a {SUFFIX} file")
    node_id = external_id.removesuffix(SUFFIX)
    if caller_id(external_id) != node_id:
        _refuse(INVALID_ID, f"external_id: {shown(external_id)} is written {node_id}{SUFFIX} in a bundle")
    passed_over = [name for name in external_id.split("/") if name.startswith((".", "_")) or name in SKIPPED]
    if passed_over:
        invalid(f"external_id: /{external_id} would not be found: {shown(passed_over[0])} is passed over in bundles")
    if len(data) > OKF_NODE_BYTES_MAX:
        invalid(f"content: a node has at most {OKF_NODE_BYTES_MAX} bytes, this one {len(data)}")
    node = parse(node_id, data)
    if indexing.tier_of(node) in (okf.SECRET, okf.INBOX) or node.is_secret:
        why = f" ({node.problem})" if node.problem else ""
        invalid(f"content: secrets and raw inbox files are not taken into the store{why}")
    return node


def kind_of(node: Node) -> str:
    """The kind of a node's artifact."""
    tier = indexing.tier_of(node)
    if tier == okf.MIRROR:
        return MIRROR_KIND
    if tier == okf.RESERVED:
        return RESERVED_KIND
    kind = f"{NODE_KIND_PREFIX}{node.native_type.lower() or UNTYPED}"
    return (
        kind
        if len(kind.encode()) <= KIND_BYTES_MAX and kind not in artifacts.UNINDEXED_KINDS
        else NODE_KIND_PREFIX + UNTYPED
    )


def title_of(node: Node) -> str:
    return node.title.encode()[:TITLE_BYTES_MAX].decode(errors="ignore").strip() or path_of(node.id)


def index(tx: Transaction, bundle: Source, node: Node, artifact: Artifact, revision: Revision) -> None:
    """Let a node be found as this revision says, and no longer as the one before."""
    okf.delete(tx.db, artifact.row_id)
    indexing.index(tx.db, node, row_id=artifact.row_id, bundle=bundle.row_id, revision_row=revision.row_id)


def create_node(
    tx: Transaction, bundle: Source, node_id: str, content: StagedContent, *, actor: str | None, origin: dict[str, Any]
) -> tuple[Artifact, Revision]:
    """A new node of the bundle; the caller records the event. Raises `INVALID_REQUEST` where the path is taken, and as
    `parsed`."""
    assert content.data is not None, "bytes of a node are at hand where it is made"
    node = parsed(f"{node_id}{SUFFIX}", content.data)
    before = rows.find_item(tx.db, bundle, f"{node_id}{SUFFIX}")
    if before is not None and before.state == "live":
        invalid(f"path: {path_of(node_id)} exists; write a node that supersedes it")
    draft = Draft(title_of(node), MEDIA_TYPE, content, origin, actor)
    artifact, revision = create(tx, bundle.owner, kind_of(node), draft)
    item = _item(tx, node_id, content, artifact, revision, row_id=tx.commit_seq if before is None else before.row_id)
    if before is None:
        rows.insert_item(tx.db, bundle, item)
        tx.sum.add(rows.item_entry(bundle, item))
    else:
        _update_item(tx, bundle, before, item)
    _touch(tx, bundle)
    index(tx, bundle, node, artifact, revision)
    return artifact, revision


def revise_node(
    tx: Transaction, bundle: Source, row: NodeRow, data: bytes, *, actor: str | None, origin: dict[str, Any]
) -> Revision:
    """New bytes of a node whose type stays; the caller records the event. Raises `INVALID_REQUEST` as `parsed`, and
    where a writer would have to store a blob: such a file is edited where it comes from."""
    content = StagedContent.of(data)
    if not content.inline:
        invalid(f"{path_of(row.node_id)} has {len(data)} bytes; edit the file and import it again")
    node = parsed(f"{row.node_id}{SUFFIX}", data)
    item = item_of(tx, bundle, row)
    artifact = artifacts.by_row(tx.db, row.row_id)
    draft = Draft(title_of(node), MEDIA_TYPE, content, origin, actor)
    revision = add_revision(tx, artifact, artifacts.head_revision(tx.db, artifact), draft)
    _update_item(tx, bundle, item, _item(tx, row.node_id, content, artifact, revision, row_id=item.row_id))
    index(tx, bundle, node, artifact, revision)
    return revision


def move_node(tx: Transaction, bundle: Source, row: NodeRow, node_id: str) -> None:
    """The same artifact under another path; the caller records the event, of the item's new name, with the old one as
    `renamed_from`. Raises `INVALID_REQUEST` where the path is taken."""
    wanted = f"{caller_id(node_id)}{SUFFIX}"
    if rows.find_item(tx.db, bundle, wanted) is not None:
        invalid(f"path: /{wanted} exists, or did")
    item = item_of(tx, bundle, row)
    moved = replace(rows.rename_item(tx.db, item, wanted), updated_at=tx.now, commit_seq=tx.commit_seq)
    rows.update_item(tx.db, moved)
    tx.sum.replace(rows.item_entry(bundle, item), rows.item_entry(bundle, moved))
    _touch(tx, bundle)
    artifact = artifacts.by_row(tx.db, row.row_id)
    index(tx, bundle, parse(node_id, node_bytes(tx, row)), artifact, artifacts.head_revision(tx.db, artifact))


def _item(
    tx: Transaction, node_id: str, content: StagedContent, artifact: Artifact, revision: Revision, *, row_id: int
) -> Item:
    assert content.data is not None
    return Item(
        external_id=f"{node_id}{SUFFIX}",
        external_revision=external_revision(content.data),
        payload_digest=content.digest,
        artifact_id=artifact.artifact_id,
        artifact_row=artifact.row_id,
        artifact_revision_id=revision.revision_id,
        artifact_revision_row=revision.row_id,
        state="live",
        observed_at=tx.now,
        withdrawn_at=None,
        withdrawal_reason=None,
        updated_at=tx.now,
        commit_seq=tx.commit_seq,
        row_id=row_id,
    )


def external_revision(data: bytes) -> str:
    """SHA-256 of a file, in hex (§8.3)."""
    return hashlib.sha256(data).hexdigest()


def _update_item(tx: Transaction, bundle: Source, item: Item, changed: Item) -> None:
    rows.update_item(tx.db, changed)
    tx.sum.replace(rows.item_entry(bundle, item), rows.item_entry(bundle, changed))
    _touch(tx, bundle)


def _touch(tx: Transaction, bundle: Source) -> None:
    """A source was last changed when its items were: once in a commit, however many of them."""
    current = bundle_of(tx, bundle.owner)
    assert current is not None, "the bundle is there while its nodes change"
    if current.commit_seq == tx.commit_seq:
        return
    touched = replace(current, updated_at=tx.now, commit_seq=tx.commit_seq)
    rows.update(tx.db, touched)
    tx.sum.replace(rows.entry(current), rows.entry(touched))


def _refuse(reason: str, message: str, **details: Any) -> NoReturn:
    raise MemoreeError(Code.INVALID_REQUEST, message, details={"reason": reason, **details})


def provenance(revision: Revision) -> dict[str, Any]:
    value = orjson.loads(revision.provenance)
    return value if isinstance(value, dict) else {}
