"""A bundle of files, read into memory as a store has it: what the command line searches without a store, and how the
reference program's answers are held against the ranker."""

from __future__ import annotations

from pathlib import Path

import apsw

from memoree.database import okf as rows
from memoree.okf import bundle
from memoree.okf.bundle import EVERYTHING, Tiers
from memoree.okf.dialect import Dialect
from memoree.okf.indexing import index
from memoree.okf.node import Node

BUNDLE = 1


def load(root: Path, dialect: Dialect, tiers: Tiers = EVERYTHING) -> tuple[apsw.Connection, dict[int, Node]]:
    """The tables of a bundle with these tiers, and its nodes by row. Raises `CONFIG_ERROR` for what is no directory."""
    db = rows.empty()
    found = dict(enumerate(bundle.nodes(root, dialect, tiers), start=1))
    for row_id, node in found.items():
        index(db, node, row_id=row_id, bundle=BUNDLE, revision_row=row_id)
    return db, found
