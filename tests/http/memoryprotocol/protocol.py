"""A client of MemoryProtocol, and what every answer of it must be."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import httpx

from memoree.data_directory import DATABASE_NAME

Json = dict[str, Any]

ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
ABSENT = "01KJR4GZXJDFPSG3SB9V65FA1E"
ROUTES = {
    "ingest": ("POST", "/v1/ingest", {"source": "kiln:log", "content": "cone 6 reached"}),
    "recall": ("POST", "/v1/recall", {"query": "cone"}),
    "forget": ("POST", "/v1/forget", {"target": {"Id": ABSENT}, "dry_run": True}),
    "snapshot": ("GET", "/v1/snapshot/0.0", None),
    "episode": ("GET", f"/v1/episode/{ABSENT}", None),
}
"""By name: method, path, and a body that is understood."""


class Protocol:
    """One caller of one server. Every answer is checked for what all of them have in common."""

    def __init__(self, base_url: str, token: str | None = None) -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.http = httpx.Client(base_url=base_url, headers=headers, timeout=60.0, trust_env=False)

    def request(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        """The body is JSON, unless it is bytes."""
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        typed = {} if content is None else {"Content-Type": "application/json"}
        response = self.http.request(method, path, content=content, headers={**typed, **(headers or {})})
        assert response.headers["content-type"] == "application/json"
        if not response.is_success:
            error = response.json()
            assert isinstance(error["error"], str) and isinstance(error["message"], str)
        return response

    def route(self, name: str, headers: Mapping[str, str] | None = None) -> Any:
        method, path, body = ROUTES[name]
        return self.request(method, path, body, headers)

    def ingest(self, content: str = "cone 6 reached at 21:40", source: str = "kiln:log", **members: Any) -> Json:
        """One that must be stored; returns its LSN."""
        response = self.send({"source": source, "content": content, **members})
        assert response.status_code == 200, response.text
        lsn: Json = response.json()["lsn"]
        return lsn

    def send(self, body: Any, **headers: str) -> Any:
        """Whatever it is, to `POST /v1/ingest`."""
        return self.request(
            "POST", "/v1/ingest", body, {name.replace("_", "-"): each for name, each in headers.items()}
        )

    def get(self, episode_id: str) -> Any:
        return self.request("GET", f"/v1/episode/{episode_id}")

    def episode(self, episode_id: str) -> Json:
        response = self.get(episode_id)
        assert response.status_code == 200, response.text
        found: Json = response.json()
        return found

    def close(self) -> None:
        self.http.close()


def refused(response: httpx.Response, status: int, code: str) -> str:
    """The message of a refusal."""
    assert (response.status_code, response.json().get("error")) == (status, code), response.text
    return str(response.json()["message"])


def as_pair(lsn: Mapping[str, int]) -> tuple[int, int]:
    return lsn["wall_ms"], lsn["counter"]


def stored_ids(store: Path) -> list[str]:
    """The ids of the episodes of a store as they are now, read behind the program's back."""
    return list(_rows(store, "SELECT episode_id FROM episodes WHERE sys_to IS NULL ORDER BY row_id"))


def commits(store: Path) -> int:
    """How many there are; none where nobody has asked for the store yet."""
    return int(next(_rows(store, "SELECT commit_seq FROM meta"), 0))


def _rows(store: Path, statement: str) -> Iterator[str]:
    if not (store / DATABASE_NAME).exists():
        return
    with closing(apsw.Connection(str(store / DATABASE_NAME), flags=apsw.SQLITE_OPEN_READONLY)) as db:
        for (value,) in db.execute(statement).fetchall():
            yield str(value)
