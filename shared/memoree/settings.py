"""Where the parts of a replicated deployment are: read from `MEMOREE_…` variables, never from a request."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from memoree import limits

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


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
    ingest_queue_url: str | None = None
    """Of the queue that connectors publish to (`docs/ingest.md`): written as `queue_url`, and another one."""
    ingest_dead_letter_url: str | None = None
    """The dead-letter queue of an SQS ingest queue; a SQLite one keeps its dead letters itself."""
    queue_endpoint_url: str | None = None
    """For any SQS that is not Amazon's."""
    tokens_file: str | None = None
    """A path, or `s3://bucket/key`. Its tenants may be ingested for before anything was written to them."""
    tokens: SecretStr | None = None
    """The tokens file itself, in place of its name."""
    tokens_secret: str | None = None
    """The secret in AWS Secrets Manager whose text is the tokens file, in place of its name."""
    secrets_endpoint_url: str | None = None
    """For any Secrets Manager that is not Amazon's."""
    runtime_dir: Path
    """Local files that may vanish with the host: replicas, the writer's databases."""
    blob_store_name: str = "s3"
    uploads_through_service: bool = False
    """For clients that cannot reach the object store: they send large content to the api."""

    staleness_seconds_max: Seconds = limits.STALENESS_SECONDS_MAX
    lease_ttl_seconds: Seconds = limits.LEASE_TTL_SECONDS
    lease_renew_seconds: Seconds = limits.LEASE_RENEW_SECONDS
    settle_after_idle_seconds: Seconds = limits.SETTLE_AFTER_IDLE_SECONDS
    visibility_seconds: Seconds = limits.VISIBILITY_SECONDS
    ingest_visibility_seconds: Seconds = limits.INGEST_VISIBILITY_SECONDS
    """How soon what a dead worker of the ingest queue had in hand is delivered again."""
    tenants_held_max: int = Field(default=limits.TENANTS_HELD_MAX, ge=1, le=limits.TENANTS_HELD_MAX)
    """Leases a writer holds at once; each costs a Litestream child of about 40 MB."""
    sync_timeout_seconds: int = Field(default=limits.SYNC_TIMEOUT_SECONDS, ge=1)
    l0_retention_seconds: Seconds = 3600.0
    l0_retention_check_seconds: Seconds = 15.0
    level_seconds: tuple[Seconds, ...] = (30.0, 300.0, 3600.0)
    snapshot_interval_seconds: Seconds = 24 * 3600.0
    snapshot_retention_seconds: Seconds = 72 * 3600.0

    backup_bucket: str | None = None
    """A second bucket, in another place: every backup is copied there with its blobs. Of this deployment alone."""
    backup_endpoint_url: str | None = None
    backup_region: str = "us-east-1"
    backup_access_key_id: str | None = None
    backup_secret_access_key: SecretStr | None = None
    backups_keep_last: int = Field(default=7, ge=1)
    backups_keep_daily: int = Field(default=14, ge=0)
    """Days and weeks that had no backup do not count."""
    backups_keep_weekly: int = Field(default=8, ge=0)

    api_deletes_tenants: bool = False
    """Whether the api may delete whole tenants, which takes rights on the buckets that it otherwise does without."""

    quota_rows: int | None = Field(default=None, ge=0)
    """What a tenant may hold that has no quota of its own, as `memoree tenant show` counts it."""
    quota_bytes: int | None = Field(default=None, ge=0)

    point_in_time_seconds: float = Field(default=limits.POINT_IN_TIME_SECONDS, ge=0, allow_inf_nan=False)
    """How far back a tenant can be restored: change files, prefixes and blobs are kept for it. Snapshots must be
    retained as long (`snapshot_retention_seconds`)."""
    gc_grace_seconds: float = Field(
        default=limits.COLLECT_GRACE_SECONDS_MIN, ge=limits.COLLECT_GRACE_SECONDS_MIN, allow_inf_nan=False
    )
    """How old a blob must be that nothing holds."""
    backup_every_seconds: float = Field(default=24 * 3600.0, ge=0, allow_inf_nan=False)
    """Of each tenant, as the next two; 0: not by a schedule."""
    verify_every_seconds: float = Field(default=24 * 3600.0, ge=0, allow_inf_nan=False)
    gc_every_seconds: float = Field(default=24 * 3600.0, ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.lease_renew_seconds >= self.lease_ttl_seconds:
            raise ValueError("lease_renew_seconds must be less than lease_ttl_seconds")
        if self.ingest_queue_url == self.queue_url:
            raise ValueError("ingest_queue_url must be another queue than queue_url")
        if self.snapshot_retention_seconds < self.point_in_time_seconds:
            raise ValueError("snapshot_retention_seconds must be at least point_in_time_seconds")
        return self
