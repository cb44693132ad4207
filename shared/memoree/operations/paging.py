"""Where a page of a long list ends: at the limit that was asked for, or earlier when its items are large."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from pydantic import BaseModel

Item = TypeVar("Item", bound=BaseModel)


def cut(items: Iterable[Item], *, limit: int, bytes_max: int) -> tuple[list[Item], bool]:
    """The first items, at most `limit` of them and `bytes_max` bytes of JSON, but at least one if there is any; and
    whether more follow. Items are taken one by one: nothing behind the first that does not fit is made."""
    page: list[Item] = []
    encoded_bytes = 0
    for item in items:
        encoded_bytes += len(item.model_dump_json(exclude_none=True).encode())
        if len(page) == limit or (page and encoded_bytes > bytes_max):
            return page, True
        page.append(item)
    return page, False
