"""The tokens of functions: a secret that is read again, and that opens no door once nobody can read it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from memoree.errors import MemoreeError
from memoree.serverless.tokens import REFRESH_SECONDS, STALE_SECONDS_MAX, SecretUnreadable, TokensSecret


class Secret(TokensSecret):
    """A secret in this process, and a clock to turn."""

    def __init__(self, path: Path) -> None:
        self.now = 1_000_000.0
        self.text: str | None = '{"first": {}}'
        self.reads = 0
        super().__init__("id", path, {}, clock=lambda: self.now)

    async def _read(self) -> tuple[str, str]:
        self.reads += 1
        if self.text is None:
            raise SecretUnreadable("no answer")
        return self.text, self.text

    def after(self, seconds: float) -> str:
        self.now += seconds
        asyncio.run(self.refresh())
        return self.path.read_text()


@pytest.fixture
def secret(tmp_path: Path) -> Secret:
    return Secret(tmp_path / "tokens.json")


def test_the_file_is_the_secret_and_its_owners_alone(secret: Secret) -> None:
    assert secret.after(0) == '{"first": {}}'
    assert secret.path.stat().st_mode & 0o777 == 0o600


def test_the_secret_is_read_again_after_five_minutes_and_not_at_every_event(secret: Secret) -> None:
    secret.after(0)
    secret.text = '{"second": {}}'
    assert secret.after(REFRESH_SECONDS - 1) == '{"first": {}}'
    assert secret.reads == 1
    assert secret.after(1) == '{"second": {}}'


def test_a_secret_out_of_reach_counts_for_an_hour_and_then_opens_no_door(secret: Secret) -> None:
    secret.after(0)
    secret.text = None
    assert secret.after(STALE_SECONDS_MAX) == '{"first": {}}'
    assert secret.after(1) == "{}"
    secret.text = '{"second": {}}'
    assert secret.after(0) == '{"second": {}}'


def test_the_same_secret_after_an_outage_opens_the_doors_again(secret: Secret) -> None:
    secret.after(0)
    text, secret.text = secret.text, None
    assert secret.after(STALE_SECONDS_MAX + 1) == "{}"
    secret.text = text
    assert secret.after(0) == text


def test_without_ever_having_been_read_the_function_does_not_open(secret: Secret) -> None:
    secret.text = None
    with pytest.raises(MemoreeError, match="secret cannot be read"):
        secret.after(0)
