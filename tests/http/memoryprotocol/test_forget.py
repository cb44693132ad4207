"""`POST /v1/forget` (contract §8)."""

from __future__ import annotations

import json
import logging
import secrets
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from memoree import limits
from memoree.data_directory import DATABASE_NAME
from memoree.database.connection import open_reader

from .conftest import As
from .protocol import ABSENT, Json, Protocol, refused, stored_ids

OTHER = f"{ABSENT[:25]}0"
MARKER = "wq7kiln5marker9x"
NEVER = "01KJR4GZXJDFPSG3SB9V65FA1Z"


def by_id(episode_id: str = ABSENT) -> Json:
    return {"Id": episode_id}


def by_source(prefix: str) -> Json:
    return {"Scope": {"BySource": prefix}}


def by_metadata(key: str, value: str) -> Json:
    return {"Scope": {"ByMetadata": [key, value]}}


def ask(client: Protocol, target: Any, **members: Any) -> Any:
    return client.request("POST", "/v1/forget", {"target": target, **members})


def forget(client: Protocol, target: Any, **members: Any) -> Json:
    """One that must succeed; returns its receipt."""
    response = ask(client, target, **members)
    assert response.status_code == 200, response.text
    receipt: Json = response.json()
    assert receipt["indices_affected"] == ["Kv", "Vector", "Graph"]
    return receipt


def preview(client: Protocol, target: Any = None) -> Json:
    receipt = forget(client, target or by_id(), dry_run=True)
    assert receipt["preview"] is True
    return receipt


def delete(client: Protocol, receipt: Json, target: Any = None, **members: Any) -> Any:
    return ask(client, target or receipt["target"], hard=True, confirmation_token=json.dumps(receipt), **members)


def counts(receipt: Json) -> tuple[int, int, int, bool]:
    return receipt["matched"], receipt["rows_written"], receipt["rows_deleted"], receipt["preview"]


def recalled(client: Protocol, query: str, **members: Any) -> list[str]:
    response = client.request("POST", "/v1/recall", {"query": query, **members})
    assert response.status_code == 200, response.text
    return [hit["text"] for hit in response.json()]


def snapshot(client: Protocol, position: str) -> str:
    response = client.http.get(f"/v1/snapshot/{position}")
    assert response.status_code == 200, response.text
    return response.text


def present() -> str:
    return f"{time.time_ns() // 1_000_000}.4294967295"


def events(store: Path) -> list[Json]:
    """The audit events of forgetting, as the database holds them."""
    db = sqlite3.connect(f"file:{store / DATABASE_NAME}?mode=ro", uri=True)
    try:
        rows = db.execute(
            "SELECT payload FROM events WHERE operation = 'episode.forget' ORDER BY commit_seq"
        ).fetchall()
    finally:
        db.close()
    return [json.loads(payload) for (payload,) in rows]


# --- softly -----------------------------------------------------------------------------------------------------


@pytest.mark.proves("memoryprotocol-61")
def test_a_dry_run_tells_and_changes_nothing(a: Protocol) -> None:
    a.ingest(id=ABSENT)
    receipt = preview(a)
    assert counts(receipt) == (1, 0, 0, True) and receipt["target"] == by_id()
    assert set(receipt) == {
        "target", "indices_affected", "matched", "rows_written", "rows_deleted", "audit_lsn", "preview"
    }  # fmt: skip
    assert a.episode(ABSENT)["id"] == ABSENT


@pytest.mark.proves("memoryprotocol-62")
@pytest.mark.parametrize("members", [{}, {"dry_run": True}])
def test_an_unknown_id_is_404(a: Protocol, members: Json) -> None:
    a.ingest(id=ABSENT)
    refused(ask(a, by_id(OTHER), **members), 404, "not_found")


@pytest.mark.proves("memoryprotocol-63", "memoryprotocol-44")
def test_what_is_forgotten_leaves_the_present_and_stays_in_its_past(a: Protocol) -> None:
    lsn = a.ingest(MARKER, id=ABSENT)
    time.sleep(0.002)
    assert counts(forget(a, by_id(ABSENT.lower()))) == (1, 1, 0, False)
    refused(a.get(ABSENT), 404, "episode_not_found")
    refused(ask(a, by_id()), 404, "not_found")
    assert recalled(a, MARKER) == [] and MARKER not in snapshot(a, present())
    assert MARKER in snapshot(a, f"{lsn['wall_ms']}.{lsn['counter']}")
    a.ingest("again", id=ABSENT)
    assert a.episode(ABSENT)["content"] == "again"


@pytest.mark.proves("memoryprotocol-10")
def test_the_id_of_another_tenant_answers_as_one_of_nobody(as_token: As) -> None:
    owner, other = as_token("tok-a"), as_token("tok-b")
    owner.ingest(id=ABSENT)
    foreign, nobody = ask(other, by_id()), ask(other, by_id(NEVER))
    assert (foreign.status_code, foreign.json().get("error")) == (nobody.status_code, nobody.json()["error"])
    assert foreign.json()["message"].replace(ABSENT, NEVER) == nobody.json()["message"]
    assert owner.episode(ABSENT)["id"] == ABSENT


@pytest.mark.proves("memoryprotocol-73")
def test_a_source_prefix_takes_all_and_only_those_that_begin_so(a: Protocol) -> None:
    for number, source in enumerate(["kiln:a", "kiln:a/b", "kiln:", "kiln%", "Kiln:a", "xkiln:a", "kiln:\U0010ffffz"]):
        a.ingest(id=f"{ABSENT[:25]}{number}", source=source)
    assert counts(forget(a, by_source("kiln:"))) == (4, 4, 0, False)
    assert [a.get(f"{ABSENT[:25]}{number}").status_code for number in range(7)] == [404, 404, 404, 200, 200, 200, 404]
    assert counts(forget(a, by_source("kiln:"))) == (0, 0, 0, False)
    refused(ask(a, by_source("")), 400, "validate")


@pytest.mark.proves("memoryprotocol-74")
def test_metadata_matches_texts_only(a: Protocol) -> None:
    for number, value in enumerate(["v", ["v"], 1, True, {"k": "v"}, "1", "V"]):
        a.ingest(id=f"{ABSENT[:25]}{number}", metadata={"k": value})
    assert forget(a, by_metadata("k", "v"), dry_run=True)["matched"] == 1
    assert counts(forget(a, by_metadata("k", "1"))) == (1, 1, 0, False)
    assert forget(a, by_metadata("k", "true"))["matched"] == 0
    assert [a.get(f"{ABSENT[:25]}{number}").status_code for number in range(7)] == [200] * 5 + [404, 200]


def test_by_episode_is_one_id_and_answers_with_zeros_for_none(a: Protocol) -> None:
    a.ingest(id=ABSENT)
    assert counts(forget(a, {"Scope": {"ByEpisode": ABSENT}})) == (1, 1, 0, False)
    assert counts(forget(a, {"Scope": {"ByEpisode": ABSENT}})) == (0, 0, 0, False)


@pytest.mark.proves("memoryprotocol-75")
def test_before_is_strict(a: Protocol) -> None:
    first = a.ingest("first", id=ABSENT)
    time.sleep(0.002)
    second = a.ingest("second", id=OTHER)
    assert forget(a, {"Before": first}, dry_run=True)["matched"] == 0
    assert forget(a, {"Before": {**second, "node_id": 1}}, dry_run=True)["matched"] == 2
    receipt = forget(a, {"Before": second})
    assert counts(receipt) == (1, 1, 0, False)
    assert receipt["target"] == {"Before": {**second, "node_id": 0}}
    assert (a.get(ABSENT).status_code, a.get(OTHER).status_code) == (404, 200)
    assert forget(a, {"Before": {"wall_ms": 2**64 - 1, "counter": 2**32 - 1, "node_id": 1}})["matched"] == 1


@pytest.mark.proves("memoryprotocol-76", "memoryprotocol-11")
@pytest.mark.parametrize(
    "target",
    [
        {"id": ABSENT},
        {"Id": ABSENT, "Scope": {"BySource": "x"}},
        {},
        {"Scope": {}},
        {"Scope": {"BySource": "x", "ByEpisode": ABSENT}},
        {"Scope": {"ByMetadata": ["k"]}},
        {"Scope": {"ByMetadata": ["k", 1]}},
        {"Before": {"wall_ms": -1, "counter": 0}},
        {"Before": {"wall_ms": 1}},
        {"Id": "TOOSHORT"},
        {"Id": None},
        "everything",
    ],
)
def test_what_is_no_target_is_422(a: Protocol, store_a: Path, target: Any) -> None:
    a.ingest(id=ABSENT)
    refused(ask(a, target), 422, "validate")
    for extra in ("tenant", "scope"):
        refused(ask(a, by_id(), **{extra: "B"}), 422, "validate")
    assert stored_ids(store_a) == [ABSENT]


@pytest.mark.proves("memoryprotocol-78")
def test_every_forgetting_is_one_audit_event(a: Protocol, store_a: Path) -> None:
    a.ingest(id=ABSENT, source="kiln:log")
    preview(a)
    forget(a, by_source("kiln:"))
    told = events(store_a)
    assert [each["kind"] for each in told] == ["Forget", "Forget"]
    assert [(each["preview"], each["rows_written"], each["target"]) for each in told] == [
        (True, 0, by_id()), (False, 1, by_source("kiln:"))
    ]  # fmt: skip


# --- for good ---------------------------------------------------------------------------------------------------


@pytest.mark.proves("memoryprotocol-64")
@pytest.mark.parametrize("members", [{}, {"confirmation_token": None}, {"confirmation_token": ""}])
def test_without_a_receipt_nothing_is_deleted(a: Protocol, members: Json) -> None:
    a.ingest(id=ABSENT)
    refused(ask(a, by_id(), hard=True, **members), 428, "confirmation_required")
    assert a.episode(ABSENT)["id"] == ABSENT


@pytest.mark.proves("memoryprotocol-65")
def test_what_is_no_receipt_is_400_and_what_is_no_text_422(a: Protocol) -> None:
    a.ingest(id=ABSENT)
    for token in ("not json", "{}", "[]", "null", '{"preview": true}'):
        message = refused(ask(a, by_id(), hard=True, confirmation_token=token), 400, "invalid_confirmation_token")
        assert message.startswith("confirmation_token must be a serialized ForgetReceipt: ")
    for token in ({}, 7, preview(a)):
        refused(ask(a, by_id(), hard=True, confirmation_token=token), 422, "validate")
    assert a.episode(ABSENT)["id"] == ABSENT


@pytest.mark.proves("memoryprotocol-66", "memoryprotocol-67", "memoryprotocol-72")
def test_a_receipt_confirms_however_it_is_written(a: Protocol, store_a: Path) -> None:
    lsn = a.ingest(f"before {MARKER}", id=ABSENT, metadata={"note": MARKER})
    a.ingest(f"after {MARKER}", id=ABSENT, source=MARKER)
    a.ingest("stays", id=OTHER)
    receipt = preview(a)
    del receipt["matched"]
    text = json.dumps({**receipt, "of a later version": [1]}, sort_keys=True, indent=2)
    done = forget(a, by_id(), hard=True, confirmation_token=text)
    assert counts(done) == (1, 0, 1, False)
    refused(a.get(ABSENT), 404, "episode_not_found")
    assert recalled(a, MARKER) == [] and recalled(a, MARKER, as_of="2100-01-01T00:00:00Z") == []
    for position in (present(), f"{lsn['wall_ms']}.{lsn['counter']}"):
        assert MARKER not in snapshot(a, position)
    assert a.episode(OTHER)["content"] == "stays"
    refused(ask(a, by_id()), 404, "not_found")


@pytest.mark.proves("memoryprotocol-67")
def test_what_an_id_was_before_it_was_forgotten_is_deleted_with_what_it_is_now(a: Protocol, store_a: Path) -> None:
    lsn = a.ingest(f"the first {MARKER}", id=ABSENT)
    forget(a, by_id())
    a.ingest("the second", id=ABSENT)
    assert counts(delete(a, preview(a)).json()) == (1, 0, 1, False)
    assert snapshot(a, f"{lsn['wall_ms']}.{lsn['counter']}") == ""
    assert MARKER.encode() not in (store_a / DATABASE_NAME).read_bytes()


def filled(client: Protocol, secret: str) -> None:
    """So many that SQLite moves rows about, which leaves copies in free space."""
    for number in range(60):
        text = f"a text with {secret} and firing {number}. " * (1 + number % 7)
        client.ingest(text, source=f"{secret}:{number}", metadata={secret: secret})


def files_with(directory: Path, secret: str) -> list[Path]:
    """Those that hold any eight bytes of it in a row."""
    pieces = [secret[start : start + 8].encode() for start in range(len(secret) - 7)]
    bodies = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    return [path for path, body in bodies.items() if any(piece in body for piece in pieces)]


@pytest.mark.proves("memoryprotocol-67")
def test_no_byte_of_it_is_left_in_the_data_directory(a: Protocol, store_a: Path) -> None:
    """When the receipt is answered, which says so; not even of the words that named it."""
    secret = "".join(secrets.choice("bcdfghjklmnpqrstvwxz") for _ in range(40))
    filled(a, secret)
    a.ingest("stays", id=ABSENT)
    assert files_with(store_a, secret), "a look that finds nothing proves nothing"
    done = delete(a, preview(a, by_source(secret))).json()
    assert files_with(store_a, secret) == []
    assert done.get("stores", {}).get("database") == "erased"
    assert {name for name, line in done["stores"].items() if line != "erased"} == {"parked_commands", "answers"}
    assert a.episode(ABSENT)["content"] == "stays"
    assert delete(a, preview(a, by_source(secret))).status_code == 200
    assert files_with(store_a, secret) == []


def test_while_an_earlier_state_is_read_the_receipt_says_so_and_the_files_are_rewritten_after(
    a: Protocol, store_a: Path
) -> None:
    filled(a, MARKER)
    with closing(open_reader(store_a / DATABASE_NAME, immutable=False)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM meta").fetchall()
        done = delete(a, preview(a, by_source(MARKER))).json()
        assert done["stores"]["database"].startswith("retained_until ")
        assert files_with(store_a, MARKER)
        a.ingest("others are not kept waiting", id=ABSENT)
    deadline = time.monotonic() + 10.0
    while found := files_with(store_a, MARKER):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def test_neither_what_was_deleted_nor_what_was_asked_is_in_a_log(
    a: Protocol, store_a: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even at the lowest level, and whatever was refused."""
    caplog.set_level(logging.DEBUG)
    a.ingest(f"a text with {MARKER}", id=ABSENT, source=MARKER, metadata={MARKER: MARKER})
    recalled(a, f"a text with {MARKER}", mode="graph")
    for body in (
        {"query": MARKER, "filter": MARKER},
        {"query": MARKER, "as_of": MARKER},
        {"query": [MARKER]},
        {MARKER: 1},
    ):
        assert a.request("POST", "/v1/recall", body).status_code in (400, 422)
    assert a.request("POST", "/v1/recall", {"query": f"{MARKER} " * 10_000}).status_code in (400, 422)
    assert a.request("POST", "/v1/recall", f"{{{MARKER}".encode()).status_code == 400
    refused(ask(a, by_id(), hard=True, confirmation_token=MARKER), 400, "invalid_confirmation_token")
    assert delete(a, preview(a, by_source(MARKER))).status_code == 200
    assert caplog.records, "a log that is empty proves nothing"
    assert MARKER not in caplog.text and not any(MARKER in str(vars(record)) for record in caplog.records)


@pytest.mark.proves("memoryprotocol-68")
def test_a_receipt_of_no_dry_run_confirms_nothing(a: Protocol) -> None:
    a.ingest(id=ABSENT)
    done = forget(a, by_id())
    a.ingest(id=ABSENT)
    refused(delete(a, done), 428, "confirmation_required")
    refused(delete(a, {**done, "preview": True}), 428, "confirmation_required")
    assert a.episode(ABSENT)["id"] == ABSENT


@pytest.mark.proves("memoryprotocol-69")
def test_a_receipt_of_another_target_confirms_nothing(a: Protocol) -> None:
    a.ingest(id=ABSENT)
    a.ingest(id=OTHER)
    receipt = preview(a)
    refused(delete(a, receipt, by_id(OTHER)), 428, "confirmation_required")
    refused(delete(a, {**receipt, "target": by_id(OTHER)}), 428, "confirmation_required")
    assert a.episode(OTHER)["id"] == OTHER
    assert delete(a, receipt).status_code == 200


@pytest.mark.proves("memoryprotocol-70")
def test_a_receipt_of_another_tenant_or_of_nobody_confirms_nothing(as_token: As) -> None:
    owner, other = as_token("tok-a"), as_token("tok-b")
    for client in (owner, other):
        client.ingest(id=ABSENT)
    receipt = preview(owner)
    refused(delete(other, receipt), 428, "confirmation_required")
    lsn = owner.ingest("another commit")
    none = ({}, {"wall_ms": 1}, {"wall_ms": -1, "counter": 0}, {"wall_ms": 1, "counter": 2**32})
    for made_up in ({"wall_ms": 1, "counter": 0}, lsn, {"wall_ms": 2**64 - 1, "counter": 0}, *none):
        refused(delete(owner, {**receipt, "audit_lsn": made_up}), 428, "confirmation_required")
    assert other.episode(ABSENT)["id"] == owner.episode(ABSENT)["id"] == ABSENT


@pytest.mark.proves("memoryprotocol-71")
def test_a_receipt_is_used_up(a: Protocol) -> None:
    a.ingest(id=ABSENT)
    receipt = preview(a)
    assert delete(a, receipt).status_code == 200
    a.ingest("again", id=ABSENT)
    refused(delete(a, receipt), 428, "confirmation_required")
    assert a.episode(ABSENT)["content"] == "again"


@pytest.mark.proves("memoryprotocol-71")
def test_a_receipt_is_used_up_also_for_what_it_counted_and_did_not_delete(a: Protocol) -> None:
    a.ingest(id=ABSENT, source="kiln:1")
    a.ingest(id=OTHER, source="kiln:2")
    receipt = preview(a, by_source("kiln:"))
    forget(a, by_id(OTHER))
    assert delete(a, receipt).json()["rows_deleted"] == 1
    a.ingest("again", id=OTHER, source="kiln:2")
    refused(delete(a, receipt), 428, "confirmation_required")
    assert a.episode(OTHER)["content"] == "again"


@pytest.mark.proves("memoryprotocol-77")
def test_more_than_was_previewed_is_not_deleted_and_less_is(a: Protocol) -> None:
    a.ingest(id=ABSENT, source="kiln:1")
    receipt = preview(a, by_source("kiln:"))
    a.ingest(id=OTHER, source="kiln:2")
    refused(delete(a, receipt), 428, "confirmation_required")
    assert (a.get(ABSENT).status_code, a.get(OTHER).status_code) == (200, 200)
    forget(a, by_id(OTHER))
    assert delete(a, receipt).json()["rows_deleted"] == 1


@pytest.mark.proves("memoryprotocol-77")
@pytest.mark.parametrize(
    "target", [by_source("kiln:"), by_metadata("batch", "12"), {"Before": {"wall_ms": 2**47, "counter": 0}}]
)
def test_as_many_others_as_were_previewed_are_not_deleted(a: Protocol, target: Json) -> None:
    a.ingest(id=ABSENT, source="kiln:1", metadata={"batch": "12"})
    receipt = preview(a, target)
    forget(a, by_id())
    a.ingest(id=OTHER, source="kiln:2", metadata={"batch": "12"})
    refused(delete(a, receipt), 428, "confirmation_required")
    assert a.get(OTHER).status_code == 200


@pytest.mark.proves("memoryprotocol-77")
def test_what_came_under_the_target_since_is_not_deleted_and_what_was_replaced_under_it_is(a: Protocol) -> None:
    a.ingest(id=ABSENT, source="kiln:1")
    a.ingest(id=OTHER, source="talk:1")
    receipt = preview(a, by_source("kiln:"))
    a.ingest("replaced", id=ABSENT, source="talk:1")
    a.ingest("replaced", id=OTHER, source="kiln:1")
    refused(delete(a, receipt), 428, "confirmation_required")
    a.ingest("replaced again", id=ABSENT, source="kiln:1")
    a.ingest("replaced again", id=OTHER, source="talk:1")
    assert delete(a, receipt).json()["rows_deleted"] == 1
    assert (a.get(ABSENT).status_code, a.get(OTHER).status_code) == (404, 200)


def test_a_deletion_of_what_is_gone_by_now_deletes_nothing(a: Protocol) -> None:
    a.ingest(id=ABSENT, source="kiln:1")
    receipt = preview(a, by_source("kiln:"))
    forget(a, by_id())
    assert counts(delete(a, receipt).json()) == (0, 0, 0, False)


@pytest.mark.proves("memoryprotocol-79")
def test_a_confirmed_dry_run_uses_nothing_up(a: Protocol) -> None:
    a.ingest(id=ABSENT)
    refused(ask(a, by_id(), hard=True, dry_run=True), 428, "confirmation_required")
    receipt = preview(a)
    assert counts(delete(a, receipt, dry_run=True).json()) == (1, 0, 0, True)
    assert a.episode(ABSENT)["id"] == ABSENT
    assert delete(a, receipt).json()["rows_deleted"] == 1


def test_a_receipt_has_its_day(a: Protocol, monkeypatch: pytest.MonkeyPatch) -> None:
    a.ingest(id=ABSENT)
    receipt = preview(a)
    monkeypatch.setattr(limits, "FORGET_PREVIEW_SECONDS_MAX", 0.0)
    time.sleep(0.002)
    refused(delete(a, receipt), 428, "confirmation_required")


def test_too_many_at_once_are_refused(a: Protocol, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EPISODES_FORGOTTEN_MAX", 2)
    for number in range(3):
        a.ingest(id=f"{ABSENT[:25]}{number}", source=f"kiln:{number}")
    refused(ask(a, by_source("kiln:")), 400, "validate")
    assert forget(a, by_source("kiln:1"))["rows_written"] == 1


@pytest.mark.proves("memoryprotocol-4")
def test_it_needs_the_scope_forget(as_token: As) -> None:
    for token in ("tok-in", "tok-read"):
        refused(ask(as_token(token), by_id()), 403, "forbidden")
