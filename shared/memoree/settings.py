"""Where the parts of a replicated deployment are: read from `MEMOREE_…` variables, never from a request."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from memoree import limits


class StackSettings(BaseSettings):
    """The stack and cloud profiles. Times are seconds; the defaults suit every deployment but tests of idling."""

    model_config = SettingsConfigDict(env_prefix="MEMOREE_", extra="ignore", frozen=True)

    bucket: str
    endpoint_url: str | None = None
    """For any S3 that is not Amazon's."""
    region: str = "us-east-1"
    access_key_id: str | None = None
    """Without keys, the environment's own credentials apply (a Lambda role)."""
    secret_access_key: SecretStr | None = None
    queue_url: str
    """`sqlite:///path/of/a/file`, or the URL of an SQS FIFO queue."""
    dead_letter_url: str | None = None
    queue_endpoint_url: str | None = None
    """For any SQS that is not Amazon's."""
    runtime_dir: Path
    """Local files that may vanish with the host: replicas, the writer's databases."""
    blob_store_name: str = "s3"
    uploads_through_service: bool = False
    """For clients that cannot reach the object store: they send large content to the api."""

    staleness_seconds_max: float = limits.STALENESS_SECONDS_MAX
    lease_ttl_seconds: float = limits.LEASE_TTL_SECONDS
    lease_renew_seconds: float = limits.LEASE_RENEW_SECONDS
    settle_after_idle_seconds: float = limits.SETTLE_AFTER_IDLE_SECONDS
    visibility_seconds: float = limits.VISIBILITY_SECONDS
    tenants_held_max: int = Field(default=limits.TENANTS_HELD_MAX, ge=1, le=limits.TENANTS_HELD_MAX)
    """Leases a writer holds at once; each costs a Litestream child of about 40 MB."""
    sync_timeout_seconds: int = limits.SYNC_TIMEOUT_SECONDS
    l0_retention_seconds: float = 3600.0
    l0_retention_check_seconds: float = 15.0
    level_seconds: tuple[float, ...] = (30.0, 300.0, 3600.0)
    snapshot_interval_seconds: float = 24 * 3600.0
    snapshot_retention_seconds: float = 72 * 3600.0
