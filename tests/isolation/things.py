"""What a tenant owns, one of each kind, and how to ask for it on every surface that takes its name."""

from __future__ import annotations

import base64
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import httpx
import orjson
from blake3 import blake3

from contract.protocol import COMPLETE_INPUTS, MUTATING
from isolation.caller import CONTEXT, Caller, Json, envelope
from isolation.names import word_of_nobody
from memoree.ids import new_attempt_id, new_id, new_ulid, new_upload_id

LARGE_BYTES = 20 * 1024
SOURCE_OF_EPISODES = "kiln:log"
_CURSOR_BYTES = 33


@dataclass(frozen=True)
class Things:
    """Names of what one tenant has, or, made by `of_nobody`, of what no tenant has."""

    artifact: str
    artifact_revision: str
    large: str
    large_revision: str
    claim: str
    claim_revision: str
    other_claim: str
    source: str
    source_of_item: str
    projection: str
    feedback: str
    upload: str
    attempt: str
    episode: str
    episode_source: str
    cursor: str
    word: str
    key: str
    doomed: str
    """An episode."""
    receipt: str
    """Of a dry run that would forget it."""

    def named_in(self, text: str) -> str:
        """The text with the names taken out of it."""
        for name, value in sorted(asdict(self).items(), key=lambda item: -len(item[1])):
            if name not in ("key", "receipt"):
                text = text.replace(value, f"<{name}>")
        return text


def made_by(caller: Caller) -> Things:
    """One of everything, made now."""
    artifact = caller.ok("artifact.put", put_of(caller.text()))
    body = caller.text("large ").encode().ljust(LARGE_BYTES, b".")
    large = caller.ok("artifact.put", put_of(body))
    source = caller.ok("source.register", {"name": caller.text("wiki"), "kind": "wiki_adapter"})
    delivered = filled(COMPLETE_INPUTS["source.ingest"], {"source": source["source_id"]})
    page = caller.ok("source.ingest", delivered | {"content": text_of(caller.text("page"))})["artifact"]
    evidence = [{"artifact_id": page["artifact_id"], "revision_id": page["revision_id"]}]
    claims = [
        caller.ok("claim.assert", {"claim_type": "fact", "statement": caller.text("claim"), "evidence": evidence})
        for _ in range(2)
    ]
    contradiction = {"claim": claims[0]["claim_id"], "other_claim": claims[1]["claim_id"]}
    caller.ok("relation.put", filled(COMPLETE_INPUTS["relation.put"], contradiction))
    support = {"source_type": "artifact", "source_id": page["artifact_id"], "relation": "supports"}
    caller.ok("relation.put", support | {"target_type": "claim", "target_id": claims[0]["claim_id"]})
    project = {"artifact": artifact["artifact_id"], "artifact_revision": artifact["revision_id"]}
    projection = caller.ok(
        "projection.put", filled(COMPLETE_INPUTS["projection.put"], project) | {"text": caller.text("summary")}
    )
    feedback = caller.ok("feedback.record", {"query": caller.text(), "outcome": "useful", "retain_query": True})
    episode, doomed, episode_source = new_ulid(), new_ulid(), f"{caller.word}:log"
    for each in (episode, doomed):
        stored = {
            "id": each,
            "source": episode_source,
            "content": f"# {caller.word.title()}\n\n{caller.text('episode')}",
        }
        assert caller.request("POST", "/v1/ingest", stored).status_code == 200
    forget = {"target": {"Id": doomed}, "dry_run": True}
    key = caller.fresh_key()
    caller.ok("artifact.put", put_of(caller.text("keyed")), key=key)
    return Things(
        artifact=artifact["artifact_id"],
        artifact_revision=artifact["revision_id"],
        large=large["artifact_id"],
        large_revision=large["revision_id"],
        claim=claims[0]["claim_id"],
        claim_revision=claims[0]["revision_id"],
        other_claim=claims[1]["claim_id"],
        source=source["source_id"],
        source_of_item=source["source_id"],
        projection=projection["projection_id"],
        feedback=feedback["feedback_id"],
        upload=uploaded(caller, caller.text("upload").encode()),
        attempt=attempt_of(caller),
        episode=episode,
        episode_source=episode_source,
        cursor=caller.request("GET", listed("artifacts", limit=1)).json()["next_cursor"],
        word=caller.word,
        key=key,
        doomed=doomed,
        receipt=caller.request("POST", "/v1/forget", forget).text,
    )


def of_nobody(like: Things) -> Things:
    """Names that were never given to anything."""
    return Things(
        artifact=new_id("art"),
        artifact_revision=new_id("arev"),
        large=new_id("art"),
        large_revision=new_id("arev"),
        claim=new_id("clm"),
        claim_revision=new_id("crev"),
        other_claim=new_id("clm"),
        source=(source := new_id("src")),
        source_of_item=source,
        projection=new_id(like.projection.partition("_")[0]),
        feedback=new_id("fb"),
        upload=new_upload_id(time.time_ns() // 1_000_000),
        attempt=new_attempt_id(),
        episode=new_ulid(),
        episode_source=f"{word_of_nobody()}:log",
        cursor=base64.urlsafe_b64encode(b"\x01" + os.urandom(_CURSOR_BYTES - 1)).decode(),
        word=word_of_nobody(),
        key=f"never-{new_ulid()}",
        doomed=(doomed := new_ulid()),
        receipt=re.sub(r'"counter":\d+', '"counter":7', like.receipt.replace(like.doomed, doomed)),
    )


def put_of(body: str | bytes, **members: Any) -> Json:
    content = text_of(body) if isinstance(body, str) else bytes_of(body)
    return {"kind": "note", "title": "Kiln firing 12", "content": content} | members


def text_of(text: str) -> Json:
    return {"type": "text", "data": text}


def bytes_of(body: bytes) -> Json:
    return {"type": "base64", "data": base64.b64encode(body).decode()}


def declared(caller: Caller, body: bytes) -> str:
    """The id of an upload of which nothing was sent yet."""
    wanted = {"size_bytes": len(body), "blob_hash": blake3(body).hexdigest()}
    answer = caller.request("POST", "/v1/artifacts/uploads", wanted)
    assert answer.status_code == 201, answer.text
    upload_id: str = answer.json()["upload_id"]
    return upload_id


def uploaded(caller: Caller, body: bytes) -> str:
    upload_id = declared(caller, body)
    sent = caller.request("PUT", f"/v1/artifacts/uploads/{upload_id}/content", body)
    assert sent.status_code == 204, sent.text
    return upload_id


def attempt_of(caller: Caller) -> str:
    """Of a write that was not waited for, and is applied by now."""
    asked = envelope("artifact.put", put_of(caller.text("patient")), caller.fresh_key())
    answer = caller.request("POST", "/v1/call", asked, {"Prefer": "respond-async"})
    attempt_id: str = answer.json()["error"]["details"]["attempt_id"]
    caller.ok("artifact.put", asked["input"], key=asked["idempotency_key"])
    return attempt_id


def listed(name: str, **asked: object) -> str:
    given = "&".join(f"{key}={value}" for key, value in asked.items())
    return f"/v1/{name}?workspace_id={CONTEXT['workspace_id']}&project_id={CONTEXT['project_id']}&{given}"


def filled(value: Any, names: Mapping[str, str]) -> Any:
    """The value with every name in braces replaced, at any depth."""
    if isinstance(value, dict):
        return {name: filled(member, names) for name, member in value.items()}
    if isinstance(value, list):
        return [filled(item, names) for item in value]
    return value.format_map(names) if isinstance(value, str) else value


# --- asking for them --------------------------------------------------------------------------------------------

Ask = Callable[[Caller, Things], httpx.Response]


def _call(op: str, input: Json) -> Ask:
    def ask(caller: Caller, things: Things) -> httpx.Response:
        key = caller.fresh_key() if op in MUTATING else None
        return caller.request("POST", "/v1/call", envelope(op, filled(input, asdict(things)), key))

    return ask


def _http(method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Ask:
    def ask(caller: Caller, things: Things) -> httpx.Response:
        names = asdict(things)
        return caller.request(method, path.format_map(names), filled(body, names), headers)

    return ask


def _bulk(caller: Caller, things: Things) -> httpx.Response:
    lines = [
        envelope("artifact.get", {"artifact_id": things.artifact}),
        envelope("claim.retract", {"claim_id": things.claim, "reason": "mine"}, caller.fresh_key()),
    ]
    body = b"".join(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE) for line in lines)
    return caller.request("POST", "/v1/bulk", body, {"Content-Type": "application/x-ndjson"})


def _graph(caller: Caller, things: Things) -> httpx.Response:
    return caller.request("POST", "/v1/recall", {"query": f"episodes of {things.word.title()}", "mode": "graph"})


def _forget_with_receipt(caller: Caller, things: Things) -> httpx.Response:
    wanted = {"target": {"Id": things.doomed}, "hard": True, "confirmation_token": things.receipt}
    return caller.request("POST", "/v1/forget", wanted)


_NAMED = re.compile(r"\{[a-z_]+\}")
_SEARCHING = ("search", "memory.recall", "memory.probe", "memory.retrieve", "context.build")
_CONTENT = "/v1/artifacts/{large}/revisions/{large_revision}/content"
_UPLOAD = {"kind": "file", "title": "t", "content": {"type": "upload", "upload_id": "{upload}"}}
_SAID = {"recall": {"query": "{word}"}, "forget": {"target": {"Id": "{episode}"}}}

_NAMING = {op: _call(op, input) for op, input in COMPLETE_INPUTS.items() if _NAMED.search(str(input))}
_NAMING.pop("backup.create")

SURFACES: Mapping[str, Ask] = {
    **{op: ask for op, ask in _NAMING.items() if op not in MUTATING},
    **{op: _call(op, {"query": "{word} glaze"}) for op in _SEARCHING},
    "search in vain for a word with a slip": _call("search", {"query": "{word}x"}),
    "artifact.put of an upload": _call("artifact.put", _UPLOAD),
    "artifact.get of another's revision": _call(
        "artifact.get", {"artifact_id": "{artifact}", "revision_id": "{large_revision}"}
    ),
    "citation.get of the large one": _call("citation.get", {"citation": "memoree://artifact/{large}@{large_revision}"}),
    "content": _http("GET", _CONTENT),
    "content, its head": _http("HEAD", _CONTENT),
    "content, a part": _http("GET", _CONTENT, headers={"Range": "bytes=5-9"}),
    "an attempt": _http("GET", "/v1/operations/{attempt}"),
    "bytes of an upload": _http("PUT", "/v1/artifacts/uploads/{upload}/content", b"kiln"),
    **{
        f"{name} of a source": _http("GET", listed(name, source="{source}"))
        for name in ("artifacts", "claims", "relations")
    },
    "a cursor": _http("GET", listed("artifacts", limit=1, cursor="{cursor}")),
    "an episode": _http("GET", "/v1/episode/{episode}"),
    "episodes by a word": _http("POST", "/v1/recall", _SAID["recall"]),
    "episodes by a word, as a stream": _http("POST", "/v1/recall", _SAID["recall"], {"Accept": "text/event-stream"}),
    "episodes by a word, as a graph": _graph,
    "episodes of a source": _http("POST", "/v1/recall", {"query": "episode", "filter": "source = '{episode_source}'"}),
    "a preview of forgetting": _http("POST", "/v1/forget", _SAID["forget"] | {"dry_run": True}),
    "a preview of forgetting a source": _http(
        "POST", "/v1/forget", {"target": {"Scope": {"BySource": "{episode_source}"}}, "dry_run": True}
    ),
    **{op: ask for op, ask in _NAMING.items() if op in MUTATING},
    "bulk": _bulk,
    "forgetting for good": _forget_with_receipt,
    "forgetting": _http("POST", "/v1/forget", _SAID["forget"]),
}
"""By what is asked for. Those that change something of what they name come after those that read it."""
SILENT = frozenset({"feedback.record"})
"""They take, and tell again, what nobody has as well."""
