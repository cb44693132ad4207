"""Hard forget: nothing of what was erased is left in the database, and what rests on it still stands."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

from memoree import clock, ids
from memoree.browsing.lists import LISTINGS
from memoree.browsing.queries import ArtifactQuery, ClaimQuery, Position, Query
from memoree.database import attempts, compaction, condemned, erasures, integrity, meta
from memoree.database.connection import scalar
from memoree.envelope import AmbientContext, Envelope
from memoree.erasures import Erasure
from memoree.errors import Code, MemoreeError
from memoree.jobs.tenancy import CONTEXT
from memoree.objects.audit import BlobFault, BlobRef
from memoree.operations.call import Call, validate
from memoree.operations.erasure import erase_again
from memoree.operations.execute import outcome_of, run_read
from memoree.operations.view import Transaction, View
from memoree.verification.store import verify

from .bench import FACTS, LAB, Bench, Json, disagreements, text

LETTERS = "bcdfghjklmnpqrstvwxz"
PIECE = 8
"""So many bytes of a marker are nowhere by chance."""


def marker() -> str:
    """One word, of letters, so that it is learned too."""
    return "".join(secrets.choice(LETTERS) for _ in range(40))


def request(*entities: str, key: str = "erase/1", reason: str = "asked for") -> Call[Any]:
    """As a job sends it: no door takes it."""
    return validate(
        Envelope(
            request_id="req_erase",
            op="store.erase",
            idempotency_key=key,
            context=CONTEXT,
            context_source="explicit",
            input={"entities": list(entities), "reason": reason},
        )
    )


def erase(bench: Bench, *entities: str, **how: str) -> Json:
    (attempt,) = bench.commit([request(*entities, **how)])
    return outcome_of(bench.db, attempt).result


def cited(artifact: Json, span: tuple[int, int] | None = None) -> Json:
    whole = {name: artifact[name] for name in ("artifact_id", "revision_id")}
    return whole if span is None else whole | {"start_byte": span[0], "end_byte": span[1]}


def citation(artifact: Json, span: str = "") -> str:
    return f"memoree://artifact/{artifact['artifact_id']}@{artifact['revision_id']}{span}"


def relate(bench: Bench, source: Json, relation: str, target: Json, **metadata: str) -> Json:
    def end(name: str, record: Json) -> Json:
        kind = "claim" if "claim_id" in record else "artifact"
        return {f"{name}_type": kind, f"{name}_id": record[f"{kind}_id"]}

    edge = {**end("source", source), "relation": relation, **end("target", target)}
    return bench.write("relation.put", edge | {"metadata": metadata})


def pieces_in(directory: Path, secret: str) -> set[str]:
    """The files in which a piece of a marker is."""
    pieces = [secret[start : start + PIECE].encode() for start in range(len(secret) - PIECE + 1)]
    return {
        path.relative_to(directory).as_posix()
        for path in directory.rglob("*")
        if path.is_file() and any(piece in path.read_bytes() for piece in pieces)
    }


class WholeBlobs:
    """A `BlobAudit` for stores whose blobs are no matter."""

    def faults(self, referenced: Iterator[BlobRef]) -> Iterator[BlobFault]:
        list(referenced)
        return iter(())


def issues(bench: Bench) -> list[str]:
    return verify(bench.db, WholeBlobs()).lines()


def refusal(bench: Bench, op: str, input: Json) -> MemoreeError:
    with pytest.raises(MemoreeError) as refused:
        if op.rpartition(".")[2] in ("put", "revise", "forget", "assert", "retract"):
            bench.write(op, input)
        else:
            bench.read(op, input)
    return refused.value


def fill(bench: Bench, count: int = 120) -> None:
    """Enough of other texts for indexes of several pages and segments."""
    for number in range(count):
        bench.put(f"glaze {number}: " + " ".join(secrets.token_hex(5) for _ in range(60)), title=f"Recipe {number}")


@pytest.mark.proves("fault-16", "operations-8")
def test_no_piece_of_a_marker_is_left_in_any_page(bench: Bench, tmp_path: Path) -> None:
    """Given a marker in every place that holds a text of a caller, when what it stands in is erased and the database
    rewritten, then no eight bytes of it are in the file, its free pages or its log."""
    secret = marker()
    fill(bench)
    small = bench.put(f"it says {secret}.", title=f"About {secret}", provenance={"from": secret}, actor=secret)
    small = bench.revise(small, f"it said {secret}, {secret}", actor=secret, provenance={"again": secret})
    medium = bench.put(f"{secret} and more, ".ljust(64, "x") * 640, title="Forty KiB")
    large = bench.put((f"{secret} {secrets.token_hex(20)}\n") * 3700, title="Three hundred KiB")
    claim = bench.claim(f"It is {secret}.", evidence=[cited(small, (0, 4))], actor=secret)
    claim = bench.revise_claim(claim, f"It was {secret}.", actor=secret)
    other = bench.claim("It is something else.")
    relate(bench, claim, "contradicts", other, why=secret)
    relate(bench, small, "references", large, why=secret)
    bench.write("artifact.forget", {"artifact_id": large["artifact_id"], "reason": f"because of {secret}"})
    bench.write("projection.put", projection(small, f"leads to {secret}", key=secret, actor=secret))
    bench.write("feedback.record", feedback(small, secret))
    source = bench.write("source.register", {"name": "wiki", "kind": "wiki"})
    item = deliver(bench, source, f"page/{secret}", f"{secret} as delivered", revision=secret, actor=secret)
    bench.write(
        "source.withdraw",
        {"source_id": source["source_id"], "external_id": f"page/{secret}", "reason": secret, "actor": secret},
    )
    bench.write("artifact.put", {"kind": secret, "title": "Odd", "content": text("odd")}, key=f"key/{secret}")
    odd = str(scalar(bench.db, "SELECT artifact_id FROM artifacts ORDER BY row_id DESC LIMIT 1"))
    said = bench.put(f"they said {secret}", kind="episode", title=secret, provenance={secret: secret})
    bench.revise(said, f"they said it again, {secret}")
    doomed = [small["artifact_id"], medium["artifact_id"], large["artifact_id"], claim["claim_id"], odd]
    doomed.append(said["artifact_id"])
    assert pieces_in(tmp_path, secret) > {"store.sqlite3-wal"}

    result = erase(bench, *doomed, item["artifact"]["artifact_id"])
    compaction.compact(bench.db)

    left = {path for path in pieces_in(tmp_path, secret) if not path.startswith("objects/")}
    assert left == set()
    assert issues(bench) == []
    assert (result["blobs"], result["projections"], result["feedback"], result["source_items"]) == (2, 1, 1, 1)
    assert (result["revisions"], result["relations"]) == (10, 2)
    assert bench.db.execute("SELECT count(*) FROM episodes").get == 0


def projection(artifact: Json, told: str, *, key: str, actor: str) -> Json:
    return {
        **cited(artifact),
        "projection_key": key,
        "kind": "summary",
        "text": told,
        "evidence_spans": [{"start_byte": 0, "end_byte": 4}],
        "generator": told,
        "generator_version": "1",
        "generator_digest": "sha256:00",
        "metadata": {"told": told},
        "actor": actor,
    }


def feedback(artifact: Json, secret: str) -> Json:
    return {
        "query": f"where is {secret}",
        "outcome": "useful",
        "citations": [citation(artifact)],
        "note": secret,
        "retain_query": True,
        "actor": secret,
    }


def deliver(bench: Bench, source: Json, name: str, body: str, *, revision: str = "1", **fields: Any) -> Json:
    wanted = {
        "source_id": source["source_id"],
        "external_id": name,
        "external_revision": revision,
        "kind": "page",
        "title": f"Page {name}",
        "content": text(body),
    }
    return bench.write("source.ingest", wanted | fields)


@pytest.mark.proves("fault-16", "operations-8")
def test_the_beginning_of_an_erased_word_does_not_separate_two_pages(bench: Bench) -> None:
    """A word that begins a page of the index leaves that beginning where pages are told apart."""
    words = [f"{'q' * 30}{number:03}" for number in range(400)]
    artifacts = [bench.put(f"{word} " * 3, title=f"Word {word}") for word in words]
    bench.db.execute("INSERT INTO artifact_fts (artifact_fts) VALUES ('optimize')")
    separators = {bytes(term)[1:].decode() for (term,) in bench.db.execute("SELECT term FROM artifact_fts_idx")}
    leading = [
        artifact["artifact_id"]
        for artifact, word in zip(artifacts, words, strict=True)
        if any(len(each) > len("q" * 30) and word.startswith(each) for each in separators)
    ]
    assert leading
    result = erase(bench, *leading[:50])
    assert result["merged_indexes"] == ["artifact_fts"]
    assert issues(bench) == []
    assert bench.read("search", {"query": words[0]})["hits"] or words[0] in separators


LISTS: dict[str, Query] = {"artifacts": ArtifactQuery(status="any"), "claims": ClaimQuery(status="any")}


def listed(bench: Bench, name: str, query: Query) -> int:
    """How many items a list has for who may see everything of the project."""
    [listing] = [each for each in LISTINGS if each.name == name]
    call = Call(
        operation=listing.operation,
        request_id="req_list",
        context=AmbientContext(**LAB),
        context_source="explicit",
        idempotency_key="",
        fingerprint=b"",
        input=Position(query=query),
    )
    view = View(bench.db, bench.blobs, FACTS, bench.meta(), clock.stored(bench.clock()))
    return len(run_read(view, call)["items"])


@pytest.mark.proves("fault-14", "operations-9")
def test_no_surface_shows_an_erased_artifact_and_its_id_answers_erased(bench: Bench) -> None:
    secret = marker()
    artifact = bench.put(f"the kiln says {secret}", title=f"Kiln {secret}")
    claim = bench.claim(f"The kiln says {secret}.")
    assert [listed(bench, name, query) for name, query in LISTS.items()] == [1, 1]
    erased = erase(bench, artifact["artifact_id"], claim["claim_id"])
    for op, input in (
        ("artifact.get", {"artifact_id": artifact["artifact_id"]}),
        ("artifact.get", cited(artifact)),
        ("artifact.history", {"artifact_id": artifact["artifact_id"]}),
        ("claim.get", {"claim_id": claim["claim_id"]}),
        ("claim.history", {"claim_id": claim["claim_id"]}),
        ("relation.list", {"entity_type": "claim", "entity_id": claim["claim_id"]}),
        ("projection.list", {"artifact_id": artifact["artifact_id"]}),
        ("artifact.forget", {"artifact_id": artifact["artifact_id"], "reason": "again"}),
        ("claim.retract", {"claim_id": claim["claim_id"], "reason": "again"}),
        ("claim.assert", {"claim_type": "fact", "statement": "It rests on it.", "evidence": [cited(artifact)]}),
    ):
        error = refusal(bench, op, input)
        assert (error.code, (error.details or {}).get("kind")) == (Code.NOT_FOUND, "erased"), op
    error = refusal(bench, "citation.get", {"citation": citation(artifact, "#0-4")})
    assert error.details is not None
    assert (error.code, error.details["citation_error"]) == (Code.CITATION_ERROR, "erased")
    assert [listed(bench, name, query) for name, query in LISTS.items()] == [0, 0]
    for query in (secret, f"{secret[:-1]}y", "kiln says"):
        since = {"query": query, "min_commit_seq": erased["commit_seq"]}
        assert bench.read("search", since | {"include_historical": True})["hits"] == []
        answer = bench.read("memory.recall", since)
        assert (answer["claims"], answer["artifact_refs"]) == ([], [])


@pytest.mark.proves("fault-15", "operations-10")
def test_a_claim_that_cites_what_another_erased_one_cited_still_resolves(bench: Bench) -> None:
    artifact = bench.put("cone 6 reached at 21:40")
    erased, kept = (
        bench.claim(statement, evidence=[cited(artifact, (0, 6))]) for statement in ("It was hot.", "It was cone 6.")
    )
    erase(bench, erased["claim_id"])
    assert bench.read("claim.get", {"claim_id": kept["claim_id"]})["evidence"] == [cited(artifact, (0, 6))]
    assert bench.read("citation.get", {"citation": citation(artifact, "#0-6")})["content"] == "cone 6"
    hits = bench.read("search", {"query": "cone"})["hits"]
    assert {hit["entity_id"] for hit in hits} == {kept["claim_id"], artifact["artifact_id"]}
    assert issues(bench) == []


@pytest.mark.proves("fault-15", "operations-10")
def test_a_claim_whose_evidence_was_erased_says_so_and_keeps_its_other_evidence(bench: Bench) -> None:
    gone, kept = bench.put("the first log"), bench.put("the second log")
    claim = bench.claim("Both say so.", evidence=[cited(gone, (0, 9)), cited(kept, (0, 10))])
    erase(bench, gone["artifact_id"])
    assert bench.read("claim.get", {"claim_id": claim["claim_id"]})["evidence"] == claim["evidence"]
    assert bench.read("citation.get", {"citation": citation(kept, "#0-10")})["content"] == "the second"
    assert refusal(bench, "citation.get", {"citation": citation(gone, "#0-9")}).details["citation_error"] == "erased"  # type: ignore[index]
    answer = bench.read("memory.recall", {"query": "both say so"})
    assert "the first" not in str(answer) and "the second" in str(answer)
    assert issues(bench) == []


@pytest.mark.proves("fault-17", "operations-7")
def test_a_nearly_identical_claim_is_untouched(bench: Bench) -> None:
    erased, kept = bench.claim("Firing 12 reached cone 6."), bench.claim("Firing 12 reached cone 6!")
    erase(bench, erased["claim_id"])
    assert bench.read("claim.get", {"claim_id": kept["claim_id"]})["statement"] == "Firing 12 reached cone 6!"
    assert [hit["entity_id"] for hit in bench.read("search", {"query": "firing reached cone"})["hits"]] == [
        kept["claim_id"]
    ]
    with pytest.raises(MemoreeError, match="does not exist"):
        erase(bench, kept["claim_id"][:-1], key="erase/2")


@pytest.mark.proves("fault-18", "operations-7")
@pytest.mark.parametrize("wrong", ["src_01J00000000000000000000000", "arev_01J00000000000000000000000", "cone 6"])
def test_an_id_of_another_type_is_refused(bench: Bench, wrong: str) -> None:
    with pytest.raises(MemoreeError, match="expected art_ or clm_, got") as refused:
        request(wrong)
    assert refused.value.code is Code.INVALID_REQUEST
    assert wrong in refused.value.message


@pytest.mark.proves("fault-17", "operations-7")
def test_an_unknown_id_is_refused_before_anything_is_erased(bench: Bench) -> None:
    artifact = bench.put()
    with bench.refused_without_a_trace("NOT_FOUND"):
        erase(bench, artifact["artifact_id"], ids.new_id("clm"))


def test_a_repeat_erases_nothing_and_takes_no_commit(bench: Bench) -> None:
    artifact = bench.put()
    first = erase(bench, artifact["artifact_id"])
    before = bench.meta().commit_seq
    assert erase(bench, artifact["artifact_id"]) == first | {"created": False}
    again = erase(bench, artifact["artifact_id"], key="erase/2", reason="once more")
    assert (again["entities"], again["created"], bench.meta().commit_seq) == ([], False, before)


@pytest.mark.proves("fault-15", "operations-11")
def test_the_log_replays_and_the_sum_holds(bench: Bench) -> None:
    """Given claims in conflict, one of them superseded by another, when one is erased, then its case is resolved, the
    other claim is undisputed again, and the audit log tells all of it."""
    doomed, disputed, superseded = bench.claim("It is so."), bench.claim("It is not so."), bench.claim("It was so.")
    relate(bench, doomed, "contradicts", disputed)
    relate(bench, doomed, "supersedes", superseded)
    bench.revise_claim(doomed, "It is surely so.")
    erase(bench, doomed["claim_id"])
    assert disagreements(bench.db) == []
    assert integrity.recompute(bench.db) == bench.meta().integrity
    assert issues(bench) == []
    statuses = {
        each["claim_id"]: bench.read("claim.get", {"claim_id": each["claim_id"]})["status"]
        for each in (disputed, superseded)
    }
    assert list(statuses.values()) == ["active", "superseded"]
    assert bench.read("conflict.list", {"include_stale": True})["conflicts"] == []


@pytest.mark.proves("fault-15", "operations-11")
def test_two_claims_in_conflict_are_erased_together(bench: Bench) -> None:
    first, second, third = (bench.claim(f"It is {word}.") for word in ("red", "blue", "green"))
    for source, target in ((first, second), (third, first)):
        relate(bench, source, "contradicts", target, why="colours")
    erase(bench, first["claim_id"], second["claim_id"])
    assert bench.read("claim.get", {"claim_id": third["claim_id"]})["status"] == "active"
    assert issues(bench) == []


@pytest.mark.proves("fault-16", "operations-9")
def test_a_late_repeat_of_the_request_does_not_bring_it_back(bench: Bench) -> None:
    secret = marker()
    wanted = {"kind": "log", "title": "Kiln", "content": text(f"it says {secret}")}
    artifact = bench.write("artifact.put", wanted, key="put/secret")
    erase(bench, artifact["artifact_id"])
    with pytest.raises(MemoreeError) as refused:
        bench.write("artifact.put", wanted, key="put/secret")
    assert (refused.value.code, refused.value.details) == (Code.NOT_FOUND, {"kind": "erased"})
    assert bench.read("search", {"query": secret})["hits"] == []


@pytest.mark.proves("fault-16")
def test_neither_the_digest_nor_the_fingerprint_of_what_was_erased_stays(bench: Bench) -> None:
    """A short secret can be guessed from either."""
    call = bench.request("artifact.put", {"kind": "log", "title": "PIN", "content": text("4711")}, key="pin")
    (attempt,) = bench.commit([call])
    artifact = outcome_of(bench.db, attempt).result
    digest = bytes.fromhex(artifact["blob_hash"])
    erase(bench, artifact["artifact_id"])
    for table in [name for (name,) in bench.db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]:
        rows = bench.db.execute(f'SELECT * FROM "{table}"').fetchall() if "vocabulary" not in table else []
        assert not any(value in (digest, call.fingerprint, digest.hex()) for row in rows for value in row), table


@pytest.mark.proves("fault-16", "operations-8")
def test_refusals_that_may_quote_it_are_replaced(bench: Bench) -> None:
    source = bench.write("source.register", {"name": "wiki", "kind": "wiki"})
    secret = marker()
    item = deliver(bench, source, "page", "one", kind=secret)
    (refused,) = bench.commit([bench.request("source.ingest", {**again(source), "kind": "other"})])
    kept = attempts.find(bench.db, refused.attempt_id)
    assert kept is not None and secret in str(kept.error)
    erase(bench, item["artifact"]["artifact_id"])
    with pytest.raises(MemoreeError, match="went with an erasure") as told:
        outcome_of(bench.db, attempts.find(bench.db, refused.attempt_id))  # type: ignore[arg-type]
    assert told.value.code is Code.INVALID_REQUEST
    assert issues(bench) == []


def again(source: Json) -> Json:
    return {
        "source_id": source["source_id"],
        "external_id": "page",
        "external_revision": "2",
        "title": "Page",
        "content": text("two"),
    }


@pytest.mark.proves("fault-15", "operations-7")
def test_an_item_keeps_the_artifacts_that_it_did_not_stand_for_then(bench: Bench) -> None:
    """Given an item that was withdrawn and delivered again, when its first artifact is erased, then the second stays
    whole, and so do the answers about it."""
    source = bench.write("source.register", {"name": "wiki", "kind": "wiki"})
    first = deliver(bench, source, "page", "one", revision="1")
    gone = {"source_id": source["source_id"], "external_id": "page", "reason": "moved"}
    bench.write("artifact.forget", {"artifact_id": first["artifact"]["artifact_id"], "reason": "wrong"})
    bench.write("source.withdraw", gone, key="withdraw/1")
    call = bench.request("source.ingest", {**again(source), "kind": "page"}, key="deliver/2")
    (attempt,) = bench.commit([call])
    second = outcome_of(bench.db, attempt).result
    erase(bench, first["artifact"]["artifact_id"])
    assert outcome_of(bench.db, attempt).result == second
    assert bench.read("artifact.get", {"artifact_id": second["artifact"]["artifact_id"]})["content"] == text("two")
    with pytest.raises(MemoreeError, match="erased"):
        bench.write("source.withdraw", gone, key="withdraw/1")
    assert issues(bench) == []


@pytest.mark.proves("fault-16", "operations-10")
def test_what_quotes_an_erased_artifact_stays_and_is_told(bench: Bench) -> None:
    artifact = bench.put("the bytes of it")
    packet = bench.put(f"> the bytes\n\nSource: {citation(artifact, '#0-9')}")
    result = erase(bench, artifact["artifact_id"])
    assert result["derived"] == [packet["revision_id"]]
    assert bench.read("artifact.get", {"artifact_id": packet["artifact_id"]})["content"]["data"].startswith("> the")
    assert issues(bench) == []


@pytest.mark.proves("fault-16", "operations-10")
def test_a_blob_that_another_artifact_cites_is_not_condemned(bench: Bench) -> None:
    body = "shared line of a log\n" * 2000
    first, second = bench.put(body), bench.put(body)
    assert erase(bench, first["artifact_id"])["blobs"] == 0
    assert list(condemned.rows(bench.db)) == []
    assert bench.read("citation.get", {"citation": citation(second, "#7-14")})["content"] == "line of"
    assert erase(bench, second["artifact_id"], key="erase/2")["blobs"] == 1
    assert [row.digest.hex() for row in condemned.rows(bench.db)] == [second["blob_hash"]]
    with pytest.raises(MemoreeError) as refused:
        bench.put(body)
    assert refused.value.details is not None and refused.value.details["reason"] == "digest_condemned"


@pytest.mark.proves("fault-16", "operations-8")
def test_a_word_goes_unless_another_text_has_it(bench: Bench) -> None:
    bench.claim("The saggar cracked.")
    artifact = bench.put("celadon saggar", title="Saggar")
    assert bench.read("search", {"query": "celadom"})["hits"] != []
    assert erase(bench, artifact["artifact_id"])["words"] > 0
    words = {word for (word,) in bench.db.execute("SELECT word FROM words")}
    assert "saggar" in words and "celadon" not in words
    assert bench.read("search", {"query": "sagger cracked"})["hits"] != []
    bench.put("pyrometer", title="Saggar")  # in the row that the last word had
    assert bench.read("search", {"query": "pyrometar"})["hits"] != []


# --- restored and imported databases ------------------------------------------------------------------------------


def transaction(bench: Bench) -> Transaction:
    counters = bench.meta()
    return Transaction(
        db=bench.db,
        blobs=bench.blobs,
        facts=FACTS,
        meta=counters,
        now="2026-03-02T20:41:08.000000000Z",
        presence=bench.blobs,
        sum=integrity.Sum.of(counters),
    )


def apply_again(bench: Bench, recorded: Sequence[Erasure]) -> int:
    tx = transaction(bench)
    with bench.db:
        count = erase_again(tx, recorded)
        tx.sum.keep_in(tx.meta)
        meta.write(bench.db, tx.meta)
    return count


@pytest.mark.proves("fault-16", "operations-15")
def test_a_recorded_erasure_is_applied_again_and_only_once(bench: Bench) -> None:
    secret = marker()
    artifact, claim, kept = bench.put(secret), bench.claim(f"It is {secret}."), bench.put("kept")
    unknown = ids.new_id("art")
    recorded = [
        Erasure("ers_1", "2026-03-02T00:00:00Z", 1, (artifact["artifact_id"], unknown), ()),
        Erasure("ers_2", "2026-03-02T00:00:00Z", 2, (claim["claim_id"], artifact["artifact_id"]), ()),
    ]
    before = bench.meta().commit_seq
    assert apply_again(bench, recorded) == 2
    assert bench.meta().commit_seq == before + 1
    assert issues(bench) == []
    assert refusal(bench, "claim.get", {"claim_id": claim["claim_id"]}).details == {"kind": "erased"}
    assert bench.read("artifact.get", {"artifact_id": kept["artifact_id"]})["title"] == "Kiln firing 12"
    assert apply_again(bench, recorded) == 0
    assert bench.meta().commit_seq == before + 1


# --- what verify says ---------------------------------------------------------------------------------------------


@pytest.mark.proves("fault-16", "operations-11")
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE artifact_revisions SET title = 'left'",
        "UPDATE artifact_revisions SET body = NULL",
        "UPDATE claim_revisions SET statement = 'left'",
        "UPDATE claim_revisions SET actor = 'left'",
        "UPDATE artifacts SET forgotten_reason = 'left'",
        "UPDATE relations SET metadata = '{\"left\": 1}'",
        "UPDATE projections SET text = 'left'",
        "UPDATE source_items SET external_id = 'left'",
        "UPDATE feedback SET note = (SELECT artifact_id FROM artifacts LIMIT 1)",
        "UPDATE idempotency SET result = '{\"left\": 1}' WHERE commit_seq = 1",
        "UPDATE events SET actor = 'left' WHERE commit_seq = 1",
        "INSERT INTO words (word) VALUES ('leftover')",
        "UPDATE artifacts SET erasure_row = NULL; UPDATE claims SET erasure_row = NULL",
    ],
)
def test_verify_tells_what_an_erasure_left_behind(bench: Bench, damage: str) -> None:
    artifact, claim = bench.put("it is", actor="ann"), bench.claim("It is.")
    relate(bench, artifact, "references", claim)
    bench.write(
        "projection.put",
        projection(artifact, "it", key="one", actor="ann") | {"evidence_spans": [{"start_byte": 0, "end_byte": 2}]},
    )
    bench.write("feedback.record", feedback(artifact, "it"))
    source = bench.write("source.register", {"name": "wiki", "kind": "wiki"})
    item = deliver(bench, source, "page", "it")
    erase(bench, artifact["artifact_id"], claim["claim_id"], item["artifact"]["artifact_id"])
    assert issues(bench) == []
    erasures.permit(bench.db, allowed=True)
    bench.db.execute(damage)
    erasures.permit(bench.db, allowed=False)
    assert [issue for issue in issues(bench) if issue.startswith("erasure ")]


@pytest.mark.proves("fault-16", "operations-8")
def test_a_database_is_rewritten_once_after_an_erasure_and_waits_for_its_readers(bench: Bench, tmp_path: Path) -> None:
    artifact = bench.put()
    assert compaction.is_compact(bench.db)
    erase(bench, artifact["artifact_id"])
    assert not compaction.is_compact(bench.db)
    reader = apsw.Connection(str(tmp_path / "store.sqlite3"))
    reader.execute("BEGIN; SELECT count(*) FROM artifacts").fetchall()
    bench.db.set_busy_timeout(0)
    with pytest.raises(apsw.BusyError):
        compaction.compact(bench.db)
    reader.close()
    compaction.compact(bench.db)
    assert compaction.is_compact(bench.db)
    assert (tmp_path / "store.sqlite3-wal").stat().st_size == 0
