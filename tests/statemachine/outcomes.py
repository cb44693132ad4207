"""What can become of each operation, from the error matrix of the contract (Appendix B) and the rules of §1.7 and §1.8.

Left out is what takes megabytes or damage: `CONTENT_TOO_LARGE`, and `INTEGRITY_ERROR` for stored bytes that no longer
match their digest. `UNSUPPORTED_VERSION` is judged before anything a program is about.
"""

from __future__ import annotations

from collections.abc import Iterator

OCCURRENCES_MIN = 20
"""How often a run must have seen each pair before it may say that model and service agree."""

CODES = {
    "IR": "INVALID_REQUEST",
    "rule": "INVALID_REQUEST:rule",
    "NF": "NOT_FOUND",
    "SV": "SCOPE_VIOLATION",
    "RC": "REVISION_CONFLICT",
    "IC": "IDEMPOTENCY_CONFLICT",
    "NC": "NO_AMBIENT_CONTEXT",
    "NR": "INDEX_NOT_READY",
    "IE": "INTEGRITY_ERROR",
}
MUTATIONS = {
    "artifact.put": "created IR rule IC NC",
    "artifact.revise": "created IR rule NF SV RC IC NC",
    "artifact.forget": "created IR rule NF SV IC NC",
    "claim.assert": "created IR rule NF IC NC",
    "claim.revise": "created IR rule NF SV RC IC NC",
    "claim.retract": "created IR rule NF SV IC NC",
    "relation.put": "created no-op IR rule NF SV IC NC",
    "source.register": "created IR rule IC NC",
    "source.ingest": "created changed no-op IR rule NF SV RC IC NC IE",
    "source.checkpoint": "created IR NF SV IC NC",
    "source.withdraw": "created no-op IR NF SV IC NC",
    "projection.put": "created changed no-op IR rule NF SV RC IC NC",
    "projection.drop": "created no-op IR NF SV IC NC",
    "feedback.record": "created IR rule IC NC",
}
"""Each of them can also be a `replay`. `rule` is the `IR` of a well-formed input, by a rule of the operation; `changed`
is a new commit that made no new entity (§11, 10)."""
READS = {
    "artifact.get": "IR NF",
    "artifact.history": "IR NF",
    "claim.get": "IR NF",
    "claim.history": "IR NF",
    "relation.list": "IR NF SV NC",
    "conflict.list": "IR NC",
    "source.get": "IR NF SV NC",
    "projection.list": "IR NF SV NC",
    "feedback.get": "IR NF SV NC",
    "feedback.list": "IR NC",
    "feedback.export": "IR NC",
    "search": "IR NC NR",
    "citation.get": "IR",
}
CITATION_FAULTS = (
    "invalid_output_limit", "malformed_citation", "span_out_of_range", "unknown_artifact", "unknown_revision",
    "range_required", "non_text_content", "utf8_boundary",
)  # fmt: skip

Outcome = tuple[str, str]
"""An operation and what became of it."""


def _reachable() -> Iterator[Outcome]:
    for op, words in MUTATIONS.items():
        yield op, "replay"
        yield from ((op, CODES.get(word, word)) for word in words.split())
    for op, words in READS.items():
        yield op, "read"
        yield from ((op, CODES.get(word, word)) for word in words.split())
    yield from (("citation.get", f"CITATION_ERROR:{kind}") for kind in CITATION_FAULTS)


REACHABLE = tuple(_reachable())
