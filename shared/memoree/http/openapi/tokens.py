"""The tokens' administration."""

from __future__ import annotations

from memoree.http.admin.tokens import NOT_HERE, NewToken
from memoree.http.openapi.components import Components, Json, ref
from memoree.http.openapi.parts import ADMISSION, FAILURES, answer, refusals
from memoree.operations.schema import input_schema, result_schema
from memoree.tokens.administration import ID_PATTERN
from memoree.tokens.document import TokenEntry

_WHOSE = "Of the own tenant's tokens; an operator's token sees and changes those of all."
_SECRET: Json = {"type": "string", "description": "The token itself, which is not told again."}
_ID: Json = {"type": "string", "description": "The beginning of the token's SHA-256, in hex digits."}


def list_tokens(components: Components) -> Json:
    components.schemas["Tokens"] = {
        "type": "object",
        "required": ["tokens"],
        "additionalProperties": False,
        "properties": {"tokens": {"type": "array", "items": ref("Token")}},
    }
    return {
        "operationId": "list_tokens",
        "summary": "List tokens: what they may do, and until when",
        "description": f"{_WHOSE} No token is told.",
        "responses": {
            "200": answer("The tokens, in the order of their file", ref("Tokens")),
            **refusals({*ADMISSION, 404, *FAILURES}),
        },
    }


def create_token(components: Components) -> Json:
    body = components.sent("NewToken", input_schema(NewToken))
    components.answered("Token", _entry_with(id=_ID))
    components.answered("MadeToken", _entry_with(token=_SECRET, id=_ID))
    return {
        "operationId": "create_token",
        "summary": "Make a token",
        "description": "For the own tenant, with scopes that the own token has; an operator names the tenant, `*` for "
        "another operator's token, whose one scope is `admin`.",
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {
            "201": answer("The token, and what it may do", ref("MadeToken")),
            **refusals({*ADMISSION, 404, 413, 415, NOT_HERE, *FAILURES}),
        },
    }


def revoke_token() -> Json:
    return {
        "operationId": "revoke_token",
        "summary": "Revoke a token",
        "description": f"{_WHOSE} Other processes know it within a second or two.",
        "parameters": [{"name": "id", "in": "path", "required": True, "schema": {**_ID, "pattern": ID_PATTERN}}],
        "responses": {
            "200": answer("What the token was", ref("Token")),
            **refusals({*ADMISSION, 404, NOT_HERE, *FAILURES}),
        },
    }


def _entry_with(**members: Json) -> Json:
    """An entry of the tokens file, and what an answer tells before it."""
    entry = result_schema(TokenEntry)
    required = [*members, *entry["required"]]
    return {**entry, "properties": {**members, **entry["properties"]}, "required": required}
