"""A tenant at the HTTP doors. Whatever it is told is held against what may be told to it."""

from __future__ import annotations

import base64
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from contract.protocol import MUTATING
from isolation.names import ALIKE, token_of, word_of, words_of_others

Json = dict[str, Any]

CONTEXT: Json = {"workspace_id": "wsp_lab", "project_id": "prj_kiln"}
STRONG = {"Memoree-Consistency": "strong"}
PATIENT = {"Prefer": "wait=30"}
"""Of a busy machine."""
ID = re.compile(r"(?<![0-9A-Za-z])(?:[a-z]{2,5}_)?[0-7][0-9A-HJKMNP-TV-Z]{25}(?![0-9A-Za-z])")
_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


@dataclass
class Ledger:
    """Which tenant each id was shown to first: no id has two owners."""

    owners: dict[str, str] = field(default_factory=dict)
    public: frozenset[str] = frozenset()
    """Of documents that everybody may read."""

    def shown(self, tenant: str, ids: set[str]) -> None:
        for each in ids - self.public:
            owner = self.owners.setdefault(each, tenant)
            assert owner == tenant, f"{tenant} was shown {each}, which is of {owner}"


@dataclass
class Heard:
    """Of one tenant: the newest commit it was told of, and how many requests it has spent."""

    commit_seq: int = 0
    requests: int = 0


class Caller:
    """To be closed. Reads are strong, so that every answer is of the tenant's newest state."""

    def __init__(self, base_url: str, tenant: str, ledger: Ledger, *, token: str | None = None) -> None:
        self.tenant = tenant
        self.word = word_of(tenant)
        self.heard = Heard()
        self._ledger = ledger
        self._numbers = itertools.count(1)
        headers = {"Authorization": f"Bearer {token or token_of(tenant)}", "Accept-Encoding": "identity", **STRONG}
        self.http = httpx.Client(base_url=base_url, headers=headers, timeout=60.0, trust_env=False)

    def close(self) -> None:
        self.http.close()

    def text(self, about: str = "glaze") -> str:
        """New text by which the tenant is known."""
        return f"{self.word} {about} {next(self._numbers)}"

    def request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """The body is JSON, unless it is bytes."""
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        typed = {} if content is None else {"Content-Type": "application/json"}
        answer = self.http.request(method, path, content=content, headers={**typed, **(headers or {})})
        sent = f"{path} {(content or b'').decode('latin-1')} {dict(headers or {})}"
        self._judge(answer, sent)
        return answer

    def call(self, op: str, input: Any = None, *, key: str | None = None) -> Json:
        """The envelope that answers; one that says why it could not be decided is a failure."""
        asked = envelope(op, input, key or self.fresh_key())
        answer: Json = self.request("POST", "/v1/call", asked, PATIENT).json()
        code = answer.get("error", {}).get("code")
        assert code not in ("INTERNAL_ERROR", "TRANSPORT_ERROR", "WRITE_PENDING"), answer
        return answer

    def ok(self, op: str, input: Any = None, *, key: str | None = None) -> Json:
        answer = self.call(op, input, key=key)
        assert answer["ok"], f"{op}: {answer}"
        result: Json = answer["result"]
        return result

    def fresh_key(self) -> str:
        """Every tenant counts alike: the keys of all of them are the same."""
        return f"key-{next(self._numbers)}"

    def _judge(self, answer: httpx.Response, sent: str) -> None:
        told = "\n".join((*told_by(answer), *(f"{name}: {value}" for name, value in answer.headers.items())))
        lowered, known = told.casefold(), sent.casefold()
        leaked = [word for word in words_of_others(self.tenant) if word in lowered and word not in known]
        assert not leaked, f"{self.tenant} was told of {leaked}: {told[:2000]}"
        self._ledger.shown(self.tenant, set(ID.findall(told)) - set(ID.findall(sent)))
        self.heard.requests += 1
        if (number := answer.headers.get("memoree-commit-seq")) is not None:
            assert int(number) >= self.heard.commit_seq, "the tenant's own commits were forgotten"
            self.heard.commit_seq = int(number)


def envelope(op: str, input: Any = None, key: str | None = None) -> Json:
    request: Json = {"request_id": "req_isolation", "op": op, "context": CONTEXT, "input": input or {}}
    return request | ({"idempotency_key": key} if op in MUTATING else {})


def told_by(answer: httpx.Response) -> Iterator[str]:
    """Everything that stands in a body, also behind an encoding of bytes or of an id."""
    yield answer.text
    for line in (answer.text, *answer.text.removeprefix("data: ").splitlines()):
        try:
            document = json.loads(line.removeprefix("data: "))
        except ValueError:
            continue
        yield from _hidden(document)


def _hidden(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if value.get("type") == "base64":
            yield base64.b64decode(value.get("data", "")).decode("latin-1")
        for member in value.values():
            yield from _hidden(member)
    elif isinstance(value, list):
        if len(value) == 16 and all(isinstance(each, int) for each in value):
            yield ulid_of(bytes(value))
        for member in value:
            yield from _hidden(member)


def ulid_of(raw: bytes) -> str:
    value = int.from_bytes(raw)
    return "".join(_DIGITS[value >> shift & 31] for shift in range(125, -1, -5))


@dataclass
class Callers:
    """One of each tenant, at one server."""

    base_url: str
    ledger: Ledger = field(default_factory=Ledger)
    by_tenant: dict[str, Caller] = field(default_factory=dict)

    def __enter__(self) -> Callers:
        public = httpx.get(f"{self.base_url}/openapi.json", trust_env=False, timeout=60.0).text
        self.ledger.public = frozenset(ID.findall(public))
        self.by_tenant = {name: Caller(self.base_url, name, self.ledger) for name in ALIKE}
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.by_tenant.values():
            each.close()
