"""What happened in a run, line by line: two runs of one seed write the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulation.loop import Process, SimulatedLoop


class Trace:
    """Kept only when asked for: a line costs as much as a step of the run."""

    def __init__(self, loop: SimulatedLoop, *, keep: bool) -> None:
        self.lines: list[str] = []
        self._loop = loop
        self._keep = keep

    def note(self, process: Process, what: str, error: BaseException | None = None, is_unheard: bool = False) -> None:
        if self._keep:
            ending = f" -> {type(error).__name__} {error}" if error is not None else ""
            unheard = " (nobody hears of it)" if is_unheard else ""
            self.lines.append(f"{self._loop.now:10.6f} {process.name:10} {what}{ending}{unheard}")
