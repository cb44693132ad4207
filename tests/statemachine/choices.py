"""What the authors of inputs have in common: how they choose, and from what."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, Final, TypeVar

from contract.door import Json

from .entities import Artifact, Claim, Context
from .model import Model

Thing = TypeVar("Thing")
Written = tuple[Json, Context] | None
"""An input and the context it is sent in; None when the model holds nothing it could be about."""

LAB: Final = Context("wsp_lab", "prj_kiln")
PLACES: Final = (
    LAB,
    Context("wsp_lab", "prj_kiln", task="tsk_1"),
    Context("wsp_lab", "prj_kiln", task="tsk_2"),
    Context("wsp_lab", "prj_kiln", component="sensors"),
    Context("wsp_lab", "prj_wheel"),
    Context("wsp_annex", "prj_kiln", task="tsk_1"),
)
BODIES: Final = (
    "kiln at cone 6",
    "kiln \U0001f469\U0001f3fd\u200d\U0001f4bb na\u00efve \u6f22\u5b57\r\n",
    "# kiln\n\ncone 5 \u2192 6\n",
    "",
)
MEDIA_TYPES: Final = ("text/plain", "text/markdown; charset=utf-8", "application/json")
TIMES: Final = (
    "0001-01-01T00:00:00Z",
    "2026-03-02T20:41:07.250Z",
    "2026-03-02T22:41:07.25+02:00",
    "2026-03-02T21:41:07.25Z",
    "2026-03-03T20:41:07.250Z",
    "9999-12-31T23:59:59Z",
)
"""Instants at which the clock of a program may stand to the millisecond, and the ends of time."""
WORDS: Final = ("kiln cone six", "Kiln  cone SIX", "kiln glaze", "kiln shelf")
WEB_CLAIMS: Final = 4
"""How many claims most edges join, so that claims have several contradictions."""
RELATIONS: Final = ("derived_from", "supports", "references", "duplicates")


class Choices:
    """Draws from the model and from the vocabulary above. The same model and seed give the same choices."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.pick = Random()
        self._numbers = itertools.count(1)

    def _fresh(self, word: str) -> str:
        """A text that was not given out before."""
        return f"{word}/{next(self._numbers)}"

    def _one(self, things: Sequence[Thing]) -> Thing:
        return things[self.pick.randrange(len(things))]

    def _some(self, things: Iterable[Thing]) -> Thing | None:
        listed = list(things)
        return self._one(listed) if listed else None

    def _maybe(self, **members: Any) -> Json:
        """Each member with an even chance."""
        return {name: value for name, value in members.items() if self.pick.random() < 0.5}

    def _place(self, owner: Context | None, twist: str) -> Context:
        """A context that may write what `owner` owns; one that may not, for the twist `foreign`."""
        fit = [each for each in PLACES if owner is None or each.same_scope(owner) is (twist != "foreign")]
        return LAB if LAB in fit and self.pick.random() < 0.4 else self._one(fit)

    def _content(self) -> Json:
        if self.pick.random() < 0.2:
            return {"type": "base64", "data": "a2lsbv+A"}
        return {"type": "text", "data": self._one(BODIES)}

    def _described(self) -> Json:
        return {"title": f"kiln {self._one('abc')}", "content": self._content()} | self._maybe(
            media_type=self._one(MEDIA_TYPES), provenance={"shelf": self._one([1, 2])}, actor="agent/kiln"
        )

    def _artifact(self, *, forgotten: bool = False) -> Artifact | None:
        return self._some(each for each in self.model.artifacts.values() if each.is_forgotten is forgotten)

    def _any_artifact(self) -> Artifact | None:
        return self._some(self.model.artifacts.values())

    def _claim(self, twist: str) -> Claim | None:
        """Rather one that is in dispute, the more so the more cases it has."""
        disputed = [
            self.model.claims[claim] for case in self.model.cases if case.state == "open" for claim in case.claims
        ]
        if disputed and twist != "spent" and self.pick.random() < 0.6:
            return self._one(disputed)
        return self._some(each for each in self.model.claims.values() if each.is_live is (twist != "spent"))

    def _evidence(self, twist: str) -> Json:
        artifact = self._any_artifact()
        if twist == "lost evidence":
            return {"evidence": [{"artifact_id": artifact.id if artifact else "art_0", "revision_id": "arev_0"}]}
        if artifact is None or self.pick.random() < 0.4:
            return {}
        revision = self._one(artifact.revisions)
        locator = {"artifact_id": artifact.id, "revision_id": revision.id}
        if twist == "bad span":
            return {"evidence": [locator | {"start_byte": 0, "end_byte": len(revision.body) + 1}]}
        if revision.body:
            locator |= self._maybe_span(len(revision.body))
        return {"evidence": [locator]}

    def _maybe_span(self, size: int) -> Json:
        start = self.pick.randrange(size)
        span = {"start_byte": start, "end_byte": self.pick.randrange(start, size) + 1}
        return self._one([{}, span])

    def _page(self, cursor: str, low: int, high: int) -> Json:
        page = self._maybe(limit=self._one([1, 2, 100]))
        return page | self._maybe(**{cursor: self.pick.randint(low, max(low, high))})

    def _horizon(self, twist: str) -> Json:
        if twist == "no reason":
            return {"horizon": self._one(["workspace", "personal"])} | self._maybe(reason=" ")
        broad = {"horizon": self._one(["workspace", "personal"]), "reason": "compare"}
        return {} if twist == "foreign" else self._one([{}, {"horizon": "ambient"}, broad])


def unknown_if_lost(identifier: str, twist: str) -> str:
    """The id, or one of the right form that nothing has."""
    return f"{identifier.split('~')[0]}_01ARZ3NDEKTSV4RRFFQ69G5FAV" if twist == "lost" else identifier
