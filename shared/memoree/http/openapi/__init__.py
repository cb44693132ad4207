"""The OpenAPI 3.1 document of the door: its routes, with schemas from the operation catalogue and the models."""

from __future__ import annotations

from memoree import __version__
from memoree.browsing.lists import LISTINGS
from memoree.http.admin.tenants import TENANTS_PATH
from memoree.http.admin.tokens import TOKENS_PATH
from memoree.http.answers import BULK_PATH, CALL_PATH, EVENTS_PATH, OPERATIONS_PATH
from memoree.http.content import CONTENT_PATH
from memoree.http.mcp import MCP_PATH
from memoree.http.openapi import content, events, lists, mcp, memoryprotocol, protocol, tenants, tokens
from memoree.http.openapi.components import Components, Json
from memoree.http.openapi.parts import add_plain_error
from memoree.http.openapi.public import open_paths
from memoree.operations.schema import bundle
from memoree.uploads import UPLOADS_PATH

VERSION = "3.1.0"

_INTRODUCTION = """\
Agents store artifacts (immutable revisions of bytes) and claims (statements that cite exact byte spans), relate them,
and search. `POST /v1/call` speaks the machine protocol: one request envelope in, one response envelope out.
Lists browse without a query; `POST /v1/bulk` carries many envelopes. `/v1/ingest`, `/v1/recall`, `/v1/forget`,
`/v1/snapshot` and `/v1/episode` are of MemoryProtocol, with bodies of their own. Without a tokens file the server only
listens on loopback and asks for no token."""


def document(*, authorization: bool, metrics: bool) -> Json:
    """The document of an application that asks for tokens or not, and has `/metrics` or not."""
    components, schemas = Components(), bundle()
    add_plain_error(components)
    paths: dict[str, Json] = {
        CALL_PATH: {"post": protocol.call(components, schemas)},
        BULK_PATH: {"post": protocol.bulk(components)},
        UPLOADS_PATH: {"post": content.declare(components)},
        f"{UPLOADS_PATH}/{{upload_id}}/content": {"put": content.receive()},
        CONTENT_PATH: {"get": content.fetch()},
        f"{OPERATIONS_PATH}/{{attempt_id}}": {"get": protocol.attempt(components)},
        **{
            f"/v1/{listing.name}": {"get": lists.page_of(components, listing, authorization=authorization)}
            for listing in LISTINGS
        },
        EVENTS_PATH: {"get": events.feed(components)},
        "/v1/ingest": {"post": memoryprotocol.ingest(components)},
        "/v1/recall": {"post": memoryprotocol.recall(components)},
        "/v1/forget": {"post": memoryprotocol.forget(components)},
        "/v1/snapshot/{lsn}": {"get": memoryprotocol.snapshot()},
        "/v1/episode/{episode_id}": {"get": memoryprotocol.episode(components)},
        MCP_PATH: {"post": mcp.post()},
        TOKENS_PATH: {"post": tokens.create_token(components), "get": tokens.list_tokens(components)},
        f"{TOKENS_PATH}/{{id}}": {"delete": tokens.revoke_token()},
        TENANTS_PATH: {"post": tenants.create_tenant(components), "get": tenants.list_tenants(components)},
        f"{TENANTS_PATH}/{{tenant}}": {
            "get": tenants.show_tenant(components),
            "delete": tenants.delete_tenant(components),
        },
        f"{TENANTS_PATH}/{{tenant}}/quota": {"put": tenants.set_quota(components)},
        **open_paths(metrics=metrics),
    }
    security = {"securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}} if authorization else {}
    return {
        "openapi": VERSION,
        "info": {"title": "Memoree", "version": __version__, "description": _INTRODUCTION},
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": dict(sorted(components.schemas.items())), **security},
        **({"security": [{"bearer": []}]} if authorization else {}),
    }
