"""Content of any size, streamed from a server (`docs/streaming.md`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPResponse
from typing import Any, BinaryIO
from urllib.parse import quote

from blake3 import blake3

from memoree import limits
from memoree.client.http import HttpEndpoint, exchanging_at
from memoree.client.upload import READ_BYTES, SILENCE_SECONDS_MAX, check_status
from memoree.errors import Code, MemoreeError


def download(endpoint: HttpEndpoint, record: dict[str, Any], file: BinaryIO) -> None:
    """Write the content of an artifact record.

    Raises the server's own refusal, `TRANSPORT_ERROR`, and `INTEGRITY_ERROR` when it is not what the record says; what
    was written is then worth nothing.
    """
    names = (quote(record[member], safe="") for member in ("artifact_id", "revision_id"))
    url, headers = endpoint.address_of("/v1/artifacts/{}/revisions/{}/content".format(*names))
    hasher = blake3()
    with _answered(url, headers) as found:
        if found.status != HTTPStatus.SEE_OTHER:
            _write(found, hasher, file)
        else:  # a function leads to the store, which wants no token
            with _answered(endpoint.address_of(found.headers.get("Location", ""))[0], {}) as stored:
                _write(stored, hasher, file)
    if hasher.hexdigest() != record["blob_hash"]:
        raise MemoreeError(Code.INTEGRITY_ERROR, "the content that came is not the one that the artifact holds")


@contextmanager
def _answered(url: str, headers: Mapping[str, str]) -> Iterator[HTTPResponse]:
    with exchanging_at(url) as (connection, target):
        connection.connect()
        connection.sock.settimeout(SILENCE_SECONDS_MAX)
        connection.request("GET", target, headers=headers)
        yield connection.getresponse()


def _write(response: HTTPResponse, hasher: blake3, file: BinaryIO) -> None:
    if response.status != HTTPStatus.OK:
        check_status(response.status, response.read(limits.METADATA_BYTES_MAX))
    while piece := response.read(READ_BYTES):
        hasher.update(piece)
        file.write(piece)
    if response.length:
        raise MemoreeError(Code.TRANSPORT_ERROR, f"the content ended {response.length} bytes early")
