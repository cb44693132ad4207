"""Where short reads run: in the event loop, once they have proved to be short.

Handing work to a thread and its result back takes longer than reading some rows by an index does, and Python code
holds the interpreter in a thread as well. What waits for the disk, or lets SQLite work for long, belongs in a thread:
there a read goes that has not been seen yet, and one whose last run for the same tenant was not short.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TypeVar

from memoree.operations.view import View

SHORT_SECONDS_MAX = 0.0005
KINDS_KEPT_MAX = 4096

Result = TypeVar("Result")
Kind = tuple[str, str]
"""A tenant and the name of an operation."""


class ShortReads:
    """For one process. The operations say themselves that they read rows and nothing else."""

    def __init__(self) -> None:
        self._seconds: dict[Kind, float] = {}

    def run_at_once(self, kind: Kind) -> bool:
        return self._seconds.get(kind, SHORT_SECONDS_MAX) < SHORT_SECONDS_MAX

    def timed(self, kind: Kind, work: Callable[[View], Result]) -> Callable[[View], Result]:
        """The work, whose time decides where the next of its kind runs."""

        def measured(view: View) -> Result:
            began = perf_counter()
            try:
                return work(view)
            finally:
                if len(self._seconds) >= KINDS_KEPT_MAX:
                    self._seconds.clear()
                self._seconds[kind] = perf_counter() - began

        return measured
