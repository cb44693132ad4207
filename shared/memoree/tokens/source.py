"""A tokens file that is followed while a process runs, and changed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NoReturn, TypeAlias

from memoree.errors import Code, MemoreeError
from memoree.tokens.document import Document, decode
from memoree.tokens.places import TEXT_VARIABLE

Change: TypeAlias = Callable[[Document], Document]
"""To be made again on what somebody else left: it changes nothing where it has been made already."""


class TokensSource(ABC):
    """One per process and place. `look` is for requests: it does no more than look at a local file."""

    writable: bool = True

    @property
    def answered(self) -> bool:
        """Whether whoever keeps the document ever said anything of it."""
        return True

    @abstractmethod
    def look(self) -> bytes | None:
        """The document, or `None` while it is what the last look gave. Raises `OSError` and `MemoreeError` as long as
        it cannot be had."""

    @abstractmethod
    async def read(self) -> Document:
        """What stands there now. Raises `CONFIG_ERROR` for no such document, `TRANSPORT_ERROR`."""

    @abstractmethod
    async def update(self, change: Change) -> None:
        """Change the document in one step, after whoever changes it at the same time. Raises `CONFIG_ERROR` where it
        cannot be changed or is no such document, `TRANSPORT_ERROR`, and what `change` raises."""

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Around everything else."""
        yield

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        """As `opened`, and meanwhile what changes elsewhere is seen without being asked for."""
        async with self.opened():
            yield

    async def refresh(self, *, if_due: bool = False) -> None:  # noqa: B027 - what is on this host needs no asking
        """See now what changed elsewhere; `if_due`: unless that was done lately. Never raises for what fails."""


class FixedSource(TokensSource):
    """The document of an environment variable. Only who starts the process can give it another one."""

    writable = False

    def __init__(self, text: str) -> None:
        self._raw = text.encode(errors="surrogateescape")
        self._told = False

    def look(self) -> bytes | None:
        told, self._told = self._told, True
        return None if told else self._raw

    async def read(self) -> Document:
        return decoded(self._raw)

    async def update(self, change: Change) -> None:
        not_writable(f"the tokens come from the environment: change {TEXT_VARIABLE} there, and start it again")


def decoded(raw: bytes) -> Document:
    """As `document.decode`, for who keeps the file. Raises `CONFIG_ERROR`."""
    try:
        return decode(raw)
    except MemoreeError as error:
        raise MemoreeError(Code.CONFIG_ERROR, f"the tokens file cannot be used: {error.message}") from None


def not_writable(message: str) -> NoReturn:
    raise MemoreeError(Code.CONFIG_ERROR, message)
