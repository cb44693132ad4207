"""`/docs`: the OpenAPI document as one page for people. No script, no asset: it reads the same in any browser."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterator, Mapping
from typing import Any

from memoree.http.openapi.components import PREFIX, Json

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h2 { border-top: 1px solid #ccc; padding-top: 1.5rem; } h2 b { color: #06c; }
table { border-collapse: collapse; width: 100%; }
td { border-top: 1px solid #eee; vertical-align: top; padding: .3rem .6rem; }
code, pre { font: 14px/1.4 ui-monospace, monospace; }
pre { background: #f6f6f6; padding: .7rem; overflow-x: auto; } summary { cursor: pointer; }
"""
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; style-src 'sha256-"
    + base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    + "'"
).encode()


def page(document: Mapping[str, Any]) -> str:
    """The whole page of an OpenAPI document."""
    title = html.escape(f"{document['info']['title']} {document['info']['version']}")
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{title}</h1><p>{_prose(document['info']['description'])}</p>",
            '<p>The same for programs: <a href="openapi.json">openapi.json</a>; JSON Schemas: ',
            '<a href="v1/schema">v1/schema</a>.</p>',
            _contents(document),
            *_routes(document),
            *_schemas(document["components"]["schemas"]),
            "</body></html>\n",
        ]
    )


def _contents(document: Mapping[str, Any]) -> str:
    links = (
        f'<li><a href="#{html.escape(operation["operationId"])}">{method.upper()} {html.escape(path)}</a>: '
        f"{html.escape(operation['summary'])}</li>"
        for path, method, operation in _operations(document)
    )
    return f"<ul>{''.join(links)}</ul>"


def _operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Json]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def _routes(document: Mapping[str, Any]) -> Iterator[str]:
    for path, method, operation in _operations(document):
        yield f'<h2 id="{html.escape(operation["operationId"])}"><b>{method.upper()}</b> {html.escape(path)}</h2>'
        yield f"<p><strong>{html.escape(operation['summary'])}</strong></p>"
        yield f"<p>{_prose(operation.get('description', ''))}</p>"
        yield _table("Parameters", map(_parameter, operation.get("parameters", ())))
        for content in operation.get("requestBody", {}).get("content", {}).values():
            yield _forms(content["schema"])
            for name, example in content.get("examples", {}).items():
                yield f"<details><summary>Example: {html.escape(name)}</summary>{_code(example['value'])}</details>"
        answers = ((status, answer["description"]) for status, answer in operation["responses"].items())
        yield _table("Answers", ((f"<code>{status}</code>", _prose(said)) for status, said in answers))


def _parameter(parameter: Mapping[str, Any]) -> tuple[str, str, str]:
    said = _prose(parameter.get("description", ""))
    if "example" in parameter:
        said += f" Example: <code>{html.escape(str(parameter['example']))}</code>"
    return f"<code>{html.escape(parameter['name'])}</code> ({parameter['in']})", _type(parameter["schema"]), said


def _forms(schema: Mapping[str, Any]) -> str:
    """The choices of a body, each a link to its schema."""
    forms = schema.get("oneOf", ())
    return f"<p>One of: {', '.join(map(_type, forms))}.</p>" if forms else ""


def _schemas(schemas: Mapping[str, Json]) -> Iterator[str]:
    yield "<h1>Schemas</h1>"
    for name, schema in schemas.items():
        yield f'<h2 id="schema-{html.escape(name)}">{html.escape(name)}</h2>'
        yield f"<p>{_prose(schema.get('description', ''))}</p>"
        if "properties" not in schema:
            yield f"<p>{_type(schema)}</p>"
            continue
        required = schema.get("required", ())
        rows = (
            (
                f"<code>{html.escape(member)}</code>{'' if member in required else ' (optional)'}",
                _type(value),
                _prose(value.get("description", "")),
            )
            for member, value in schema["properties"].items()
        )
        yield _table("", rows)


def _type(schema: Mapping[str, Any]) -> str:
    """A schema in a few words, with links to those that have a name."""
    if "$ref" in schema:
        name = html.escape(schema["$ref"].removeprefix(PREFIX))
        return f'<a href="#schema-{name}">{name}</a>'
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(_type(choice) for choice in choices)
    if "const" in schema:
        return f"<code>{_json(schema['const'])}</code>"
    if "enum" in schema:
        return " or ".join(f"<code>{_json(value)}</code>" for value in schema["enum"])
    if "items" in schema:
        return f"array of {_type(schema['items'])}"
    types = schema.get("type", "anything")
    bounds = ", ".join(f"{bound} {schema[bound]}" for bound in _BOUNDS if bound in schema)
    kind = html.escape(" or ".join(types) if isinstance(types, list) else types)
    return f"{kind} ({html.escape(bounds)})" if bounds else kind


_BOUNDS = ("format", "minimum", "maximum", "minLength", "maxLength", "pattern", "default")


def _table(title: str, rows: Iterator[tuple[str, ...]]) -> str:
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    if not body:
        return ""
    return f"{f'<h3>{title}</h3>' if title else ''}<table>{body}</table>"


def _code(example: Any) -> str:
    text = example if isinstance(example, str) else json.dumps(example, indent=2, ensure_ascii=False)
    return f"<pre>{html.escape(text)}</pre>"


def _json(value: Any) -> str:
    return html.escape(json.dumps(value, ensure_ascii=False))


def _prose(text: str) -> str:
    """Text whose `code` is in backticks."""
    parts = html.escape(text).split("`")
    return "".join(f"<code>{part}</code>" if number % 2 else part for number, part in enumerate(parts))
