"""`POST /v1/call`: always an envelope, and one status per error code (rulings, "Errors and statuses")."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .door import AsgiDoor, Json, ManualClock, check_http_status
from .protocol import MIB
from .workbench import Workbench, raw, text


@pytest.fixture
def over_http(tmp_path: Path) -> Iterator[AsgiDoor]:
    door = AsgiDoor(tmp_path / "store", ManualClock())
    yield door
    door.close()


def test_every_reachable_code_has_its_status(over_http: AsgiDoor) -> None:
    """The door itself compares each status with the table; here every code is provoked once."""
    bench = Workbench(over_http)
    artifact = bench.put(how={"key": "used"})
    put: Json = {"kind": "note", "title": "t", "content": text("x")}
    revision = {"artifact_id": artifact["artifact_id"], "if_revision": "arev_stale", "content": text("x")}
    over_http.ok("doctor")
    over_http.refused("INVALID_REQUEST", "doctor", {"surplus": 1})
    over_http.refused("UNSUPPORTED_VERSION", "doctor", v=2)
    over_http.refused("NO_AMBIENT_CONTEXT", "search", {"query": "cone"}, context=None)
    over_http.refused("SCOPE_VIOLATION", "artifact.revise", revision, context=over_http.here(project_id="prj_other"))
    over_http.refused("NOT_FOUND", "artifact.get", {"artifact_id": "art_unknown"})
    over_http.refused("REVISION_CONFLICT", "artifact.revise", revision)
    over_http.refused("IDEMPOTENCY_CONFLICT", "artifact.put", put, key="used")
    over_http.refused("CONTENT_TOO_LARGE", "artifact.put", put | {"content": raw(b"x" * (8 * MIB + 1))})
    over_http.refused("INDEX_NOT_READY", "search", {"query": "cone", "min_commit_seq": 2})


def test_a_body_that_is_no_request_is_400_and_one_over_24_mib_413(over_http: AsgiDoor) -> None:
    for body, code in ((b"{", "INVALID_REQUEST"), (b" " * (24 * MIB + 1), "CONTENT_TOO_LARGE")):
        answer = over_http.send(body)
        assert answer["error"]["code"] == code
        assert answer["request_id"] == "req_transport"


def test_a_wrong_status_would_be_seen() -> None:
    check_http_status(200, {"ok": True})
    check_http_status(404, {"ok": False, "error": {"code": "NOT_FOUND"}})
    with pytest.raises(AssertionError):
        check_http_status(200, {"ok": False, "error": {"code": "NOT_FOUND"}})
    with pytest.raises(AssertionError):
        check_http_status(202, {"ok": True})
