from __future__ import annotations

from faults.conftest import make_site, site  # noqa: F401 - fixtures
from stack_support import seaweedfs  # noqa: F401 - a fixture
