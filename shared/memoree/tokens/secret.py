"""The tokens file as a secret in AWS Secrets Manager, whose text is the document."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from memoree.objects import ObjectStoreError, StoreUnavailable
from memoree.tokens.document import Document
from memoree.tokens.places import TokensSecret
from memoree.tokens.remote import Fetched, RemoteSource, unusable
from memoree.tokens.source import Change, decoded, not_writable

POLL_SECONDS = 300.0
STALE_SECONDS_MAX = 3600.0


class SecretSource(RemoteSource):
    """A token that is withdrawn there opens no door some five minutes later: every look at a secret is paid for."""

    every_seconds = POLL_SECONDS
    stale_seconds_max = STALE_SECONDS_MAX
    writable = False

    def __init__(self, place: TokensSecret) -> None:
        super().__init__()
        self._place = place

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        await self.refresh()
        yield

    async def fetch(self, version: str | None) -> Fetched | None:
        """The SDK comes with the first use, not with the import of a handler."""
        from aiobotocore.session import get_session
        from botocore.exceptions import BotoCoreError, ClientError

        access = self._place.access
        options: dict[str, Any] = {
            "region_name": access.region,
            "endpoint_url": access.endpoint_url,
            "aws_access_key_id": access.access_key_id,
            "aws_secret_access_key": access.secret_access_key,
        }
        try:
            async with get_session().create_client("secretsmanager", **options) as client:
                answer = await client.get_secret_value(SecretId=self._place.secret_id)
        except (BotoCoreError, ClientError) as error:
            raise StoreUnavailable(str(error)) from error
        return Fetched(answer["VersionId"], answer["SecretString"].encode())

    async def read(self) -> Document:
        try:
            found = await self.fetch(None)
        except ObjectStoreError as error:
            raise unusable(error) from error
        assert found is not None, "a secret is always told whole"
        return decoded(found.raw)

    async def update(self, change: Change) -> None:
        not_writable("the tokens come from a secret of AWS Secrets Manager, and are changed there")
