"""`backup.create`: a copy of the store in a new directory of this host (machine protocol §4.37)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel

from memoree import clock, limits
from memoree.envelope import WireModel, bounded
from memoree.operations.call import Call
from memoree.operations.registry import read
from memoree.operations.view import View


def _absolute(path: str) -> str:
    if not Path(path).is_absolute():
        raise ValueError("must be an absolute path, as the server sees it")
    return path


class BackupCreate(WireModel):
    destination: Annotated[str, bounded(limits.PATH_BYTES_MAX), AfterValidator(_absolute)]


class BackupRecord(BaseModel):
    """Where the backup is. `commit_seq` is the state it holds."""

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
    destination = call.input.destination
    made = view.upkeep.back_up(Path(destination), commit_seq_min=view.meta.commit_seq)
    return BackupRecord(
        destination=destination,
        database=str(made.database),
        blobs=str(made.blobs),
        commit_seq=made.commit_seq,
        copied_external_blobs=made.copied_blobs,
        created_at=clock.wire(view.now),
    )
