from __future__ import annotations

from faults.conftest import make_site, site  # noqa: F401 - fixtures
from stack_support import seaweed_server, seaweedfs

__all__ = ["seaweed_server", "seaweedfs"]
