"""`backup.create`: a copy of the store, in a new directory of this host or in the bucket that holds it (machine
protocol §4.37)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel

from memoree import clock, limits
from memoree.envelope import WireModel, bounded
from memoree.operations.call import Call
from memoree.operations.registry import read
from memoree.operations.view import View

BUCKET_SCHEME = "s3://"


def _place(destination: str) -> str:
    if not destination.startswith(BUCKET_SCHEME) and not Path(destination).is_absolute():
        raise ValueError("must be an absolute path, as the server sees it, or begin with s3://")
    return destination


class BackupCreate(WireModel):
    destination: Annotated[str, bounded(limits.PATH_BYTES_MAX), AfterValidator(_place)]


class BackupRecord(BaseModel):
    """Where the backup is: paths, or URLs of a bucket. `commit_seq` is the state it holds. Blobs of a bucket are not
    copied for it: it names those that it needs, and they stay."""

    destination: str
    database: str
    blobs: str
    commit_seq: int
    copied_external_blobs: int
    created_at: str


@read(
    "backup.create",
    position=38,
    input=BackupCreate,
    result=BackupRecord,
    needs_context=False,
    scope="admin",
    side_effecting=True,
    long=True,
)
def create(view: View, call: Call[BackupCreate]) -> BackupRecord:
    assert view.upkeep is not None, "only services answer reads"
    made = view.upkeep.back_up(call.input.destination, commit_seq_min=view.meta.commit_seq)
    return BackupRecord(
        destination=made.destination,
        database=made.database,
        blobs=made.blobs,
        commit_seq=made.commit_seq,
        copied_external_blobs=made.copied_blobs,
        created_at=clock.wire(view.now),
    )
