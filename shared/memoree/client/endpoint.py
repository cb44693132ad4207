"""From the words of a user to an endpoint: an address, or the data directory when there is none."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

from memoree.client.request import Endpoint
from memoree.errors import Code, MemoreeError, shown

TOKEN_VARIABLE = "MEMOREE_TOKEN"  # noqa: S105 - the name of the variable
TOKEN_FILE_BYTES_MAX = 8192
DIGEST_PREFIX = "sha256:"


def select_endpoint(
    address: str | None,
    *,
    data_dir: Callable[[], Path],
    token: Callable[[], str | None],
) -> Endpoint:
    """`http://`, `https://` or `unix://PATH`; without an address the store in the data directory, in this process.

    Raises `CONFIG_ERROR` for any other address. The adapter of the chosen kind is the only one imported.
    """
    if not address:
        from memoree.client.local import LocalEndpoint

        return LocalEndpoint(data_dir())
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError as error:
        raise MemoreeError(Code.CONFIG_ERROR, f"the endpoint {shown(address)} is not an address: {error}") from error
    if parts.scheme == "unix":
        from memoree.client.framed import FramedEndpoint

        path = address.removeprefix("unix://")
        if not path or not address.startswith("unix://"):
            _refuse(address)
        return FramedEndpoint(path)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        _refuse(address)
    if parts.username is not None:
        raise MemoreeError(Code.CONFIG_ERROR, f"the endpoint holds a user name; put the token into {TOKEN_VARIABLE}")
    from memoree.client.http import HttpEndpoint

    return HttpEndpoint(parts.hostname, port, tls=parts.scheme == "https", path=parts.path, token=token())


def find_token(token_file: Path | None, environ: Mapping[str, str] = os.environ) -> str | None:
    """The bearer token, from a file or the environment: a command line is visible to every user of the machine.

    The file holds the token alone, or is a tokens file with one token, such as `memoree up` generates. Raises
    `CONFIG_ERROR` for a file that cannot be read and for a token that cannot stand in a header.
    """
    token = _read_token(token_file) if token_file is not None else environ.get(TOKEN_VARIABLE, "").strip()
    if not token:
        return None
    if not token.isascii() or not token.isprintable() or " " in token:
        raise MemoreeError(Code.CONFIG_ERROR, "the bearer token holds characters that no token has")
    return token


def _read_token(path: Path) -> str:
    try:
        with path.open("rb") as file:
            body = file.read(TOKEN_FILE_BYTES_MAX + 1)
        if len(body) > TOKEN_FILE_BYTES_MAX:
            raise MemoreeError(Code.CONFIG_ERROR, f"the token file {path} holds more than one token")
        token = body.decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise MemoreeError(Code.CONFIG_ERROR, f"the token file {path} cannot be read: {reason}") from error
    if not token:
        raise MemoreeError(Code.CONFIG_ERROR, f"the token file {path} is empty")
    return _only_token(path, token) if token.startswith("{") else token


def _only_token(path: Path, document: str) -> str:
    """The one token of a tokens file (see `memoree.tokens.document`); of others it may hold the digests."""
    import orjson

    try:
        keys = list(orjson.loads(document))
    except orjson.JSONDecodeError:  # its message could quote a token
        raise MemoreeError(Code.CONFIG_ERROR, f"the token file {path} is not valid JSON") from None
    tokens = [key for key in keys if not key.startswith(DIGEST_PREFIX)] or keys
    if len(tokens) != 1:
        raise MemoreeError(
            Code.CONFIG_ERROR,
            f"the tokens file {path} holds {len(tokens)} tokens; put the one to use into a file of its own",
        )
    if tokens[0].startswith(DIGEST_PREFIX):
        raise MemoreeError(Code.CONFIG_ERROR, f"the tokens file {path} holds the digest of a token, not the token")
    return str(tokens[0])


def _refuse(address: str) -> NoReturn:
    raise MemoreeError(
        Code.CONFIG_ERROR, f"the endpoint {shown(address)} is none of http://HOST, https://HOST and unix://PATH"
    )
