"""The very database file that an api process reads, for floors that execute its statements bare."""

from __future__ import annotations

import apsw

from memoree.database import meta
from memoree.database.connection import open_reader
from memoree.objects.blobs import tenant_directory_name

from .stack import Stack


def replica(stack: Stack, tenant: str, commit_seq: int) -> apsw.Connection:
    """The copy at that commit. Nobody may write to the tenant any more, so that it stays what it is."""
    for path in sorted(stack.replicas_dir.rglob("*.sqlite3")):
        if tenant_directory_name(tenant) not in str(path):
            continue
        db = open_reader(path, immutable=True)
        if meta.read(db).commit_seq == commit_seq:
            return db
        db.close()
    raise RuntimeError(f"no replica of {tenant} is at commit {commit_seq}")
