"""Ids of episodes: ULIDs, which are compared and told in upper case (MemoryProtocol §4)."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")


def ulid(text: str) -> str:
    """The id in upper case. Raises `ValueError` for what is none."""
    upper = text.upper()
    if not text.isascii() or _ULID.fullmatch(upper) is None:
        raise ValueError("must be a ULID: 26 characters of Crockford base 32")
    return upper


EpisodeId = Annotated[str, AfterValidator(ulid)]
