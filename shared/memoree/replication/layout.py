"""Where a tenant's objects are (design §7). Every prefix ends in `/`; every key is below the tenant's."""

from __future__ import annotations

import re

from memoree.ids import AttemptId, UploadId
from memoree.objects.blobs import check_tenant

TENANTS_PREFIX = "tenants/"

_EPOCH_PREFIX = re.compile(r"ltx/(\d{8})-[0-9A-Z]{8}/")


def tenant_prefix(tenant: str) -> str:
    return f"{TENANTS_PREFIX}{check_tenant(tenant)}/"


def epoch_prefix(epoch: int, owner: str) -> str:
    """Relative to the tenant: where one reign's LTX files go."""
    return f"ltx/{epoch:08}-{owner[-8:]}/"


def epoch_of(prefix: str) -> int:
    """The number of the epoch that writes to a prefix."""
    match = _EPOCH_PREFIX.fullmatch(prefix)
    if match is None:
        raise ValueError(f"not an epoch's prefix: {prefix!r}")
    return int(match[1])


def epoch_ledger_key(tenant: str, epoch: int) -> str:
    return f"{tenant_prefix(tenant)}epochs/{epoch:08}.json"


def backups_prefix(tenant: str) -> str:
    return f"{tenant_prefix(tenant)}backups/"


def erasure_key(tenant: str, erasure_id: str) -> str:
    return f"{erasures_prefix(tenant)}{erasure_id}.json"


def erasures_prefix(tenant: str) -> str:
    return f"{tenant_prefix(tenant)}erasures/"


def parked_command_key(tenant: str, attempt_id: AttemptId) -> str:
    return f"{tenant_prefix(tenant)}commands/{attempt_id}"


def try_key(tenant: str, attempt_id: AttemptId, number: int) -> str:
    return f"{tenant_prefix(tenant)}tries/{attempt_id}/{number}"


def verification_try_key(tenant: str, attempt_id: AttemptId, number: int) -> str:
    return f"{tenant_prefix(tenant)}tries/{attempt_id}/verification-{number}"


def uploads_prefix(tenant: str) -> str:
    return f"{tenant_prefix(tenant)}uploads/"


def upload_declaration_key(tenant: str, upload_id: UploadId) -> str:
    return f"{uploads_prefix(tenant)}{upload_id}.declaration"


def upload_content_key(tenant: str, upload_id: UploadId) -> str:
    return f"{uploads_prefix(tenant)}{upload_id}.content"
