"""A directory into the store: what changed there is delivered, what is gone is withdrawn, and nothing is sent for a
directory that is what was sent before (OKF contract §8.2 to §8.4).

It may be killed at any moment: what was not sent is found again, and the cursor of the source tells of a run that came
to its end.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from memoree.bundles import ledger_lines
from memoree.client.batches import BATCH_BYTES_MAX, BATCH_REQUESTS_MAX, Command, Door, Outcome
from memoree.errors import Code, MemoreeError, invalid, shown
from memoree.okf import bundle, indexing
from memoree.okf.bundle import File, Findings, Tiers
from memoree.okf.ids import SUFFIX, InvalidId, id_of, safe_id
from memoree.okf.node import INBOX, SECRET, Node, parse
from memoree.okf.plan import (
    Cursor,
    Decision,
    Listing,
    Stored,
    StoredEdge,
    digest_of,
    edges_of,
    may_have_edges,
    secret_digest,
)

SOURCE_KIND = "okf"
ITEM_KIND = "okf.node"
"""Of what is delivered: the store finds the kind in the file."""
NAME_PREFIX = "okf:"
LISTED_MAX = 100
"""Paths of one kind in a report."""
OF_ONE_FILE = frozenset((Code.INVALID_REQUEST, Code.INTEGRITY_ERROR, Code.CONTENT_TOO_LARGE, Code.NOT_FOUND))
"""Refusals of one command that say nothing of the others."""
FOREIGN_TIERS = frozenset((SECRET, INBOX))
"""What no store takes."""
GONE_REASON = "the file was deleted or moved"
HIDDEN_REASON = "the file became secret"
SOURCE_CHARS_MAX = 1024
"""Of a node's `source` in the provenance; longer ones stand in the file only."""

Progress = Callable[[int], None]
"""How many files were looked at."""
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """`bundle` names it, else the directory's name does where there is none yet. `overwrite` lets a file win over what
    was edited in the store, `allow_empty` withdraws everything when nothing of it is there."""

    bundle: str | None = None
    include_mirror: bool = False
    dry_run: bool = False
    overwrite: bool = False
    allow_empty: bool = False
    actor: str | None = None


@dataclass(slots=True)
class Report:
    """What an import found and did: counts, and paths with what is wrong with them."""

    bundle: str = ""
    files: int = 0
    created: int = 0
    revised: int = 0
    withdrawn: int = 0
    unchanged: int = 0
    secrets: int = 0
    relations: int = 0
    ledger_events: int = 0
    commands: int = 0
    newer_in_store: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether the store has everything that the directory has."""
        return not self.conflicts and not self.problems

    @property
    def has_changed_the_store(self) -> bool:
        return any((self.created, self.revised, self.withdrawn, self.relations, self.ledger_events))

    def to_json(self) -> dict[str, Any]:
        """Lists end early; their counts do not."""
        counts = {
            name: getattr(self, name)
            for name in (
                *("bundle", "files", "created", "revised", "withdrawn", "unchanged", "secrets", "relations"),
                *("ledger_events", "commands"),
            )
        }
        return {
            **counts,
            "newer_in_store_count": len(self.newer_in_store),
            "newer_in_store": self.newer_in_store[:LISTED_MAX],
            "conflict_count": len(self.conflicts),
            "conflicts": self.conflicts[:LISTED_MAX],
            "problem_count": len(self.problems),
            "problems": dict(list(self.problems.items())[:LISTED_MAX]),
            "notes": self.notes,
        }


def import_bundle(root: Path, door: Door, wishes: Wishes, progress: Progress = lambda _: None) -> Report:
    """Bring the store to what the directory holds. Raises `CONFIG_ERROR` for what is no directory and for one that has
    nothing of what was delivered, `INVALID_REQUEST` for another bundle than the project's, and what the store refuses
    the caller with."""
    bundle.require_bundle(root)
    return _Import(root, door, wishes, progress).run()


def stored_files(door: Door) -> tuple[Json | None, list[Stored]]:
    """The bundle of the store and its files, without their content."""
    source: Json | None = None
    files: list[Stored] = []
    after: dict[str, str] = {}
    while True:
        page = door.ask("okf.files", after)
        source = page.get("bundle")
        files += map(Stored.of, page["files"])
        if "next_after" not in page:
            return source, files
        after = {"after": page["next_after"]}


def stored_content(door: Door) -> Iterator[tuple[str, bytes]]:
    """Paths and bytes of every file of the store's bundle."""
    after: dict[str, Any] = {}
    while True:
        page = door.ask("okf.files", {**after, "with_content": True})
        yield from ((file["path"], base64.b64decode(file["data"])) for file in page["files"])
        if "next_after" not in page:
            return
        after = {"after": page["next_after"]}


@dataclass(frozen=True, slots=True)
class _Delivery:
    """A command, the file it is about, and its digest; `None` for one that is withdrawn."""

    command: Command
    path: str
    sha256: str | None
    edges: tuple[StoredEdge, ...] = ()
    size: int = 0


class _Import:
    """One run."""

    def __init__(self, root: Path, door: Door, wishes: Wishes, progress: Progress) -> None:
        self._root, self._door, self._wishes, self._progress = root, door, wishes, progress
        self._report = Report()
        self._tiers = Tiers(mirror=wishes.include_mirror)
        self._findings = Findings()
        self._pending: list[_Delivery] = []
        self._pending_bytes = 0
        self._now: dict[str, str] = {}
        """Paths and digests as the store has them, kept up to date."""
        self._made: set[str] = set()
        """Ids of nodes that got an artifact of their own in this run."""
        self._secret_ids: set[str] = set()
        self._edges: list[StoredEdge] = []
        """Of files that were delivered in this run."""
        self._source_id = ""

    def run(self) -> Report:
        source, files = stored_files(self._door)
        listing = Listing(files)
        self._now = {path: stored.sha256 for path, stored in listing.by_path.items()}
        cursor = Cursor.read(None if source is None else source.get("cursor"))
        was_complete = cursor is not None and cursor.listing == listing.digest()
        source = self._registered(source)
        seen = self._deliver(listing)
        self._withdraw(listing, seen)
        self._flush()
        self._relate(was_complete)
        reached = self._tell_ledger(cursor)
        self._checkpoint(source, reached)
        self._report.problems |= dict.fromkeys(self._findings.escaping, "it is a link that leaves the bundle")
        self._report.problems |= self._findings.unreadable
        return self._report

    # --- the source -------------------------------------------------------------------------------------------------

    def _registered(self, source: Json | None) -> Json | None:
        """The project's bundle, made where there is none. `None` in a rehearsal without one."""
        named = self._wishes.bundle
        if source is None and not self._wishes.dry_run:
            name = NAME_PREFIX + (named or self._root.resolve().name or "bundle")
            locator = self._root.resolve().as_uri()
            wanted = {"name": name, "kind": SOURCE_KIND, "locator": locator, **self._actor()}
            (outcome,) = self._told([Command("source.register", wanted)])
            if isinstance(outcome, MemoreeError):
                source = stored_files(self._door)[0]  # another import may have been first
                if source is None:
                    raise outcome
            else:
                source = outcome
        if source is None:
            self._report.bundle = NAME_PREFIX + (named or self._root.resolve().name)
            return None
        if named is not None and source["name"] != NAME_PREFIX + named:
            invalid(f"--bundle: the project has the bundle {shown(source['name'])}; another one wants another project")
        self._source_id, self._report.bundle = source["source_id"], source["name"]
        return source

    def _actor(self) -> dict[str, str]:
        return {} if self._wishes.actor is None else {"actor": self._wishes.actor}

    # --- files ------------------------------------------------------------------------------------------------------

    def _deliver(self, listing: Listing) -> set[str]:
        """Send what is new or changed; the paths that the directory has and that may be in a store."""
        seen: set[str] = set()
        for file in bundle.files(self._root, self._tiers, self._findings):
            self._report.files += 1
            sha256 = hashlib.sha256(file.data).hexdigest()
            if self._handle(file, sha256, listing):
                seen.add(file.path)
            self._progress(self._report.files)
        return seen

    def _handle(self, file: File, sha256: str, listing: Listing) -> bool:
        """Whether the file may be in a store."""
        decision = listing.judged(file.path, sha256)
        if decision is Decision.UNCHANGED:
            self._report.unchanged += 1
            return True
        if not is_id(file.id):
            self._report.problems[file.path] = "its name is not that of a node"
            return True
        node = parse(file.id, file.data)
        if node.is_secret or indexing.tier_of(node) in FOREIGN_TIERS:
            self._report.secrets += 1
            self._secret_ids.add(file.id)
            if (doubt := node.doubt) is not None:
                self._report.problems[file.path] = f"{doubt}; it stays outside as a secret would"
            if (stored := listing.by_path.get(file.path)) is None:
                return True
            if stored.is_edited and stored.base is None:  # it was made in the store, and is no version of this file
                self._report.conflicts.append(file.path)
            else:
                self._add(self._withdrawal(file.path, HIDDEN_REASON))
            return True
        if decision is Decision.NEWER_IN_STORE and not self._wishes.overwrite:
            self._report.newer_in_store.append(file.path)
        elif decision is Decision.CONFLICT and not self._wishes.overwrite:
            self._report.conflicts.append(file.path)
        else:
            self._add(self._ingestion(file, sha256, node))
        return True

    def _ingestion(self, file: File, sha256: str, node: Node) -> _Delivery:
        told = node.entries("source")
        named = {"okf_source": told} if told and len(orjson.dumps(told)) <= SOURCE_CHARS_MAX else {}
        wanted: dict[str, Any] = {
            "source_id": self._source_id,
            "external_id": file.path,
            "external_revision": sha256,
            "kind": ITEM_KIND,
            "title": file.path,
            "media_type": "text/markdown; charset=utf-8",
            "content": _content(file.data),
            "provenance": {
                "source": SOURCE_KIND,
                "bundle": self._report.bundle.removeprefix(NAME_PREFIX),
                "path": file.path,
                "type": node.native_type[:SOURCE_CHARS_MAX],
                "visibility": node.visibility[:SOURCE_CHARS_MAX],
                "sha256": sha256,
                **named,
            },
            **self._actor(),
        }
        edges = tuple(edges_of(node)) if may_have_edges(file.data) else ()
        return _Delivery(Command("source.ingest", wanted), file.path, sha256, edges, len(file.data))

    def _withdraw(self, listing: Listing, seen: set[str]) -> None:
        """What is really gone: nothing that could not be looked at."""
        gone = [
            stored.path
            for stored in listing.gone(seen)
            if not bundle.is_out_of_sight(stored.path, self._tiers, self._findings)
        ]
        delivered = sum(not stored.is_the_stores_own for stored in listing.by_path.values())
        if gone and len(gone) == delivered and not self._wishes.allow_empty:
            raise MemoreeError(
                Code.CONFIG_ERROR,
                f"{self._root} has none of the {delivered} files that the bundle {shown(self._report.bundle)} has; is "
                "it the right directory? If they are really gone, say --allow-empty to withdraw them",
            )
        for path in gone:
            self._add(self._withdrawal(path, GONE_REASON))

    def _withdrawal(self, path: str, reason: str) -> _Delivery:
        wanted = {"source_id": self._source_id, "external_id": path, "reason": reason, **self._actor()}
        return _Delivery(Command("source.withdraw", wanted), path, None)

    # --- sending ----------------------------------------------------------------------------------------------------

    def _add(self, delivery: _Delivery) -> None:
        self._pending.append(delivery)
        self._pending_bytes += delivery.size
        if len(self._pending) >= BATCH_REQUESTS_MAX or self._pending_bytes >= BATCH_BYTES_MAX // 2:
            self._flush()

    def _flush(self) -> None:
        batch, self._pending, self._pending_bytes = self._pending, [], 0
        for delivery, outcome in zip(batch, self._told([each.command for each in batch]), strict=True):
            self._take(delivery, outcome)

    def _take(self, delivery: _Delivery, outcome: Outcome) -> None:
        if isinstance(outcome, MemoreeError):
            self._report.problems[delivery.path] = _refused(outcome)
            return
        if delivery.sha256 is None:
            self._report.withdrawn += 1
            self._now.pop(delivery.path, None)
            return
        if outcome.get("created"):
            self._report.created += 1
            self._made.add(delivery.path.removesuffix(SUFFIX))
        else:
            self._report.revised += 1
        self._now[delivery.path] = delivery.sha256
        self._edges += delivery.edges

    def _told(self, commands: list[Command]) -> list[Outcome]:
        """Send them; a rehearsal takes everything for done."""
        self._report.commands += len(commands)
        if self._wishes.dry_run:
            known = self._now
            return [{"created": command.input.get("external_id") not in known} for command in commands]
        return self._door.tell(commands) if commands else []

    # --- edges ------------------------------------------------------------------------------------------------------

    def _relate(self, was_complete: bool) -> None:
        """Keep the edges of what was delivered; of every file where some may be missing, or lead to new artifacts."""
        wanted = {edge.ends: edge for edge in self._edges}
        if self._report.unchanged and (not was_complete or self._made):
            wanted = {edge.ends: edge for edge in self._every_edge() if not was_complete or self._is_new(edge)} | wanted
        ids = {path.removesuffix(SUFFIX) for path in self._now}
        edges = [edge for edge in wanted.values() if edge.source in ids and edge.target in ids]
        for first in range(0, len(edges), BATCH_REQUESTS_MAX):
            batch = edges[first : first + BATCH_REQUESTS_MAX]
            for edge, outcome in zip(
                batch, self._told([Command("okf.relate", edge.to_input()) for edge in batch]), strict=True
            ):
                if isinstance(outcome, MemoreeError):
                    self._report.problems[f"{edge.source} {edge.relation} {edge.target}"] = _refused(outcome)
                else:
                    self._report.relations += bool(outcome.get("created"))

    def _is_new(self, edge: StoredEdge) -> bool:
        return edge.source in self._made or edge.target in self._made

    def _every_edge(self) -> Iterator[StoredEdge]:
        for file in bundle.files(self._root, self._tiers):
            if file.path in self._now and may_have_edges(file.data):
                yield from edges_of(parse(file.id, file.data))

    # --- ledger -----------------------------------------------------------------------------------------------------

    def _tell_ledger(self, cursor: Cursor | None) -> tuple[int, str]:
        """Append what the ledger has more than last time; how far it was read."""
        unread = ledger_lines.unread(self._root, cursor)
        events = [event for event in unread.events if not self._is_about_a_secret(event["topic"])]
        refused: list[str] = []
        for first in range(0, len(events), BATCH_REQUESTS_MAX):
            batch = events[first : first + BATCH_REQUESTS_MAX]
            for outcome in self._told([Command("ledger.append", event) for event in batch]):
                if not isinstance(outcome, MemoreeError):
                    self._report.ledger_events += not outcome.get("deduped", False)
                elif outcome.code is Code.FORBIDDEN:
                    self._report.notes.append(f"the ledger was left out: {outcome.message}")
                    return (0, "") if cursor is None else (cursor.ledger_bytes, cursor.ledger_digest)
                else:
                    refused.append(_refused(outcome))
        if refused:
            self._report.notes.append(f"{len(refused)} events of the ledger were refused, the first: {refused[0]}")
        return unread.reached

    def _is_about_a_secret(self, topic: str) -> bool:
        """By its folders, or as the walk found it."""
        node_id = id_of(topic.strip())
        return node_id in self._secret_ids or SECRET in (folder.lower() for folder in node_id.split("/")[:-1])

    # --- the end ----------------------------------------------------------------------------------------------------

    def _checkpoint(self, source: Json | None, reached: tuple[int, str]) -> None:
        """Say how the source is, unless it is known."""
        if source is None or self._wishes.dry_run:
            return
        secrets = frozenset(map(secret_digest, self._secret_ids))
        cursor = Cursor(digest_of(self._now.items()), *reached, secrets).written()
        is_well = self._report.is_complete and not self._findings.unreadable and not self._findings.escaping
        health = "healthy" if is_well else "degraded"
        if not self._report.has_changed_the_store and source.get("cursor") == cursor and source.get("health") == health:
            return
        wanted: dict[str, Any] = {"source_id": self._source_id, "health": health, "cursor": cursor, **self._actor()}
        if not is_well:
            wanted["message"] = _summary(self._report, self._findings)
        (outcome,) = self._told([Command("source.checkpoint", wanted)])
        if isinstance(outcome, MemoreeError):
            raise outcome


def is_id(node_id: str) -> bool:
    """Whether a file's path without its ending is an id as it stands."""
    try:
        return safe_id(f"{node_id}{SUFFIX}") == node_id
    except InvalidId:
        return False


def _content(data: bytes) -> dict[str, str]:
    """As text where that brings every byte back."""
    try:
        return {"type": "text", "data": data.decode("utf-8")}
    except UnicodeDecodeError:
        return {"type": "base64", "data": base64.b64encode(data).decode("ascii")}


def _refused(error: MemoreeError) -> str:
    """What is wrong with one file. Raises what is wrong with all of them."""
    if error.code not in OF_ONE_FILE:
        raise error
    return error.message


def _summary(report: Report, findings: Findings) -> str:
    counts: Iterable[tuple[int, str]] = (
        (len(report.conflicts), "conflicts"),
        (len(report.problems), "refused"),
        (len(findings.unreadable), "unreadable"),
        (len(findings.escaping), "links out of the bundle"),
    )
    return ", ".join(f"{count} {what}" for count, what in counts if count)
