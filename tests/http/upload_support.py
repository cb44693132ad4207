"""What an agent does to store large content: declare it, send it, name it."""

from __future__ import annotations

import uuid
from typing import Any

import httpx
from blake3 import blake3
from http_support import Caller, Json, envelope

UPLOADS = "/v1/artifacts/uploads"


def declaration(body: bytes, **other: Any) -> Json:
    return {"size_bytes": len(body), "blob_hash": blake3(body).hexdigest()} | other


def declare(caller: Caller, body: bytes, **other: Any) -> Json:
    answer = caller.http.post(UPLOADS, json=declaration(body, **other))
    assert answer.status_code == 201, answer.text
    ticket: Json = answer.json()
    return ticket


def send(caller: Caller, ticket: Json, body: bytes) -> httpx.Response:
    return caller.http.put(ticket["url"], content=body, headers={"Content-Type": "application/octet-stream"})


def sent(caller: Caller, body: bytes, **other: Any) -> str:
    """The id of an upload that is complete."""
    ticket = declare(caller, body, **other)
    answer = send(caller, ticket, body)
    assert answer.status_code == 204, answer.text
    upload_id: str = ticket["upload_id"]
    return upload_id


def naming(upload_id: str, **fields: Any) -> Json:
    return {"kind": "file", "title": "Kiln log", "content": {"type": "upload", "upload_id": upload_id}} | fields


def put(caller: Caller, upload_id: str, *, key: str | None = None, **fields: Any) -> httpx.Response:
    return caller.post(envelope("artifact.put", naming(upload_id, **fields), key=key or uuid.uuid4().hex))


def stored(caller: Caller, body: bytes, **fields: Any) -> Json:
    """The acknowledgement of a new artifact that came as an upload."""
    answer = put(caller, sent(caller, body), **fields)
    assert answer.status_code == 200, answer.text
    result: Json = answer.json()["result"]
    return result


def content_path(record: Json) -> str:
    return f"/v1/artifacts/{record['artifact_id']}/revisions/{record['revision_id']}/content"


def code_of(answer: httpx.Response) -> str:
    code: str = answer.json()["error"]["code"]
    return code
