"""What a request can be meant to meet, and what must be there first."""

from __future__ import annotations

from typing import Final

from contract.protocol import CATALOGUE

ROWS: Final = {row.name: row for row in CATALOGUE}
TWISTS: Final[dict[str, tuple[str, ...]]] = {
    "artifact.put": ("plain", "bad content", "in many scripts", "of no text"),
    "artifact.revise": ("plain", "lost", "foreign", "stale", "spent"),
    "artifact.forget": ("plain", "lost", "foreign", "spent", "delivered"),
    "claim.assert": ("plain", "lost evidence", "bad span"),
    "claim.revise": ("plain", "lost", "foreign", "stale", "spent", "lost evidence", "bad span"),
    "claim.retract": ("plain", "lost", "foreign", "spent"),
    "relation.put": ("plain", "plain", "lost", "foreign", "again", "clash", "spent", "with an artifact"),
    "source.register": ("plain", "same name"),
    "source.ingest": ("plain", "plain", "lost", "foreign", "again", "clash", "orphaned", "other kind"),
    "source.checkpoint": ("plain", "lost", "foreign"),
    "source.withdraw": ("plain", "lost", "foreign", "again", "lost item"),
    "projection.put": ("plain", "plain", "lost", "foreign", "again", "stale", "spent", "bad span", "lost revision"),
    "projection.drop": ("plain", "lost", "foreign", "again"),
    "feedback.record": ("plain", "bad query"),
    "artifact.get": ("plain", "lost", "lost revision"),
    "artifact.history": ("plain", "lost"),
    "claim.get": ("plain", "lost", "lost revision"),
    "claim.history": ("plain", "lost"),
    "relation.list": ("plain", "lost", "foreign", "no reason"),
    "conflict.list": ("plain", "no reason"),
    "source.get": ("plain", "lost", "foreign"),
    "projection.list": ("plain", "lost", "foreign"),
    "feedback.get": ("plain", "lost", "foreign"),
    "feedback.list": ("plain",),
    "feedback.export": ("plain",),
    "search": ("plain", "ahead", "no reason"),
    "citation.get": (
        "plain", "bad limit", "garbled", "empty", "outside", "lost", "lost revision", "whole", "inside a character",
        "of no text",
    ),
}  # fmt: skip
"""By operation, what its requests can be meant to meet; all of them also the twists of their kind below."""


def twists(op: str) -> tuple[str, ...]:
    row = ROWS[op]
    return (
        *TWISTS[op],
        "malformed",
        *(("homeless",) if row.needs_context else ()),
        *(("reused key", "replay", "changed replay") if row.mutating else ()),
    )


MADE_BY: Final = {
    "artifact": "artifact.put",
    "citation": "artifact.put",
    "claim": "claim.assert",
    "relation": "claim.assert",
    "source": "source.register",
    "projection": "artifact.put",
    "feedback": "feedback.record",
}
NEEDS: Final = {
    ("artifact.revise", "spent"): ("artifact.forget", "plain"),
    ("artifact.forget", "spent"): ("artifact.forget", "plain"),
    ("artifact.forget", "delivered"): ("source.ingest", "plain"),
    ("citation.get", "inside a character"): ("artifact.put", "in many scripts"),
    ("citation.get", "of no text"): ("artifact.put", "of no text"),
    ("claim.revise", "spent"): ("claim.retract", "plain"),
    ("claim.retract", "spent"): ("claim.retract", "plain"),
    ("relation.put", "again"): ("relation.put", "plain"),
    ("relation.put", "clash"): ("relation.put", "plain"),
    ("source.ingest", "again"): ("source.ingest", "plain"),
    ("source.ingest", "clash"): ("source.ingest", "plain"),
    ("source.ingest", "other kind"): ("source.ingest", "plain"),
    ("source.ingest", "orphaned"): ("artifact.forget", "delivered"),
    ("source.withdraw", "again"): ("source.withdraw", "plain"),
    ("projection.put", "again"): ("projection.put", "plain"),
    ("projection.put", "spent"): ("artifact.forget", "plain"),
    ("projection.put", "stale"): ("artifact.revise", "plain"),
    ("projection.drop", "again"): ("projection.drop", "plain"),
}


def needs(op: str, twist: str) -> tuple[str, str]:
    """What to do first when the model holds nothing for a request of that intention."""
    if twist in ("replay", "changed replay"):
        return op, "plain"
    if op == "source.withdraw" and twist != "again":
        return "source.ingest", "plain"
    if op in ("projection.drop", "projection.list") and twist != "again":
        return "projection.put", "plain"
    return NEEDS.get((op, twist), (MADE_BY[op.split(".")[0]], "plain"))
