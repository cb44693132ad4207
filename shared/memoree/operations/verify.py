"""`verify`: whether the store is whole (machine protocol §4.36)."""

from __future__ import annotations

from pydantic import BaseModel

from memoree.operations.call import Call
from memoree.operations.registry import read
from memoree.operations.shapes import EmptyInput
from memoree.operations.view import View


class Verification(BaseModel):
    """`ok` exactly when there are no `issues`; a damaged store is a success that says so."""

    ok: bool
    schema_version: int
    last_commit_seq: int
    checked_artifact_revisions: int
    checked_claim_revisions: int
    checked_external_blobs: int
    issues: list[str]
    warnings: list[str]


@read("verify", position=37, input=EmptyInput, result=Verification, needs_context=False, scope="admin", long=True)
def verify(view: View, call: Call[EmptyInput]) -> Verification:
    from memoree.verification import store  # not for a shell that only looks this operation up

    assert view.upkeep is not None, "only services answer reads"
    report = store.verify(view.db, view.upkeep.blob_audit())
    return Verification(
        ok=report.ok,
        schema_version=view.meta.schema_version,
        last_commit_seq=view.meta.commit_seq,
        checked_artifact_revisions=report.artifact_revisions,
        checked_claim_revisions=report.claim_revisions,
        checked_external_blobs=report.blobs,
        issues=report.lines(),
        warnings=[],
    )
