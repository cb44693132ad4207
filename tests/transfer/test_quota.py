"""An export carries the tenant's quota, and an import counts what it holds."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from memoree.assembly import embedded_service
from memoree.embedded import LOCAL_TENANT, EmbeddedService
from memoree.jobs.embedded import EmbeddedTenancy
from memoree.transfer.exporting import export_tenant
from memoree.transfer.into_directory import import_directory
from mixed_mutations import mixed_mutations
from test_embedded import call


def shown(service: EmbeddedService) -> Mapping[str, Any]:
    told = asyncio.run(service.administration.show(LOCAL_TENANT))
    return {name: told.get(name) for name in ("rows", "bytes", "quota", "commit_seq")}


@pytest.mark.proves("operations-77", "operations-81")
def test_what_is_imported_holds_and_may_hold_what_its_source_did(tmp_path: Path) -> None:
    source = embedded_service(tmp_path / "source")
    keys = iter(range(10_000))
    try:
        mixed_mutations(lambda op, payload: call(source, op, payload, key=f"k{next(keys)}")["result"])
        asyncio.run(source.administration.set_quota(LOCAL_TENANT, {"rows_max": 1, "rate_per_second": 3}))
        file = io.BytesIO()
        asyncio.run(export_tenant(EmbeddedTenancy(source), file))
        told = shown(source)
    finally:
        source.close_sync()
    file.seek(0)
    import_directory(file, tmp_path / "copy")
    copy = embedded_service(tmp_path / "copy")
    try:
        assert shown(copy) == told
        assert told["rows"] > 20 and told["quota"]["rows_max"] == 1
        assert call(copy, "verify", {})["result"]["issues"] == []
        claim = {"claim_type": "fact", "statement": "one more"}
        error = call(copy, "claim.assert", claim, key="more").get("error") or {}
        assert error.get("details") == {"limit": "rows", "used": told["rows"], "quota": 1}
    finally:
        copy.close_sync()
