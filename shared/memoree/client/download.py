"""Content of any size, streamed from a server (`docs/streaming.md`)."""

from __future__ import annotations

from typing import Any, BinaryIO
from urllib.parse import quote, urlsplit

from blake3 import blake3

from memoree import limits
from memoree.client.http import HttpEndpoint, exchanging
from memoree.client.upload import READ_BYTES, SILENCE_SECONDS_MAX, check_status
from memoree.errors import Code, MemoreeError


def download(endpoint: HttpEndpoint, record: dict[str, Any], file: BinaryIO) -> None:
    """Write the content of an artifact record.

    Raises the server's own refusal, `TRANSPORT_ERROR`, and `INTEGRITY_ERROR` when it is not what the record says; what
    was written is then worth nothing.
    """
    names = (quote(record[member], safe="") for member in ("artifact_id", "revision_id"))
    url, headers = endpoint.address_of("/v1/artifacts/{}/revisions/{}/content".format(*names))
    parts = urlsplit(url)
    assert parts.hostname is not None, "it is the endpoint's own"
    hasher = blake3()
    with exchanging(parts.hostname, parts.port, tls=parts.scheme == "https") as connection:
        connection.connect()
        connection.sock.settimeout(SILENCE_SECONDS_MAX)
        connection.request("GET", parts.path, headers=headers)
        response = connection.getresponse()
        if response.status != 200:
            check_status(response.status, response.read(limits.METADATA_BYTES_MAX))
        while piece := response.read(READ_BYTES):
            hasher.update(piece)
            file.write(piece)
        if response.length:
            raise MemoreeError(Code.TRANSPORT_ERROR, f"the content ended {response.length} bytes early")
    if hasher.hexdigest() != record["blob_hash"]:
        raise MemoreeError(Code.INTEGRITY_ERROR, "the content that came is not the one that the artifact holds")
