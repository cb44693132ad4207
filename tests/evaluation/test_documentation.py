"""The page about the evaluation says what the program counts and demands."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from memoree.evaluation.bounds import Bound
from memoree.evaluation.cranfield import NDCG_BOUND, Figures
from memoree.evaluation.metrics import BOUNDS, Metrics
from memoree.evaluation.surfaces import SURFACES

from .test_corpus import CLASSES_OF_THE_CORPUS

PAGE = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text()
FIGURES = PAGE.partition("\n## Figures\n")[2]
NAMED = set(re.findall(r"`([\w ]+)`", PAGE))
OBVIOUS = {"cases", "failed", "documents", "questions"}


@pytest.mark.parametrize("bound", [*(bound for _, bound, _ in BOUNDS), NDCG_BOUND], ids=lambda bound: bound.name)
def test_every_bound_stands_in_the_table(bound: Bound) -> None:
    (row,) = [line for line in FIGURES.splitlines() if line.startswith(f"| {bound.name} |")]
    sign = "≥" if bound.at_least else "≤"
    assert row.endswith(f"| {sign} {bound.must:g} | {sign} {bound.aim:g} |")


def test_every_number_class_and_surface_is_explained() -> None:
    numbers = {field.name for model in (Metrics, Figures) for field in fields(model)}
    assert numbers - OBVIOUS <= NAMED
    assert CLASSES_OF_THE_CORPUS <= NAMED
    assert {surface.name for surface in SURFACES} <= NAMED
