"""What a run leaves behind: the JSON document, the table for a person, and the environment it was measured in."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw

from memoree import __version__

from .figures import Figure, Ratio
from .processes import MIB, busy_share
from .site import Plan

QUIET_SECONDS = 2.0
QUIET_BUSY_SHARE_MAX = 0.10
DIGITS = 3


def environment(plan: Plan) -> dict[str, Any]:
    """Taken before anything is started: `busy_share_before` says whether anything else was running."""
    return {
        "memoree": __version__,
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "processors": os.cpu_count(),
        "memory_mb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MIB,
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "load_average_before": list(os.getloadavg()),
        "busy_share_before": round(busy_share(QUIET_SECONDS), DIGITS),
        "plan": asdict(plan),
    }


def document(figures: Mapping[Ratio, Figure], environment: Mapping[str, Any]) -> dict[str, Any]:
    absolute: dict[str, float] = {}
    for figure in figures.values():
        absolute |= figure.absolute
    return {
        "ratios": {ratio.name: round(figure.value, DIGITS) for ratio, figure in figures.items()},
        "absolute": {name: round(value, DIGITS) for name, value in absolute.items()},
        "environment": {**environment, "load_average_after": list(os.getloadavg())},
    }


def table(figures: Mapping[Ratio, Figure]) -> str:
    rows = [("ratio", "value", "must", "aim", "verdict", "measured", "floor")]
    for ratio, figure in figures.items():
        sign = "≥" if ratio.higher_is_better else "≤"
        rows.append(
            (
                ratio.name,
                f"{figure.value:.2f}",
                f"{sign} {ratio.must:g}",
                f"{sign} {ratio.aim:g}",
                ratio.verdict(figure.value),
                ratio.measured_is,
                ratio.floor_is,
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def warnings(environment: Mapping[str, Any]) -> list[str]:
    """Why the numbers of this run should not be quoted."""
    busy = environment["busy_share_before"]
    if busy <= QUIET_BUSY_SHARE_MAX:
        return []
    return [f"the machine was {busy:.0%} busy before the run: something else was running, and timings lie"]


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()
