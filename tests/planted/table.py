"""The planted faults: small, realistic bugs, each of which must make the tests of the assertions it breaks fail.

One fault is one edit of one file under `shared/memoree`. The text to replace must stand there exactly once, so that a
table that no longer fits the source is noticed instead of proving nothing.
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT / "shared"
FAULTS = Path(__file__).with_name("faults")
PACKAGE = "memoree"


@dataclass(frozen=True)
class Fault:
    """`breaks` holds assertion keys such as `machine-53`; `file` is relative to the package. `tests` says which of the
    proving tests are run: those that need no binaries, also those of the real stack, or the nightly ones too."""

    id: str
    breaks: tuple[str, ...]
    file: str
    old: str
    new: str
    tests: Literal["quick", "stack", "nightly"] = "quick"

    def plant(self, shared: Path) -> None:
        """Make the edit in a copy of `shared`. Raises `ValueError` unless `old` stands there exactly once."""
        path = shared / PACKAGE / self.file
        path.write_text(self.applied(path.read_text(encoding="utf-8")), encoding="utf-8")

    def applied(self, source: str) -> str:
        """The source with the fault in it. Raises `ValueError` unless `old` stands there exactly once."""
        if (count := source.count(self.old)) != 1:
            raise ValueError(f"{self.id}: the text to replace stands {count} times in {self.file}:\n{self.old}")
        return source.replace(self.old, self.new)


def read_faults(folder: Path = FAULTS) -> tuple[Fault, ...]:
    """Every fault of the folder's tables. Raises `ValueError` for an id given twice, `TypeError` for a member
    that is missing or unknown."""
    faults: dict[str, Fault] = {}
    for path in sorted(folder.glob("*.toml")):
        for members in tomllib.loads(path.read_text(encoding="utf-8"))["fault"]:
            fault = Fault(**{**members, "breaks": tuple(members["breaks"])})
            if fault.id in faults:
                raise ValueError(f"{path.name}: {fault.id} is there twice")
            faults[fault.id] = fault
    return tuple(faults.values())


def by_assertion(faults: Iterable[Fault]) -> Mapping[str, Sequence[str]]:
    """Assertion keys to the ids of the faults that break their tests."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for fault in faults:
        for key in fault.breaks:
            found[key].append(fault.id)
    return found
