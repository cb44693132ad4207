"""What routes that read by GET have in common: the members of their query strings, and results."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import parse_qsl

from memoree.errors import MemoreeError, invalid, shown
from memoree.service import Reply

PARAMETERS_MAX = 32
_NUMBER = re.compile(r"\d{1,19}", re.ASCII)


def result_of(reply: Reply) -> tuple[Mapping[str, Any], int]:
    """The result and the snapshot it comes from. Raises what the service refused with."""
    if (error := reply.envelope.get("error")) is not None:
        refused = MemoreeError.from_wire(error)
        refused.retry_after_seconds = reply.retry_after_seconds
        raise refused
    assert reply.snapshot_commit_seq is not None, "a read names its snapshot"
    return reply.envelope["result"], reply.snapshot_commit_seq


def parameters(query_string: bytes, known: Collection[str], *, numbers: Collection[str]) -> dict[str, Any]:
    """The members of a query string, all of them known, each at most once and none of them empty. Raises
    `INVALID_REQUEST`."""
    try:
        pairs = parse_qsl(
            query_string.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=PARAMETERS_MAX,
        )
    except UnicodeDecodeError:
        invalid("the query string is not percent-encoded UTF-8")
    except ValueError:
        invalid(f"the query string has more than {PARAMETERS_MAX} parameters")
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name not in known:
            invalid(f"{shown(name)} is no parameter here; there are {', '.join(known)}")
        if name in members:
            invalid(f"{shown(name)} is given twice")
        if not value:
            invalid(f"{shown(name)} is empty; leave it out instead")
        members[name] = int(value) if name in numbers and _NUMBER.fullmatch(value) else value
    return members
