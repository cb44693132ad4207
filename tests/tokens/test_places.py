"""Where the tokens are is said once, and never by mistake "nowhere"."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from memoree.errors import Code, MemoreeError
from memoree.http.settings import HttpSettings
from memoree.tokens.places import Access, TokensObject, TokensSecret, TokensText, named_place

GIVEN = {"MEMOREE_TOKENS_FILE": "/t.json", "MEMOREE_TOKENS": "{}", "MEMOREE_TOKENS_SECRET": "arn:secret"}
KEYS = {"MEMOREE_REGION": "eu-1", "MEMOREE_ACCESS_KEY_ID": "id", "MEMOREE_SECRET_ACCESS_KEY": "key"}


def test_each_variable_names_its_kind_of_place() -> None:
    access = Access("http://store", "eu-1", "id", "key")
    address = {"MEMOREE_TOKENS_FILE": "s3://bucket/keys/tokens.json", "MEMOREE_ENDPOINT_URL": "http://store"}
    secret = {"MEMOREE_TOKENS_SECRET": "arn:secret", "MEMOREE_SECRETS_ENDPOINT_URL": "http://store"}

    assert named_place({}) is None
    assert named_place({"MEMOREE_TOKENS_FILE": " /t.json\n"}) == Path("/t.json")
    assert named_place(address | KEYS) == TokensObject("bucket", "keys/tokens.json", access)
    assert named_place({"MEMOREE_TOKENS": '{"a": {}}'}) == TokensText('{"a": {}}')
    assert named_place(secret | KEYS) == TokensSecret("arn:secret", access)


@pytest.mark.proves("tokens-1")
@pytest.mark.parametrize("names", [*combinations(GIVEN, 2), tuple(GIVEN)], ids=" ".join)
def test_two_places_are_refused_and_both_are_named(names: tuple[str, ...]) -> None:
    with pytest.raises(MemoreeError) as refused:
        HttpSettings.from_environment({name: GIVEN[name] for name in names})
    assert refused.value.code is Code.CONFIG_ERROR
    assert all(name in refused.value.message for name in names)
    assert "{}" not in refused.value.message


@pytest.mark.proves("tokens-1")
@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("value", ["", " \n"])
def test_an_empty_place_is_refused_and_not_no_place(name: str, value: str) -> None:
    with pytest.raises(MemoreeError, match=f"{name} is set, but empty"):
        HttpSettings.from_environment({name: value})


@pytest.mark.proves("tokens-1")
def test_a_deployment_whose_doors_may_be_open_needs_a_place() -> None:
    with pytest.raises(MemoreeError, match="needs one"):
        HttpSettings.from_environment({}, tokens_required=True)


@pytest.mark.proves("tokens-1")
@pytest.mark.parametrize("address", ["s3://", "s3://bucket", "s3://bucket/", "s3:///key", "s3://bucket/a//b"])
def test_an_address_without_an_object_is_refused(address: str) -> None:
    with pytest.raises(MemoreeError, match="names no object"):
        named_place({"MEMOREE_TOKENS_FILE": address})


def test_no_place_shows_what_it_keeps_or_is_reached_with() -> None:
    for environment in ({"MEMOREE_TOKENS": "tok-secret"}, {"MEMOREE_TOKENS_FILE": "s3://b/k"}):
        place = named_place(environment | {"MEMOREE_SECRET_ACCESS_KEY": "tok-secret"})
        assert "tok-secret" not in f"{place!r} {place}"
