"""The long run: random programs by the thousand against the model. See `scripts/statemachine --help`."""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.deployment import deployment

from .doors import OpenDoor, embedded, tenants_of
from .explore import Exploration
from .run import Disagreement

STEPS = 20_000
PROGRAM_STEPS = 200
TENANTS = [f"tenant-{number}" for number in range(1024)]


@contextmanager
def opened(profile: str) -> Iterator[OpenDoor]:
    """Stores of that profile; for the stack, one that runs only for this."""
    if profile == "embedded":
        yield embedded
        return
    with tempfile.TemporaryDirectory() as directory, deployment(Path(directory) / "stack") as stack:
        stack.use_tokens(TENANTS)
        stack.start("--api-processes", "2")
        yield tenants_of(stack.url, iter([stack.tokens[tenant] for tenant in TENANTS]))


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/statemachine", description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS, help=f"requests to send at least (default {STEPS})")
    parser.add_argument("--profile", choices=("embedded", "stack"), default="embedded")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31), help="repeat the run with this seed")
    asked = parser.parse_args()
    print(f"seed {asked.seed}", flush=True)
    with opened(asked.profile) as open_door:
        exploration = Exploration(open_door, asked.seed, PROGRAM_STEPS, shrink=asked.profile == "embedded")
        try:
            exploration.run(asked.steps)
            exploration.complete()
        except Disagreement as disagreement:
            print(disagreement)
            return 1
        finally:
            print(exploration.tally)
    return 0


if __name__ == "__main__":
    sys.exit(main())
