"""The source of each place."""

from __future__ import annotations

from pathlib import Path

from memoree.tokens.file import FileSource
from memoree.tokens.places import TokensObject, TokensPlace, TokensSecret
from memoree.tokens.s3 import ObjectSource
from memoree.tokens.secret import SecretSource
from memoree.tokens.source import FixedSource, TokensSource


def source_of(place: TokensPlace) -> TokensSource:
    match place:
        case Path():
            return FileSource(place)
        case TokensObject():
            return ObjectSource(place)
        case TokensSecret():
            return SecretSource(place)
        case _:
            return FixedSource(place.text)
