"""What the door says of itself is true: every route is described, every example works as printed, and whatever a
schema-driven tester makes of the document is answered as the document says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from http_support import Caller, Json, envelope, serving, write_tokens
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from jsonschema import Draft202012Validator
from schemathesis import GenerationMode
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi import checks
from starlette.routing import Route

from memoree.embedded import LOCAL_TENANT, EmbeddedService
from memoree.http.app import create_app
from memoree.http.settings import HttpSettings
from memoree.operations.registry import Operation, catalogue

NDJSON = "application/x-ndjson"
MADE_BY_THE_STORE = re.compile(r"(.*_id|if_revision|citation)$")
EXAMPLES_PER_ROUTE = 30
DIALECT = "https://json-schema.org/draft/2020-12/schema"


@pytest.fixture
def document(caller: Caller) -> Json:
    response = caller.http.get("/openapi.json")
    assert response.status_code == 200
    found: Json = response.json()
    return found


def described(document: Json) -> Iterator[tuple[str, str, Json]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        yield from (value for key, value in part.items() if key == "$ref")
        yield from (each for value in part.values() for each in references(value))
    elif isinstance(part, list):
        yield from (each for value in part for each in references(value))


# --- the document -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metrics", [False, True])
def test_every_route_of_the_application_is_described_and_no_other(store: EmbeddedService, metrics: bool) -> None:
    app = create_app(store, HttpSettings(metrics_on_main_port=metrics))
    routes = {(each.path, method) for each in app.routes if isinstance(each, Route) for method in methods_of(each)}
    with serving(app) as base_url:
        document = httpx.get(f"{base_url}/openapi.json").json()
    assert {(path, method.upper()) for path, method, _ in described(document)} == routes


def methods_of(route: Route) -> list[str]:
    """The methods of our own endpoint, without those that come with every path."""
    allowed = dict(route.endpoint._allow)[b"allow"].decode().split(", ")
    return [method for method in allowed if method not in ("HEAD", "OPTIONS")]


def test_every_reference_leads_somewhere_and_every_schema_is_one(document: Json) -> None:
    schemas = document["components"]["schemas"]
    assert {each.removeprefix("#/components/schemas/") for each in references(document)} <= set(schemas)
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)


def test_every_operation_has_its_request_input_and_result(document: Json) -> None:
    forms = document["paths"]["/v1/call"]["post"]["requestBody"]["content"]["application/json"]["schema"]["oneOf"]
    assert [form["$ref"].rpartition("/")[2] for form in forms] == [f"{name}.request" for name in catalogue()]
    schemas = document["components"]["schemas"]
    for name in catalogue():
        assert schemas[f"{name}.request"]["properties"]["op"] == {"const": name}
        assert {f"{name}.input", f"{name}.result"} <= set(schemas)


def test_the_document_asks_for_a_token_where_the_application_does(store: EmbeddedService, tmp_path: Path) -> None:
    tokens = write_tokens(tmp_path / "tokens.json", {"tok": {"tenant": LOCAL_TENANT, "scopes": ["recall"]}})
    app = create_app(store, HttpSettings(tokens_file=tokens))
    with serving(app) as base_url, httpx.Client(base_url=base_url) as http:
        document = http.get("/openapi.json").json()
        for path, method, operation in described(document):
            needs = operation.get("security", document["security"]) == [{"bearer": []}]
            status = http.request(method, path.replace("{", "").replace("}", "")).status_code
            assert (status == 401) is needs, f"{method} {path}: {status}"


def test_who_has_a_description_is_not_sent_it_again(caller: Caller) -> None:
    for path in ("/openapi.json", "/docs", "/v1/schema"):
        tag = caller.http.get(path).headers["etag"]
        assert caller.http.get(path, headers={"If-None-Match": tag}).status_code == 304


def test_the_schema_bundle_is_what_the_operation_returns(caller: Caller) -> None:
    assert caller.http.get("/v1/schema").json() == caller.post(envelope("schema")).json()["result"]


@pytest.mark.fault_class(58)
def test_the_schemas_of_operations_are_objects_that_any_client_can_digest(caller: Caller) -> None:
    bundle = caller.http.get("/v1/schema").json()
    assert set(bundle["operation_inputs"]) == set(bundle["result_types"]) == set(catalogue())
    for schema in (*bundle["operation_inputs"].values(), *bundle["result_types"].values()):
        assert schema["type"] == "object"
        assert schema["$schema"] == DIALECT
        assert not {"anyOf", "oneOf", "allOf", "$ref"} & set(schema)
        for part in [schema, *schema.get("$defs", {}).values()]:
            for member in part.get("properties", {}).values():
                told = {"$defs": schema.get("$defs", {}), **member}
                assert "default" not in member or Draft202012Validator(told).is_valid(member["default"])


# --- examples ---------------------------------------------------------------------------------------------------


@pytest.mark.proves("fault-7")
def test_every_example_of_the_document_succeeds_as_printed(caller: Caller, document: Json) -> None:
    sent = 0
    for path, method, operation in described(document):
        for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
            for name, example in content.get("examples", {}).items():
                text = example["value"] if isinstance(example["value"], str) else json.dumps(example["value"])
                response = caller.http.request(method, path, content=text, headers={"Content-Type": media_type})
                assert response.status_code in (200, 201), f"{path} {name}: {response.text}"
                lines = response.text.splitlines() if media_type == NDJSON else []
                assert all(json.loads(line)["ok"] for line in lines), f"{path} {name}: {response.text}"
                sent += 1
    assert sent > len(_with_examples())


@pytest.mark.proves("fault-7")
def test_the_example_values_of_parameters_make_requests_that_succeed(
    caller: Caller, open_tenants: Any, document: Json
) -> None:
    """Tokens are told of by a service that asks for some."""
    with_tokens = open_tenants()("tok-a")
    for path, method, operation in described(document):
        parameters = {each["name"]: each for each in operation.get("parameters", ())}
        if method != "get" or any(each.get("required") and "example" not in each for each in parameters.values()):
            continue
        values = {name: each["example"] for name, each in parameters.items() if "example" in each}
        query = {name: value for name, value in values.items() if parameters[name]["in"] == "query"}
        asked = with_tokens if path == "/v1/admin/tokens" else caller
        response = asked.http.get(path.format(**values), params=query)
        assert response.status_code == 200, f"{path}: {response.text}"


@pytest.mark.proves("fault-7")
def test_every_operation_that_needs_no_id_of_the_store_has_an_example(document: Json) -> None:
    body = document["paths"]["/v1/call"]["post"]["requestBody"]["content"]["application/json"]
    assert set(body["examples"]) == _with_examples()


def _with_examples() -> set[str]:
    return {name for name, operation in catalogue().items() if name != "backup.create" and not _needs_an_id(operation)}


def _needs_an_id(operation: Operation) -> bool:
    fields = operation.input.model_fields
    return any(field.is_required() and MADE_BY_THE_STORE.match(name) for name, field in fields.items())


# --- the page for people ----------------------------------------------------------------------------------------


class Page(HTMLParser):
    """What a browser would fetch or run, and the text that a person would read."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        self.fetched += [str(values[name]) for name in ("src", "srcset", "data", "action", "style") if name in values]
        self.fetched += [tag] if tag in ("script", "link", "img", "iframe", "object") else []
        self.links += [str(values["href"])] if "href" in values else []
        self.ids += [str(values["id"])] if "id" in values else []
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def page(caller: Caller) -> Page:
    response = caller.http.get("/docs")
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    read = Page()
    read.feed(response.text)
    assert read.open == []
    return read


def test_the_page_needs_nothing_from_anywhere(page: Page, caller: Caller) -> None:
    assert page.fetched == []
    for link in page.links:
        assert (link.startswith("#") and link[1:] in page.ids) or caller.http.get(f"/{link}").status_code == 200, link
    policy = caller.http.get("/docs").headers.get_list("content-security-policy")
    assert len(policy) == 1
    assert "default-src 'none'" in policy[0] and "unsafe" not in policy[0]


def test_the_page_tells_every_route_operation_and_example(page: Page, document: Json) -> None:
    for path, method, operation in described(document):
        assert f"{method.upper()} {path}" in page.text
        assert operation["summary"] in page.text
    for name in document["components"]["schemas"]:
        assert f"schema-{name}" in page.ids
    examples = document["paths"]["/v1/call"]["post"]["requestBody"]["content"]["application/json"]["examples"]
    assert all(json.dumps(example["value"], indent=2) in page.text for example in examples.values())


# --- whatever a tester makes of it ------------------------------------------------------------------------------


@schemathesis.serializer(NDJSON)
def _ndjson(context: schemathesis.SerializationContext, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


CHECKS = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]


@pytest.mark.proves("fault-7")
@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_whatever_is_made_of_the_document_is_answered_as_it_says(caller: Caller, mode: GenerationMode) -> None:
    loaded = schemathesis.openapi.from_url(f"{caller.base_url}/openapi.json")
    answered = 0
    for operation in loaded.get_all_operations():

        @seed(3)
        @settings(
            max_examples=EXAMPLES_PER_ROUTE,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.ok().as_strategy(generation_mode=mode))
        def holds(case: schemathesis.Case) -> None:
            nonlocal answered
            response = case.call()
            answered += 1
            not_ready = response.status_code == 503 and response.json()["error"]["code"] == "INDEX_NOT_READY"
            no_graph = response.status_code == 501 and response.json()["error"] == "graph_mode_unavailable"
            assert response.status_code < 500 or not_ready or no_graph, f"{case.as_curl_command()}\n{response.text}"
            try:
                case.validate_response(response, checks=CHECKS)
            except FailureGroup as found:
                raise AssertionError(f"{case.as_curl_command()}\n{found}\n{response.text}") from None

        try:
            holds()
        except Unsatisfiable:
            assert mode is GenerationMode.NEGATIVE, "nothing that fits the document could be made of it"
    assert answered > 5 * EXAMPLES_PER_ROUTE
