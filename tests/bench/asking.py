"""Asking a served memory and the plain index beside it, one question after the other; seconds of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from .memories import ServedMemory
from .queries import Case
from .wire import Caller, recall

Request = Callable[[str], bytes]
"""What is sent for a query."""


async def asked(caller: Caller, cases: Sequence[Case], request: Request = recall) -> list[float]:
    return [await answered(caller, request(case.query)) for case in cases]


async def timed(caller: Caller, body: bytes) -> float:
    """Whatever the answer is: a refusal takes its time too."""
    began = time.perf_counter()
    await caller.send(body)
    return time.perf_counter() - began


async def answered(caller: Caller, body: bytes) -> float:
    began = time.perf_counter()
    await caller.call(body)
    return time.perf_counter() - began


def plain(memory: ServedMemory, cases: Sequence[Case]) -> list[float]:
    return [memory.plain_seconds(case.terms) for case in cases]
