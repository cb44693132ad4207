"""What stands in a tokens file."""

from __future__ import annotations

import hashlib

import pytest

from memoree.errors import Code, MemoreeError
from memoree.tokens.document import (
    TOKENS_FILE_BYTES_MAX,
    Token,
    checked_entry,
    decode,
    encode,
    new_secret,
    tokens_of,
    with_token,
    without,
)

SECRET = "tok-very-secret"
DIGEST = hashlib.sha256(SECRET.encode()).digest()
ENTRY = {"tenant": "A", "scopes": ["recall"]}


def test_a_token_is_added_as_its_digest_and_nothing_else_is_touched() -> None:
    before = {"plain": {"tenant": "A"}, "": 7, "sha256:zz": None}
    after = with_token(before, Token(DIGEST, checked_entry(ENTRY)))
    assert after == {**before, f"sha256:{DIGEST.hex()}": ENTRY}
    assert with_token(after, Token(DIGEST, checked_entry(ENTRY))) == after
    assert without(after, DIGEST) == before


def test_a_token_that_stands_there_twice_goes_twice() -> None:
    document = {SECRET: ENTRY, "other": ENTRY, f"sha256:{DIGEST.hex()}": ENTRY}
    assert without(document, DIGEST) == {"other": ENTRY}


def test_an_entry_keeps_all_that_was_said_of_it() -> None:
    context = {"workspace_id": "w", "project_id": "p", "task_id": "t"}
    told = {**ENTRY, "context": context, "agent": "ci", "name": "for CI", "expires_at": "2030-01-01T00:00:00Z"}
    document = with_token({}, Token(DIGEST, checked_entry(told)))
    assert decode(encode(document)) == {f"sha256:{DIGEST.hex()}": told}
    (token,) = tokens_of(document)
    assert isinstance(token, Token)
    assert token.to_wire() == {"id": DIGEST.hex()[:12], **told}


def test_every_secret_is_new_long_and_fit_for_a_command_line() -> None:
    made = {new_secret() for _ in range(100)}
    assert len(made) == 100
    assert {len(secret) for secret in made} == {64}
    assert all(secret.isalnum() for secret in made)


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'"tok"', b'{"tok-very-secret": oops', b"\xff"])
def test_what_is_no_tokens_file_is_refused_without_its_content(raw: bytes) -> None:
    with pytest.raises(MemoreeError) as refused:
        decode(raw)
    assert SECRET not in refused.value.message


def test_a_file_nobody_would_read_is_not_written() -> None:
    with pytest.raises(MemoreeError) as refused:
        encode({"x": "y" * TOKENS_FILE_BYTES_MAX})
    assert refused.value.code is Code.CONTENT_TOO_LARGE
    with pytest.raises(MemoreeError):
        decode(b" " * (TOKENS_FILE_BYTES_MAX + 1))
