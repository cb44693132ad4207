"""The tenants' administration."""

from __future__ import annotations

from memoree.http.admin.tenants import NewTenant
from memoree.http.openapi.components import Components, Json, ref
from memoree.http.openapi.parts import ADMISSION, FAILURES, answer, refusals
from memoree.operations.quota import QuotaRecord, TenantQuota
from memoree.operations.schema import input_schema, result_schema
from memoree.tenants import CONFIRMATION_SECONDS_MAX, NAMES_DEFAULT, NAMES_MAX

NOT_HERE, UNCONFIRMED = 501, 428
_NAME: Json = {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,128}$"}
_PATH: Json = {"name": "tenant", "in": "path", "required": True, "schema": _NAME}
_COUNT: Json = {"type": "integer", "minimum": 0}
_JSON = "application/json"


def list_tenants(components: Components) -> Json:
    components.schemas["TenantNames"] = {
        "type": "object",
        "required": ["tenants"],
        "additionalProperties": False,
        "properties": {
            "tenants": {"type": "array", "maxItems": NAMES_MAX, "items": {"type": "string"}},
            "next": {
                "type": "string",
                "description": "What the next page comes `after`; without it, this is the last.",
            },
        },
    }
    limit = {"type": "integer", "minimum": 1, "maximum": NAMES_MAX, "default": NAMES_DEFAULT}
    return {
        "operationId": "list_tenants",
        "summary": "Name the tenants, in order",
        "description": "Those that have objects in the bucket. A tenant's administrator sees that tenant alone.",
        "parameters": [
            {
                "name": "after",
                "in": "query",
                "schema": {"type": "string"},
                "description": "Only names beyond this one.",
            },
            {"name": "limit", "in": "query", "schema": limit},
        ],
        "responses": {"200": answer("One page", ref("TenantNames")), **refusals({*ADMISSION, *FAILURES})},
    }


def create_tenant(components: Components) -> Json:
    _add_tenant(components)
    body = components.sent("NewTenant", input_schema(NewTenant))
    return {
        "operationId": "create_tenant",
        "summary": "Make a tenant exist",
        "description": "For operators. Again, it sets the limits that are named. The name of a deleted tenant is used "
        "again, and begins empty; so do restores and imports.",
        "requestBody": {"required": True, "content": {_JSON: {"schema": body}}},
        "responses": {
            "200": answer("It was there", ref("Tenant")),
            "201": answer("It was made", ref("Tenant")),
            **refusals({*ADMISSION, 202, 404, 413, 415, NOT_HERE, *FAILURES}),
        },
    }


def show_tenant(components: Components) -> Json:
    _add_tenant(components)
    return {
        "operationId": "show_tenant",
        "summary": "What a tenant holds and may hold, and how it is",
        "description": "Of the own tenant; an operator looks at all.",
        "parameters": [_PATH],
        "responses": {"200": answer("The tenant", ref("Tenant")), **refusals({*ADMISSION, 404, *FAILURES})},
    }


def set_quota(components: Components) -> Json:
    quota = components.answered("Quota", result_schema(QuotaRecord))
    components.schemas["TenantsQuota"] = {
        "type": "object",
        "required": ["tenant", "quota"],
        "properties": {"tenant": {"type": "string"}, "quota": quota},
    }
    body = components.sent("TenantQuota", input_schema(TenantQuota))
    return {
        "operationId": "set_quota",
        "summary": "Bound what a tenant may hold and how often it may ask",
        "description": "For operators. The whole quota: what is null or missing is left to the deployment.",
        "parameters": [_PATH],
        "requestBody": {"required": True, "content": {_JSON: {"schema": body}}},
        "responses": {
            "200": answer("What holds from now on", ref("TenantsQuota")),
            **refusals({*ADMISSION, 202, 404, 413, 415, *FAILURES}),
        },
    }


def delete_tenant(components: Components) -> Json:
    components.schemas["DeletedTenant"] = {
        "type": "object",
        "required": ["tenant", "complete", "deleted_objects", "objects_left", "failures"],
        "properties": {
            "tenant": {"type": "string"},
            "complete": {"type": "boolean", "description": "Otherwise the same two steps go on."},
            "deleted_objects": _COUNT,
            "objects_left": _COUNT,
            "failures": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    }
    confirmation = {
        "name": "confirmation",
        "in": "query",
        "schema": {"type": "string"},
        "description": f"From the 428 of the same request without it: once, within {CONFIRMATION_SECONDS_MAX:g} s.",
    }
    return {
        "operationId": "delete_tenant",
        "summary": "Delete a tenant with everything it has, in two steps",
        "description": "For operators. Without `confirmation` it is 428, whose `details` tell what would go and what "
        "confirms it. 501 where the service has no right to delete: `memoree tenant delete` does it.",
        "parameters": [_PATH, confirmation],
        "responses": {
            "200": answer("What was removed", ref("DeletedTenant")),
            **refusals({*ADMISSION, 404, 409, UNCONFIRMED, NOT_HERE, *FAILURES}),
        },
    }


def _add_tenant(components: Components) -> None:
    """Members beside these are told where they are known: whatever is wrong with the tenant is told under `fault`."""
    components.schemas["Tenant"] = {
        "type": "object",
        "required": ["tenant", "commit_seq"],
        "properties": {
            "tenant": {"type": "string"},
            "commit_seq": _COUNT,
            "history": _COUNT,
            "epoch": _COUNT,
            "schema_version": _COUNT,
            "lease": {"type": "object"},
            "rows": _COUNT,
            "bytes": _COUNT,
            "quota": {"type": "object"},
            "last_backup": {"type": ["object", "null"]},
            "created": {"type": "boolean"},
            "fault": {"type": "string"},
        },
    }
