from __future__ import annotations

from stack_support import seaweedfs

__all__ = ["seaweedfs"]
