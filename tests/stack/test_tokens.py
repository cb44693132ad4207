from __future__ import annotations

from pathlib import Path

import orjson

from memoree.stack.tokens import SCOPES, TENANT, ensure_tokens_file


def test_a_fresh_stack_gets_one_private_token_for_everything(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    ensure_tokens_file(path)

    ((token, entry),) = orjson.loads(path.read_bytes()).items()
    assert len(token) >= 43
    assert entry == {"tenant": TENANT, "scopes": SCOPES}
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_tokens_file_that_is_there_is_never_touched(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.write_bytes(b"mine")
    ensure_tokens_file(path)

    assert path.read_bytes() == b"mine"


def test_every_stack_has_a_token_of_its_own(tmp_path: Path) -> None:
    files = [tmp_path / "one.json", tmp_path / "other.json"]
    for path in files:
        ensure_tokens_file(path)

    assert files[0].read_bytes() != files[1].read_bytes()
