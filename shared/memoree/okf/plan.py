"""What an import of a directory has to say to the store: by the digests of both sides, and what became of the files in
the store meanwhile (OKF contract §8.3, §8.4)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, Self

from memoree.okf.ids import id_of
from memoree.okf.node import Node
from memoree.okf.relations import SUPERSEDES, kind_of, resolved

DERIVING_KIND = "informs"
"""The kind of edges that say what a node comes from."""
Relation = Literal["supersedes", "derived_from"]
DERIVED_FROM: Relation = "derived_from"
REPLACES: Relation = "supersedes"
EDGE_WORDS = (b"supersede", *(key.encode() for key in ("informs", "led_to", "decided", "spawned_by")))
"""Of which a file has one that has edges of these kinds, whatever the case."""
CURSOR_FORM = "okf-1"
DIGEST_HEX_CHARS = 32
SECRETS_MAX = 1000
"""Digests of ids in a cursor, which has 64 KiB."""


class Decision(Enum):
    """What is done with a file, by what the store has under its path."""

    NEW = "new"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    NEWER_IN_STORE = "newer in the store"
    """The file is as it was when somebody edited or moved it in the store."""
    CONFLICT = "conflict"
    """The file and the store's copy were both changed."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A file as `okf.files` tells of it."""

    path: str
    sha256: str
    is_edited: bool
    base: str | None
    moved_from: str | None

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Self:
        return cls(told["path"], told["sha256"], told["edited"], told.get("base"), told.get("moved_from"))

    @property
    def is_the_stores_own(self) -> bool:
        """Whether it is there, or there, for what was done in the store: nobody may take it for a deleted file."""
        return self.is_edited or self.moved_from is not None


class Listing:
    """What the store has of a bundle."""

    def __init__(self, files: Iterable[Stored]) -> None:
        self.by_path = {file.path: file for file in files}
        self._moved = {file.moved_from: file for file in self.by_path.values() if file.moved_from is not None}

    def judged(self, path: str, sha256: str) -> Decision:
        """What is done with a file of the directory."""
        stored = self.by_path.get(path)
        if stored is None:
            moved = self._moved.get(path)
            if moved is None:
                return Decision.NEW
            return Decision.NEWER_IN_STORE if sha256 in (moved.sha256, moved.base) else Decision.CONFLICT
        if stored.sha256 == sha256:
            return Decision.UNCHANGED
        if not stored.is_edited:
            return Decision.CHANGED
        return Decision.NEWER_IN_STORE if stored.base == sha256 else Decision.CONFLICT

    def gone(self, seen: Iterable[str]) -> Iterator[Stored]:
        """What the directory has no more, the store's own left out."""
        there = set(seen)
        return (file for path, file in self.by_path.items() if path not in there and not file.is_the_stores_own)

    def digest(self) -> str:
        """Of what the store has, as a cursor keeps it."""
        return digest_of((file.path, file.sha256) for file in self.by_path.values())


def digest_of(files: Iterable[tuple[str, str]]) -> str:
    """Of paths with the digests of their bytes, whatever their order."""
    joined = "".join(f"{sha256} {path}\n" for path, sha256 in sorted(files))
    return hashlib.sha256(joined.encode()).hexdigest()[:DIGEST_HEX_CHARS]


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far an import came that came to its end: the digest of what the store had then, and how many bytes of the
    ledger it had read, with their digest. `secrets` are digests of the ids of nodes that stayed outside, by which the
    store knows what not to tell of without knowing it."""

    listing: str
    ledger_bytes: int = 0
    ledger_digest: str = ""
    secrets: frozenset[str] = frozenset()

    def written(self) -> str:
        secrets = ",".join(sorted(self.secrets)[:SECRETS_MAX])
        return f"{CURSOR_FORM}:{self.listing}:{self.ledger_bytes}:{self.ledger_digest}:{secrets}"

    @classmethod
    def read(cls, text: str | None) -> Cursor | None:
        """`None` for what another program wrote."""
        parts = (text or "").split(":")
        if len(parts) != 5 or parts[0] != CURSOR_FORM or not parts[2].isdecimal():
            return None
        return cls(parts[1], int(parts[2]), parts[3], frozenset(filter(None, parts[4].split(","))))


def secret_digest(node_id: str) -> str:
    """Of the id of a node, in whatever case."""
    return hashlib.sha256(node_id.casefold().encode(errors="surrogatepass")).hexdigest()[:DIGEST_HEX_CHARS]


# --- edges ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredEdge:
    """An edge that the store keeps between artifacts; ids of nodes. `key` is what a file calls it."""

    source: str
    relation: Relation
    target: str
    key: str
    kind: str

    def to_input(self) -> dict[str, str]:
        return {
            "source": self.source,
            "relation": self.relation,
            "target": self.target,
            "key": self.key,
            "kind": self.kind,
        }

    @property
    def ends(self) -> tuple[str, str, str]:
        """What makes it the same edge."""
        return (self.source, self.relation, self.target)


def may_have_edges(data: bytes) -> bool:
    """Whether it is worth parsing a file for them."""
    lowered = data.lower()
    return any(word in lowered for word in EDGE_WORDS)


def edges_of(node: Node) -> Iterator[StoredEdge]:
    """That a node replaces others or comes from them, and they from it (§8.4). All else is told by its revision."""
    if node.is_reserved:
        return
    for target in node.supersedes:
        yield from _edge(node.id, REPLACES, target, SUPERSEDES, SUPERSEDES)
    for target in node.superseded_by:
        yield from _edge(node.id, REPLACES, target, SUPERSEDES, SUPERSEDES, is_reversed=True)
    for key, target in node.relations:
        kind = kind_of(key)
        if kind.key_class == "edge" and kind.kind == DERIVING_KIND:
            yield from _edge(node.id, DERIVED_FROM, target, key.strip(), kind.kind, is_reversed=not kind.is_reversed)


def _edge(
    node_id: str,
    relation: Relation,
    target: str,
    key: str,
    kind: str,
    *,
    is_reversed: bool = False,
) -> Iterator[StoredEdge]:
    """None to the node itself, and none out of the bundle."""
    path = resolved(target)
    other = None if path is None else id_of(path)
    if other is None or other in ("", ".", node_id):
        return
    source, end = (other, node_id) if is_reversed else (node_id, other)
    yield StoredEdge(source, relation, end, key, kind)
