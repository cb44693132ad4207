"""Artifact content: how it travels (text, base64 or an upload), and how it is staged for the writer."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from blake3 import blake3
from pydantic import AfterValidator, Field, WithJsonSchema

from memoree import limits
from memoree.envelope import WireModel
from memoree.errors import Code, MemoreeError, invalid
from memoree.ids import UPLOAD_PATTERN, UploadId, is_upload_id
from memoree.media import shown_as_text


class ArtifactContent(WireModel):
    """Exactly `{"type": "text" | "base64", "data": string}` (machine protocol §4.0.1)."""

    type: Literal["text", "base64"]
    data: str

    def decoded(self) -> bytes:
        """The raw bytes. Raises `INVALID_REQUEST` for bad base64, `CONTENT_TOO_LARGE` over 8 MiB."""
        if self.type == "text":
            raw = self.data.encode()
        else:
            try:
                raw = base64.b64decode(self.data, validate=True)
            except (binascii.Error, ValueError) as error:
                invalid(f"content.data: not standard base64 with padding ({error})")
        if len(raw) > limits.ARTIFACT_BYTES_MAX:
            raise MemoreeError(
                Code.CONTENT_TOO_LARGE,
                f"the content has {len(raw)} bytes; the limit is {limits.ARTIFACT_BYTES_MAX}",
            )
        return raw


def _upload_id(text: str) -> str:
    if not is_upload_id(text):
        raise ValueError("must be `upl_` and 26 characters of Crockford base 32")
    return text


class UploadedContent(WireModel):
    """Exactly `{"type": "upload", "upload_id": string}`: bytes that were sent before, beside the protocol
    (`docs/streaming.md`). No response has it."""

    type: Literal["upload"]
    upload_id: Annotated[
        str,
        AfterValidator(_upload_id),
        WithJsonSchema({"type": "string", "pattern": f"^{UPLOAD_PATTERN}$"}),
    ]


ContentInput = Annotated[ArtifactContent | UploadedContent, Field(discriminator="type")]
"""What a caller may send as content."""


@dataclass(frozen=True, slots=True)
class StagedContent:
    """Content on its way to the writer: its digest and size, and its bytes where they are at hand.

    `data` is `None` when the bytes are to be a blob and whoever holds this does not need them. `refusal` is what was
    found wrong with an upload, to be told unless the request is a repeat.
    """

    digest: bytes
    size: int
    data: bytes | None
    upload_id: UploadId | None = None
    refusal: MemoreeError | None = None

    @classmethod
    def of(cls, data: bytes) -> StagedContent:
        return cls(blake3(data).digest(), len(data), data)

    @property
    def inline(self) -> bool:
        """Whether the bytes live in the revision row and need no blob."""
        return self.size <= limits.INLINE_BODY_BYTES_MAX

    @property
    def at_hand(self) -> bool:
        """Whether a revision can be stored without asking for a blob."""
        return self.inline and self.data is not None


def represented(media_type: str, data: bytes) -> dict[str, Any]:
    """The wire form of stored bytes: `text` where they are shown as such, else base64."""
    text = shown_as_text(media_type, data)
    if text is not None:
        return {"type": "text", "data": text}
    return {"type": "base64", "data": base64.b64encode(data).decode("ascii")}
