"""Small bundles, written where a test wants them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memoree.okf import bundle, dates, files
from memoree.okf.dialect import Dialect
from memoree.okf.hygiene import Activity
from memoree.okf.node import Node
from memoree.okf.ranking import Answer, Corpus, Query

AT = "2026-06-01T00:00:00Z"


def milliseconds(text: str) -> int:
    found = dates.milliseconds(text)
    assert found is not None
    return found


def node(body: str = "Rye.", node_type: str = "Concept", **fields: str) -> str:
    """The text of a node; what a field says is written as it is."""
    lines = [f"type: {node_type}", *(f"{name}: {value}" for name, value in fields.items())]
    return "\n".join(("---", *lines, "---", "", body, ""))


def write(root: Path, files_by_path: Mapping[str, str | bytes]) -> Path:
    """The bundle's root, with these files."""
    root.mkdir(parents=True, exist_ok=True)
    for path, content in files_by_path.items():
        at = root / path
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def search(
    root: Path,
    text: str,
    *,
    dialect: Dialect = Dialect.SERVICE,
    at: str = AT,
    activity: Mapping[str, Activity] | None = None,
    **options: Any,
) -> Answer:
    db, _ = files.load(root, dialect)
    return Corpus(db, files.BUNDLE, (activity or {}).get, Query(text, milliseconds(at), **options)).search()


def hits(root: Path, text: str, **options: Any) -> list[str]:
    """Ids, the best first."""
    return [hit.row.node_id for hit in search(root, text, **options).hits]


def walked(root: Path, dialect: Dialect = Dialect.SERVICE, tiers: bundle.Tiers = bundle.CANON) -> dict[str, Node]:
    return {each.id: each for each in bundle.nodes(root, dialect, tiers)}
