"""The list of everyday English is what its script makes, and fits the terms that are looked up in it."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import util
from pathlib import Path
from types import ModuleType

import pytest

from memoree.retrieval import telling
from memoree.retrieval.stemming import stem

SCRIPTS = Path(__file__).parents[2] / "scripts"
TOOL = SCRIPTS / "english_terms.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = util.spec_from_file_location("english_terms", TOOL)
    assert spec is not None and spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sections(document: str) -> dict[str, list[str]]:
    return {name: terms.split() for name, terms in re.findall(r"^\[(\w+)\]\n([^\[]*)", document, flags=re.MULTILINE)}


def test_a_stem_stands_in_the_section_of_its_most_frequent_word_only(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, ranks in (("COMMON_RANKS", 2), ("ORDINARY_RANKS", 4), ("SPECIAL_RANKS", 6)):
        monkeypatch.setattr(tool, name, ranks)
    counts = {
        "wrote": 90,
        "any": 90,
        "kilns": 50,
        "café": 45,
        "don't": 44,
        "writes": 40,
        "kiln": 30,
        "velvet": 20,
        "moth": 1,
    }
    made = tool.document(counts, ["queues", "any"])
    assert sections(made) == {"common": ["any", "write"], "ordinary": ["kiln", "queue"], "special": ["velvet"]}
    assert made.startswith("# ") and made.endswith("velvet\n")


def test_the_committed_list_has_every_addition_and_is_in_order(tool: ModuleType) -> None:
    document = tool.TERMS.read_text(encoding="ascii")
    additions = tool.ADDITIONS.read_text(encoding="ascii").split()
    found = sections(document)
    assert document.splitlines()[0] == tool.HEADER
    assert all(terms == sorted(set(terms)) for terms in found.values())
    assert sum(map(len, found.values())) == len(set().union(*found.values())), "a term has one kind"
    assert additions == sorted(set(additions))
    assert {stem(word) for word in additions} <= {*found["common"], *found["ordinary"]}


@pytest.mark.parametrize("word", ["any", "try", "fly", "its", "drank", "children", "criteria"])
def test_short_and_irregular_words_are_looked_up_by_the_term_that_the_list_has(word: str) -> None:
    assert not telling.is_telling(word)


@pytest.mark.nightly
def test_the_script_makes_the_committed_list_again(tool: ModuleType, tmp_path: Path) -> None:
    """Downloads a package of 7 MB."""
    made = tmp_path / "terms.txt"
    assert run("--check", made) == 1
    assert run(made) == 0
    assert made.read_bytes() == tool.TERMS.read_bytes()
    assert run("--check", made) == 0


def run(*arguments: str | Path) -> int:
    done = subprocess.run([sys.executable, TOOL, *arguments], capture_output=True, text=True, timeout=100)
    assert "Traceback" not in done.stderr
    return done.returncode
