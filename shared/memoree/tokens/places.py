"""Where the tokens file of a process is: a path, an object of an S3 store, the environment, or a secret of AWS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from memoree.errors import Code, MemoreeError, shown
from memoree.objects import check_key

FILE_VARIABLE = "MEMOREE_TOKENS_FILE"
TEXT_VARIABLE = "MEMOREE_TOKENS"
SECRET_VARIABLE = "MEMOREE_TOKENS_SECRET"  # noqa: S105 - a name
VARIABLES = (FILE_VARIABLE, TEXT_VARIABLE, SECRET_VARIABLE)
OBJECT_SCHEME = "s3://"
REGION_DEFAULT = "us-east-1"


@dataclass(frozen=True, slots=True)
class Access:
    """Of the service that keeps it. Without keys, the environment's own credentials apply."""

    endpoint_url: str | None = None
    region: str = REGION_DEFAULT
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], *, endpoint: str = "ENDPOINT_URL") -> Access:
        """From `MEMOREE_REGION`, `_ACCESS_KEY_ID`, `_SECRET_ACCESS_KEY`, and `endpoint` for any but Amazon's."""
        return cls(
            environment.get(f"MEMOREE_{endpoint}"),
            environment.get("MEMOREE_REGION", REGION_DEFAULT),
            environment.get("MEMOREE_ACCESS_KEY_ID"),
            environment.get("MEMOREE_SECRET_ACCESS_KEY"),
        )


@dataclass(frozen=True, slots=True)
class TokensObject:
    bucket: str
    key: str
    access: Access = field(default=Access(), repr=False)

    def __str__(self) -> str:
        return f"{OBJECT_SCHEME}{self.bucket}/{self.key}"


@dataclass(frozen=True, slots=True)
class TokensText:
    text: str = field(repr=False)

    def __str__(self) -> str:
        return TEXT_VARIABLE


@dataclass(frozen=True, slots=True)
class TokensSecret:
    """In AWS Secrets Manager, which this service only reads."""

    secret_id: str
    access: Access = field(default=Access(), repr=False)

    def __str__(self) -> str:
        return f"the secret {self.secret_id}"


TokensPlace: TypeAlias = Path | TokensObject | TokensText | TokensSecret


def named_place(environment: Mapping[str, str]) -> TokensPlace | None:
    """The place that `MEMOREE_TOKENS_FILE` (a path or `s3://bucket/key`), `MEMOREE_TOKENS` (the document itself) or
    `MEMOREE_TOKENS_SECRET` names; `None` without any of them. Raises `CONFIG_ERROR` for two of them, and for an empty
    one: that is a mistake, never "no authentication"."""
    return chosen_place(
        {name: environment.get(name) for name in VARIABLES},
        Access.from_environment(environment),
        Access.from_environment(environment, endpoint="SECRETS_ENDPOINT_URL"),
    )


def chosen_place(values: Mapping[str, str | None], objects: Access, secrets: Access) -> TokensPlace | None:
    """As `named_place`, from the values of the three variables and the access to either service."""
    named = {name: value.strip() for name, value in values.items() if value is not None}
    if len(named) > 1:
        _refuse(f"{' and '.join(named)} are set; the tokens come from one of them")
    for name, value in named.items():
        if not value:
            _refuse(f"{name} is set, but empty")
        if name == TEXT_VARIABLE:
            return TokensText(value)
        return TokensSecret(value, secrets) if name == SECRET_VARIABLE else place_of(value, objects)
    return None


def place_of(text: str, access: Access) -> Path | TokensObject:
    """A path, or an object that `access` leads to. Raises `CONFIG_ERROR` for an address that names no object."""
    if not text.startswith(OBJECT_SCHEME):
        return Path(text)
    bucket, _, key = text.removeprefix(OBJECT_SCHEME).partition("/")
    try:
        check_key(key)
    except ValueError:
        bucket = ""
    if not bucket:
        _refuse(f"{shown(text)} names no object; the form is {OBJECT_SCHEME}BUCKET/KEY")
    return TokensObject(bucket, key, access)


def _refuse(message: str) -> None:
    raise MemoreeError(Code.CONFIG_ERROR, message)
