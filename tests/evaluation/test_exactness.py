"""Following citations, in a store whose contents are known."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memoree.client.request import Endpoint
from memoree.envelope import AmbientContext
from memoree.evaluation.asking import Asker
from memoree.evaluation.exactness import Citations, Quote, followed, quotes

from .mini import HERE

BODY = "".join(f"{number} Brände in Köln.\n" for number in range(1_000))
WHOLE = "memoree://artifact/{artifact_id}@{revision_id}"


class Kept:
    """A store with one artifact of three pieces, and one claim."""

    def __init__(self, endpoint: Endpoint) -> None:
        asker = Asker(endpoint)
        context = AmbientContext.model_validate(HERE)
        content = {"type": "text", "data": BODY}
        artifact = {"kind": "note", "title": "Many firings", "content": content, "provenance": {}}
        self.artifact = WHOLE.format(**asker.result("artifact.put", artifact, context, key="a"))
        claim = asker.result("claim.assert", {"claim_type": "fact", "statement": "It is hot."}, context, key="c")
        self.claim = f"memoree://claim/{claim['claim_id']}@{claim['revision_id']}"
        self.citations = Citations(asker)


@pytest.fixture
def kept(endpoint: Endpoint) -> Kept:
    return Kept(endpoint)


def test_a_span_is_fetched_in_as_many_pieces_as_it_takes(kept: Kept) -> None:
    size = len(BODY.encode())
    assert size > 2 * 8192
    assert kept.citations.texts(f"{kept.artifact}#0-{size}") == (BODY.encode(),)


def test_a_quote_is_all_of_what_is_cited_or_says_that_it_is_cut(kept: Kept) -> None:
    span = f"{kept.artifact}#2-9"
    assert kept.citations.is_exact(Quote(span, "Brände"))
    assert not kept.citations.is_exact(Quote(span, "Brand"))
    assert not kept.citations.is_exact(Quote(span, "Br"))
    assert kept.citations.is_exact(Quote(span, "Br", whole=False))
    assert not kept.citations.is_exact(Quote(span, "rände", whole=False))


@pytest.mark.parametrize(
    ("span", "exact"),
    [("#2-20", True), ("#2-9", True), ("#0-8", False), ("#3-20", False), ("", False), ("x#2-9", False)],
)
def test_a_cut_excerpt_cites_a_part_of_what_is_cited(kept: Kept, span: str, exact: bool) -> None:
    quote = Quote(f"{kept.artifact}#2-9", "Brände", within=f"{kept.artifact}{span}")
    assert kept.citations.is_exact(quote) == exact


def test_a_whole_revision_is_shown_by_its_title_or_its_body(kept: Kept) -> None:
    assert kept.citations.is_exact(Quote(kept.artifact, "Many firings"))
    assert kept.citations.is_exact(Quote(kept.artifact, "0 Brände", whole=False))
    assert kept.citations.is_exact(Quote(kept.claim, "It is hot."))
    assert not kept.citations.is_exact(Quote(kept.claim, "It is cold."))


@pytest.mark.parametrize(
    "changed",
    [
        lambda kept: f"{kept.artifact}#3-5",
        lambda kept: f"{kept.artifact}#0-99999",
        lambda kept: f"{kept.artifact}x",
        lambda kept: f"{kept.claim}x",
        lambda _: "memoree://nothing",
    ],
    ids=["inside of a character", "behind the end", "no revision", "no claim", "no citation"],
)
def test_a_citation_that_leads_nowhere_is_inexact_with_nothing_beside_it(
    kept: Kept, changed: Callable[[Kept], str]
) -> None:
    assert kept.citations.is_exact(Quote(kept.artifact))
    assert not kept.citations.is_exact(Quote(changed(kept)))


def test_every_form_of_citation_in_a_result_is_followed() -> None:
    result = {
        "claims": [{"citation": "1", "statement": "s", "evidence": [{"citation": "2", "excerpt": "e"}]}],
        "artifact_refs": [{"citation": "3", "excerpt_citation": "4", "excerpt": "x", "excerpt_truncated": True}],
        "candidate_claims": [{"citation": "5", "statement": "s", "statement_truncated": True}],
        "recovery": {"evidence": [{"citation": "6", "content": "c", "truncated": False}]},
        "leads": [{"sources": [{"citation": "7"}]}],
    }
    assert list(quotes(result)) == [
        Quote("1", "s"),
        Quote("2", "e"),
        Quote("3"),
        Quote("4", "x", within="3"),
        Quote("5", "s", whole=False),
        Quote("6", "c"),
        Quote("7"),
    ]


@pytest.mark.parametrize(
    ("rendered", "size", "included", "exact"),
    [
        ("> 0 Brände in Köln.\n> 1 Brände\n", 29, 29, True),
        ("> 0 Brände in Köln.\n", 29, 12, True),
        ("> 0 Brände in Köln.\n", 29, 29, False),
        ("> 0 Brände in Köln.\n> 1 Brände\n", 28, 28, False),
        ("> 0 Brande in Köln.\n> 1 Brände\n", 29, 29, False),
    ],
)
def test_included_bytes_stand_in_the_rendering_behind_marks(
    kept: Kept, rendered: str, size: int, included: int, exact: bool
) -> None:
    item = {"citation": f"{kept.artifact}#0-29", "source_excerpt_bytes": size, "included_bytes": included}
    context = {"rendered_markdown": f"# Context\n\n{rendered}", "manifest": [item]}
    assert [found for _, found in followed("context.build", context, kept.citations)] == [True, exact]
