"""What `memoree up` may be told. No imports that cost time: the command line builds this before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

API_PROCESSES_DEFAULT = 1


@dataclass(frozen=True, slots=True)
class UpOptions:
    """`port` and `metrics_port` 0 mean any free one. `tokens_file` is a path or `s3://bucket/key`; None means the one
    that the environment names, or else the one generated in `data_dir`.

    `rate_per_second` and `rate_burst` None mean the defaults. `overrides` are further `MEMOREE_…` settings for the
    children, such as the intervals of `memoree.settings.StackSettings`.
    """

    data_dir: Path
    api_processes: int = API_PROCESSES_DEFAULT
    port: int = 0
    metrics_port: int = 0
    detach: bool = False
    tokens_file: str | None = None
    rate_per_second: float | None = None
    rate_burst: int | None = None
    overrides: Mapping[str, str] = field(default_factory=dict)
