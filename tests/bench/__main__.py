"""`scripts/bench`: measure the ratios, print a table, write the document."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import orjson
import uvloop

from . import report
from .figures import Figure, NotMeasured, Ratio
from .registry import RATIOS
from .site import FULL_PLAN, QUICK_PLAN, Plan, open_site, say


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parser().parse_args(arguments)
    ratios = [ratio for ratio in RATIOS if not chosen.only or ratio.name in chosen.only]
    plan = QUICK_PLAN if chosen.quick else FULL_PLAN
    environment = report.environment(plan)
    for warning in report.warnings(environment):
        say(warning)
    with (
        tempfile.TemporaryDirectory(prefix="memoree-bench-", dir=chosen.dir) as directory,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        figures = runner.run(_measure(ratios, plan, Path(directory), chosen.cranfield))
    print(report.table(figures))
    if chosen.json is not None:
        document = report.document(figures, environment)
        chosen.json.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    missed = [ratio.name for ratio, figure in figures.items() if ratio.verdict(figure.value) == "MISSED"]
    return 1 if chosen.check and missed else 0


async def _measure(ratios: Sequence[Ratio], plan: Plan, directory: Path, cranfield: Path | None) -> dict[Ratio, Figure]:
    figures: dict[Ratio, Figure] = {}
    async with open_site(plan, directory, cranfield=cranfield) as site:
        for ratio in ratios:
            say(f"measuring {ratio.name}")
            try:
                figures[ratio] = figure = await ratio.measure(site)
            except NotMeasured as reason:
                say(f"{ratio.name} is not measured: {reason}")
                continue
            say(f"{ratio.name} = {figure.value:.2f} ({ratio.verdict(figure.value)})")
    return figures


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measure Memoree against its floors.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write ratios, absolute numbers and environment")
    names = [ratio.name for ratio in RATIOS]
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help="this ratio; may be repeated")
    parser.add_argument("--quick", action="store_true", help="few samples: proves that it runs, measures little")
    parser.add_argument("--check", action="store_true", help="exit with status 1 when a must is missed")
    parser.add_argument(
        "--cranfield",
        type=Path,
        default=os.environ.get("MEMOREE_CRANFIELD"),
        metavar="DIR",
        help="also the Cranfield collection, whose files are there  [env: MEMOREE_CRANFIELD]",
    )
    parser.add_argument("--dir", type=Path, metavar="DIR", help="where the stack's files go")
    return parser


if __name__ == "__main__":
    sys.exit(main())
