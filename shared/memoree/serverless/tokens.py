"""The tokens file of a function: a secret in AWS Secrets Manager, written to a local file and looked at again.

The secret's text is the document of the tokens file. A token that is withdrawn there opens no door some five minutes
later.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from memoree.errors import Code, MemoreeError
from memoree.private_file import write_private
from memoree.settings import StackSettings

REFRESH_SECONDS = 300.0
STALE_SECONDS_MAX = 3600.0
"""A secret that could not be read for this long opens no door: who may come in is not known any more."""

log = logging.getLogger(__name__)


class SecretUnreadable(Exception):
    """The secret could not be had; why is the message."""


class TokensSecret:
    """`path` holds what the secret said last."""

    def __init__(
        self, secret_id: str, path: Path, client_options: Mapping[str, Any], clock: Callable[[], float] = time.time
    ) -> None:
        self.path = path
        self._secret_id = secret_id
        self._client_options = client_options
        self._clock = clock  # of the wall: a monotonic one need not count the time a container was frozen
        self._read_at = 0.0
        self._version: str | None = None
        """What the file holds; `None` for nothing."""

    @classmethod
    def named_by(cls, settings: StackSettings) -> TokensSecret | None:
        """`None` where no secret is named: then there is a tokens file."""
        if settings.tokens_secret is None:
            return None
        settings.runtime_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        secret_key = settings.secret_access_key
        options = {
            "region_name": settings.region,
            "endpoint_url": settings.secrets_endpoint_url,
            "aws_access_key_id": settings.access_key_id,
            "aws_secret_access_key": None if secret_key is None else secret_key.get_secret_value(),
        }
        return cls(settings.tokens_secret, settings.runtime_dir / "tokens.json", options)

    async def refresh(self) -> None:
        """Read the secret if it was not read lately. What cannot be read is read again by the next event; after an
        hour the file is emptied. Raises `CONFIG_ERROR` when it was never read."""
        age = self._clock() - self._read_at
        if 0 <= age < REFRESH_SECONDS:
            return
        try:
            version, document = await self._read()
        except SecretUnreadable as error:
            if not self._read_at:
                raise MemoreeError(Code.CONFIG_ERROR, f"the tokens' secret cannot be read: {error}") from error
            log.error("the tokens' secret cannot be read, its last version counts: %s", error)
            if age > STALE_SECONDS_MAX:
                write_private(self.path, b"{}")
                self._version = None
            return
        if version != self._version:
            write_private(self.path, document.encode())
        self._version, self._read_at = version, self._clock()

    async def _read(self) -> tuple[str, str]:
        """The secret's version and text. The SDK comes with the first use, not with the import of a handler."""
        from aiobotocore.session import get_session
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            async with get_session().create_client("secretsmanager", **self._client_options) as client:
                answer = await client.get_secret_value(SecretId=self._secret_id)
        except (BotoCoreError, ClientError) as error:
            raise SecretUnreadable(str(error)) from error
        return answer["VersionId"], answer["SecretString"]
