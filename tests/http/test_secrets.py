"""Secrets stay inside: every route is refused and fails in every way, and whatever comes out is searched for them."""

from __future__ import annotations

import hashlib
import io
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn

import httpx
import pytest
from http_support import CONTEXT, Json, Scripted, envelope, serving, write_tokens
from starlette.applications import Starlette

from memoree import redaction
from memoree.http.app import create_app
from memoree.http.logs import JsonFormatter
from memoree.http.settings import HttpSettings
from memoree.ids import new_attempt_id, new_id, new_upload_id
from memoree.objects import ObjectStoreError
from memoree.queue import QueueError
from memoree.redaction import RedactingFormatter, hide_secrets_of, redacted
from memoree.service import Check, Reply, Request

ALL = ["recall", "ingest", "forget", "inbox", "admin"]
FULL, READER, WRITER, OTHER, SPENT = (
    f"tok-{name}-9q8w7e6r5t4y" for name in ("full", "read", "write", "other", "spent")
)
TOKENS: dict[str, Any] = {
    FULL: {"tenant": "A", "scopes": ALL},
    READER: {"tenant": "A", "scopes": ["recall"]},
    WRITER: {"tenant": "A", "scopes": ["ingest"]},
    SPENT: {"tenant": "B", "scopes": ALL},
}
"""`OTHER` is none of them."""
S3_SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
S3_SESSION = "FwoGZXIvYXdzEBYaDsession"
SIGNATURE = "4d1c0f9e5b7a8d6c4d1c0f9e5b7a8d6c4d1c0f9e5b7a8d6c4d1c0f9e5b7a8d6c"
PASSWORD = "hunter2hunter2"
CONFIRMED_AT = 1796112879407
RECEIPT = json.dumps(
    {
        "target": {"Id": "01KJR4GZXJDFPSG3SB9V65FA1E"},
        "preview": True,
        "audit_lsn": {"wall_ms": CONFIRMED_AT, "counter": 1},
    }
)
DIGESTS = [hashlib.sha256(token.encode()).hexdigest() for token in (*TOKENS, OTHER)]
SECRETS = [*TOKENS, OTHER, *DIGESTS, S3_SECRET, S3_SESSION, SIGNATURE, PASSWORD]
LOUD = (
    f"GET https://bucket.example/tenants/A/head.json?X-Amz-Credential={S3_SESSION}%2F2026&X-Amz-Signature={SIGNATURE} "
    f"with {{'Authorization': 'Bearer {FULL}'}}, (b'authorization', b'Bearer {OTHER}'), "
    f"secret_access_key={S3_SECRET}, 'session_token': '{S3_SESSION}', key {S3_SECRET} of sha256:{DIGESTS[0]}, "
    f"for https://agent:{PASSWORD}@git.example/kiln.git"
)
"""What an exception of a library may say."""
STATUSES = {401, 403, 404, 405, 413, 415, 422, 428, 429, 500, 503}
LARGE = b"[" + b"0," * (13 * 1024 * 1024) + b"0]"


class Loud(Scripted):
    """Whatever it is asked for ends with an exception that says too much."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception = RuntimeError(LOUD)
        self.checks = [Check("store", ok=False, detail=str(ObjectStoreError(LOUD)))]

    def _fail(self) -> NoReturn:
        try:
            raise ValueError(f"inner: {LOUD}")
        except ValueError as inner:
            raise self.error from inner

    async def call(self, tenant: str, request: Request, *, wait_seconds: float = 10.0, strong: bool = False) -> Reply:
        self._fail()

    async def operation_status(self, tenant: str, attempt_id: str) -> NoReturn:
        self._fail()

    async def revision_content(self, *_: object, **__: object) -> NoReturn:
        self._fail()

    async def record_erasure(self, *_: object, **__: object) -> NoReturn:
        self._fail()

    async def newer(self, *_: object, **__: object) -> NoReturn:
        self._fail()

    @property
    def administration(self) -> NoReturn:
        self._fail()

    async def cursor_key(self) -> bytes:
        self._fail()

    @property
    def uploads(self) -> NoReturn:
        self._fail()


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What the process would write to stderr with the finest logs, of its own and of its libraries."""
    stream, root = io.StringIO(), logging.getLogger()
    handler, level = logging.StreamHandler(stream), root.level
    handler.setFormatter(JsonFormatter())
    handler.addFilter(lambda record: not record.name.startswith(("httpx", "httpcore")))
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    formatters = [(each, each.formatter) for each in root.handlers]
    hide_secrets_of({"MEMOREE_SECRET_ACCESS_KEY": S3_SECRET, "MEMOREE_TOKENS_FILE": "/etc/memoree/tokens.json"})
    try:
        yield stream
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        for each, formatter in formatters:
            each.setFormatter(formatter)
        redaction._values = frozenset()


def app_of(service: Loud, tokens: Path, **settings: Any) -> Starlette:
    wide = {"rate_per_second": 100_000.0, "rate_burst": 100_000, **settings}
    app: Starlette = create_app(
        service, HttpSettings(tokens_file=tokens, metrics_on_main_port=True, access_log=True, **wide)
    )
    return app


NAMES: Mapping[str, str] = {
    "attempt_id": new_attempt_id(),
    "upload_id": new_upload_id(1_796_112_879_407),
    "artifact_id": new_id("art"),
    "revision_id": new_id("arev"),
    "episode_id": "01KJR4GZXJDFPSG3SB9V65FA1E",
    "lsn": "0.0",
    "tenant": "A",
    "token_id": DIGESTS[0][:12],
}
BODIES: Mapping[str, list[bytes]] = {
    path: [json.dumps(each).encode() for each in documents]
    for path, documents in {
        "/v1/call": [envelope("artifact.get", {"artifact_id": "art_1"}), envelope("doctor")],
        "/v1/bulk": [envelope("artifact.get", {"artifact_id": "art_1"})],
        "/v1/artifacts/uploads": [{"size_bytes": 4, "blob_hash": "0" * 64}],
        "/v1/ingest": [{"source": "s", "content": "c"}, {"tenant": "B"}],
        "/v1/recall": [{"query": "q"}, {"k": -1}],
        "/v1/forget": [
            {"target": {"Id": NAMES["episode_id"]}, "hard": True},
            {"target": {"Id": NAMES["episode_id"]}, "hard": True, "confirmation_token": RECEIPT},
        ],
    }.items()
}
TYPES = {"/v1/bulk": "application/x-ndjson"}


def paths(app: Starlette) -> list[str]:
    """Every one, also of routes that this test has never heard of."""
    listed = [route.path for route in app.routes]
    return [path.format_map({**NAMES, **dict.fromkeys(_parameters(path), "1")} | NAMES) for path in listed]


def _parameters(path: str) -> list[str]:
    return [part.strip("{}").partition(":")[0] for part in path.split("/") if part.startswith("{")]


def asked(path: str, method: str) -> list[tuple[bytes | None, str]]:
    """Bodies for it, with their types."""
    if method in ("GET", "HEAD", "DELETE"):
        return [(None, "")]
    good = TYPES.get(path, "application/json")
    sensible = [(body, good) for body in BODIES.get(path, [b"{}"])]
    return [*sensible, (b'{"query": 7}', good), (b"{", good), (b"kiln", "text/plain")]


def every_answer(client: httpx.Client, app: Starlette, tokens: list[str | None]) -> Iterator[httpx.Response]:
    for path in (*paths(app), "/v1/nowhere"):
        yield (known := client.options(path))
        yield client.patch(path)
        for method in known.headers.get("allow", "GET").replace("OPTIONS", "").split(", "):
            for token in tokens if method else ():
                headers = {} if token is None else _bearer(token)
                for body, content_type in asked(path, method):
                    typed = {"Content-Type": content_type} if content_type else {}
                    query = f"?workspace_id={CONTEXT['workspace_id']}&project_id={CONTEXT['project_id']}"
                    yield client.request(method, path + query, content=body, headers=headers | typed)


def told(answer: httpx.Response) -> str:
    return "\n".join((answer.text, *(f"{name}: {value}" for name, value in answer.headers.items())))


def held(text: str) -> list[str]:
    return [secret for secret in SECRETS if secret in text]


@pytest.mark.proves("isolation-8")
def test_no_refusal_and_no_failure_of_any_route_tells_a_secret(
    tmp_path: Path, stack: ExitStack, written: io.StringIO
) -> None:
    tokens = write_tokens(tmp_path / "tokens.json", TOKENS)
    statuses: set[int] = set()
    everybody = [None, OTHER, READER, WRITER, FULL]
    for error, callers in (
        (RuntimeError(LOUD), everybody),
        (ObjectStoreError(LOUD), [FULL]),
        (QueueError(LOUD), [FULL]),
    ):
        service = Loud()
        service.error = error
        app = app_of(service, tokens)
        client = stack.enter_context(httpx.Client(base_url=stack.enter_context(serving(app)), trust_env=False))
        for answer in every_answer(client, app, callers):
            assert held(told(answer)) == [], f"{answer.request.method} {answer.request.url} {answer.text[:500]}"
            statuses.add(answer.status_code)
        too_much = client.post("/v1/call", content=LARGE, headers=_bearer(FULL) | {"Content-Type": "application/json"})
        statuses.add(too_much.status_code)
        assert held(told(too_much) + client.get("/metrics").text + client.get("/readyz").text) == []
    statuses |= {each.status_code for each in _limited(tmp_path, stack)}
    assert statuses >= STATUSES
    lines = written.getvalue()
    assert lines.count("\n") > len(STATUSES) and "RuntimeError" in lines, "failures are logged"
    assert held(lines) == []
    assert str(CONFIRMED_AT) not in lines, "a confirmation is no matter for a log"


def _limited(tmp_path: Path, stack: ExitStack) -> list[httpx.Response]:
    app = app_of(Loud(), tmp_path / "tokens.json", rate_per_second=1.0, rate_burst=1)
    client = stack.enter_context(httpx.Client(base_url=stack.enter_context(serving(app)), trust_env=False))
    answers = [client.get("/v1/snapshot/0.0", headers=_bearer(SPENT)) for _ in range(3)]
    assert held("".join(map(told, answers)) + client.get("/metrics").text) == []
    return answers


def _bearer(token: str) -> Json:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.proves("isolation-8")
@pytest.mark.parametrize(
    "content", [json.dumps({FULL: {"tenant": 7}}), f'{{"{FULL}": oops', f'["{FULL}"]', f'"{FULL}"']
)
def test_a_tokens_file_that_is_at_fault_is_told_of_without_a_word_of_it(
    tmp_path: Path, stack: ExitStack, written: io.StringIO, content: str
) -> None:
    tokens = tmp_path / "tokens.json"
    tokens.write_text(content)
    app = app_of(Loud(), tokens)
    client = stack.enter_context(httpx.Client(base_url=stack.enter_context(serving(app)), trust_env=False))
    ready = client.get("/readyz")
    refused = client.get("/v1/snapshot/0.0", headers=_bearer(FULL))
    assert (ready.status_code, refused.status_code) == (503, 401)
    assert held(told(ready) + told(refused) + client.get("/metrics").text + written.getvalue()) == []
    assert "tokens file" in written.getvalue()


@pytest.mark.proves("isolation-8")
@pytest.mark.parametrize("kind", [ObjectStoreError, QueueError])
def test_what_a_library_says_is_told_without_its_secrets(written: io.StringIO, kind: type[Exception]) -> None:
    """Its message reaches callers and the readiness report."""
    told = str(kind(LOUD))
    assert "bucket.example/tenants/A/head.json" in told
    assert held(told) == []


@pytest.mark.proves("isolation-9")
def test_an_exception_is_logged_with_its_trace_and_without_its_secrets(written: io.StringIO) -> None:
    try:
        Loud()._fail()
    except RuntimeError:
        logging.getLogger("a.library").exception("it failed: %s", LOUD)
    (line,) = written.getvalue().splitlines()
    record = json.loads(line)
    assert "ValueError: inner: GET https://bucket.example/tenants/A/head.json" in record["exception"]
    assert held(line) == []


@pytest.mark.proves("isolation-9")
@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Authorization: Bearer abcdefgh12345678", "Authorization: Bearer ***"),
        ("(b'authorization', b'bearer abc.def-12~4/x=')", "(b'authorization', b'bearer ***')"),
        (
            "https://b/k?X-Amz-Expires=60&X-Amz-Signature=00ff&x=1",
            "https://b/k?X-Amz-Expires=60&X-Amz-Signature=***&x=1",
        ),
        (
            "Credential=AKID/2026/s3, SignedHeaders=host, Signature=00ff",
            "Credential=***, SignedHeaders=host, Signature=***",
        ),
        ("aws_secret_access_key = abc/def+g", "aws_secret_access_key = ***"),
        ('"SecretAccessKey": "abc", "SessionToken": "def"', '"SecretAccessKey": "***", "SessionToken": "***"'),
        ("https://me:p@ss@git.example/kiln.git", "https://***@git.example/kiln.git"),
        (f"entry sha256:{'0f' * 32} of the file", "entry sha256:*** of the file"),
        ("there is no bearer token: send one", "there is no bearer token: send one"),
        ("it has no signature, and me@example.org wrote it", "it has no signature, and me@example.org wrote it"),
        (
            "tenants/A/head.json: the store answered 503 SlowDown",
            "tenants/A/head.json: the store answered 503 SlowDown",
        ),
    ],
)
def test_what_announces_a_secret_stays_and_the_secret_goes(text: str, kept: str) -> None:
    assert redacted(text) == kept


@pytest.mark.proves("isolation-9")
def test_values_of_secret_settings_are_known_wherever_they_stand(written: io.StringIO) -> None:
    hide_secrets_of({"MEMOREE_SECRET_ACCESS_KEY": S3_SECRET, "MEMOREE_TOKEN": "short", "MEMOREE_BUCKET": "the-bucket"})
    assert redacted(f"a {S3_SECRET}, a short one and the-bucket") == "a ***, a short one and the-bucket"
    hide_secrets_of({})
    once = [each.formatter for each in logging.getLogger().handlers if isinstance(each.formatter, RedactingFormatter)]
    assert once and not any(isinstance(each._inner, RedactingFormatter) for each in once), "wrapped once"
