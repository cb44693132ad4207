"""Where a tenant's objects are (design §7). Every prefix ends in `/`; every key is below the tenant's."""

from __future__ import annotations

import re

from memoree.ids import AttemptId, UploadId
from memoree.objects.blobs import check_tenant

TENANTS_PREFIX = "tenants/"
DELETED_PREFIX = "deleted/"

_LEDGER_KEY = re.compile(r"/epochs/(\d{8})\.json\Z")
_EPOCH_PREFIX = re.compile(r"ltx/(\d{8})-[0-9A-Z]{8}/")


def tenant_prefix(tenant: str) -> str:
    return f"{TENANTS_PREFIX}{check_tenant(tenant)}/"


def epoch_prefix(epoch: int, owner: str) -> str:
    """Relative to the tenant: where one reign's LTX files go."""
    return f"ltx/{epoch:08}-{owner[-8:]}/"


def epoch_of(prefix: str) -> int:
    """The number of the epoch that writes to a prefix."""
    epoch = epoch_in(prefix)
    if epoch is None:
        raise ValueError(f"not an epoch's prefix: {prefix!r}")
    return epoch


def epoch_in(prefix: str) -> int | None:
    """As `epoch_of`; `None` for what is no epoch's prefix."""
    match = _EPOCH_PREFIX.fullmatch(prefix)
    return int(match[1]) if match is not None else None


def epoch_ledger_key(tenant: str, epoch: int) -> str:
    return f"{epochs_prefix(tenant)}{epoch:08}.json"


def epochs_prefix(tenant: str) -> str:
    return f"{tenant_prefix(tenant)}epochs/"


def ledger_epoch(key: str) -> int | None:
    """The number of the epoch whose entry of the ledger is under a key."""
    match = _LEDGER_KEY.search(key)
    return int(match[1]) if match is not None else None


def backups_prefix(tenant: str) -> str:
    return f"{tenant_prefix(tenant)}backups/"


def backup_key(tenant: str, backup_id: str, name: str) -> str:
    return f"{backups_prefix(tenant)}{backup_id}/{name}"


def erasure_key(tenant: str, erasure_id: str) -> str:
    return f"{erasures_prefix(tenant)}{erasure_id}.json"


def erasures_prefix(tenant: str) -> str:
    return f"{tenant_prefix(tenant)}erasures/"


def tombstone_key(tenant: str) -> str:
    """Beside the tenants: it outlives the one it is about."""
    return f"{DELETED_PREFIX}{check_tenant(tenant)}.json"


def deletion_key(tenant: str) -> str:
    """By which a deletion is confirmed; it goes with the tenant."""
    return f"{tenant_prefix(tenant)}deletion.json"


def job_key(tenant: str, job: str) -> str:
    """What is kept of a scheduled job's runs."""
    return f"{tenant_prefix(tenant)}jobs/{job}.json"


def parked_command_key(tenant: str, attempt_id: AttemptId) -> str:
    return f"{tenant_prefix(tenant)}commands/{attempt_id}"


def answer_key(tenant: str, name: str) -> str:
    """An answer that was too large for the function that gave it."""
    return f"{tenant_prefix(tenant)}answers/{name}"


def try_key(tenant: str, attempt_id: AttemptId, number: int) -> str:
    return f"{tenant_prefix(tenant)}tries/{attempt_id}/{number}"


def verification_try_key(tenant: str, attempt_id: AttemptId, number: int) -> str:
    return f"{tenant_prefix(tenant)}tries/{attempt_id}/verification-{number}"


def ingest_try_key(tenant: str, message_id: str, number: int) -> str:
    return f"{tenant_prefix(tenant)}tries/{message_id}/ingest-{number}"


def uploads_prefix(tenant: str) -> str:
    return f"{tenant_prefix(tenant)}uploads/"


def upload_declaration_key(tenant: str, upload_id: UploadId) -> str:
    return f"{uploads_prefix(tenant)}{upload_id}.declaration"


def upload_content_key(tenant: str, upload_id: UploadId) -> str:
    return f"{uploads_prefix(tenant)}{upload_id}.content"
