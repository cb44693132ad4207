"""The demonstration behind `scripts/demo`. Progress goes to stderr, answers to stdout; any failed step exits 1."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parent.parent
MEMOREE = Path(sys.executable).with_name("memoree")
CONTEXT = {"workspace_id": "wsp_demo", "project_id": "prj_memoree"}
BURST_WRITES = 200
BURST_CLIENTS = 8
SEARCH_LIMIT = 20
SHOWN_HITS = 3
KILL_AFTER_WRITES = 60
WRITE_SECONDS_MAX = 40.0
UNLIMITED = ["--rate", "10000", "--burst", "10000"]


@dataclass(frozen=True)
class Evidence:
    """A claim about this repository and the exact words that support it."""

    claim_type: str
    statement: str
    path: str
    quote: str


CLAIMS = [
    Evidence("fact", "Memoree is licensed under the Apache License 2.0.", "LICENSE", "Version 2.0, January 2004"),
    Evidence("constraint", "Memoree needs Python 3.11 or newer.", "pyproject.toml", 'requires-python = ">=3.11"'),
    Evidence(
        "decision",
        "The commit point of a write is the compare-and-swap of head.json.",
        "docs/decisions/0001-head-is-the-commit-point.md",
        "`head.json` is the commit point",
    ),
    Evidence(
        "decision",
        "Every acquisition of a tenant by a writer is a new epoch with a prefix of its own.",
        "docs/decisions/0002-every-acquisition-is-a-new-epoch.md",
        "Every acquisition of a tenant is a new epoch",
    ),
    Evidence(
        "decision",
        "Readers apply the change files themselves to the idle one of two local copies.",
        "docs/decisions/0003-readers-apply-change-files.md",
        "to the idle one of two local copies",
    ),
    Evidence(
        "decision",
        "Full-text tables are contentless, fed with analysed text.",
        "docs/decisions/0004-contentless-full-text.md",
        "contentless",
    ),
    Evidence(
        "procedure",
        "The whole stack is started with memoree up and stopped with memoree down.",
        "README.md",
        "memoree up",
    ),
    Evidence("procedure", "Run scripts/check before every commit.", "CONTRIBUTING.md", "`scripts/check`"),
    Evidence(
        "constraint",
        "An acknowledged write survives a crash of the writer.",
        "docs/architecture.md",
        "survives",
    ),
    Evidence(
        "constraint",
        "A tenant is resolved from the bearer token and never from a field of the request.",
        "docs/architecture.md",
        "never from a field of the request",
    ),
    Evidence(
        "observation",
        "SeaweedFS does not fsync by default, so memoree up turns it on.",
        "docs/operations.md",
        "does not fsync by default",
    ),
    Evidence(
        "procedure",
        "A write that is still pending is answered with HTTP 202 and may be sent again with the same key.",
        "docs/http.md",
        "WRITE_PENDING",
    ),
]

QUESTIONS = [
    "Which license does Memoree have?",
    "What is the commit point of a write?",
    "How do readers apply change files?",
    "Does SeaweedFS fsync by default?",
    "How is a write answered that is still pending?",
]


class StepFailed(Exception):
    """The demonstration did not show what it promises."""


def say(line: str) -> None:
    print(f"demo: {line}", file=sys.stderr, flush=True)


def expect(condition: bool, otherwise: str) -> None:
    if not condition:
        raise StepFailed(otherwise)


class Stack:
    """`memoree up` as a child process."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self._process = subprocess.Popen(
            [str(MEMOREE), "up", "--data", str(data_dir), "--api-processes", "2", *UNLIMITED],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        expect(bool(line), "memoree up did not start")
        self.state: dict[str, Any] = json.loads(line)
        tokens = json.loads(Path(self.state["tokens_file"]).read_text())
        self.token = next(iter(tokens))

    @property
    def url(self) -> str:
        return str(self.state["url"])

    def kill_writer(self) -> None:
        """SIGKILL the writer's process group, as it runs now."""
        state = json.loads((self.data_dir / "up.json").read_text())
        pid = next(child["pid"] for child in state["children"] if "writer" in child["name"])
        os.killpg(pid, signal.SIGKILL)

    def stop(self) -> None:
        began = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        status = self._process.wait(30)
        seconds = time.monotonic() - began
        expect(status == 0, f"memoree up ended with status {status}")
        say(f"the stack stopped in {seconds:.1f} s")

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(10)


class Memory:
    """The HTTP door, as an agent uses it."""

    def __init__(self, stack: Stack) -> None:
        self._http = httpx.AsyncClient(
            base_url=stack.url, headers={"Authorization": f"Bearer {stack.token}"}, timeout=30, trust_env=False
        )

    async def __aenter__(self) -> Memory:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def call(self, operation: str, payload: dict[str, Any], key: str | None = None) -> dict[str, Any]:
        """One request; the answer's envelope. The identical request is sent again while its outcome is unknown."""
        body = {"request_id": f"req_{uuid.uuid4().hex}", "op": operation, "context": CONTEXT, "input": payload}
        if key is not None:
            body["idempotency_key"] = key
        deadline = time.monotonic() + WRITE_SECONDS_MAX
        while True:
            try:
                envelope = (await self._http.post("/v1/call", json=body)).json()
            except httpx.TransportError as error:
                envelope = {"ok": False, "error": {"retryable": True, "message": repr(error)}}
            if envelope["ok"] or not envelope["error"]["retryable"]:
                return envelope
            expect(time.monotonic() < deadline, f"{operation} was never answered: {envelope}")
            await asyncio.sleep(0.1)

    async def must(self, operation: str, payload: dict[str, Any], key: str | None = None) -> dict[str, Any]:
        envelope = await self.call(operation, payload, key)
        expect(envelope["ok"], f"{operation}: {envelope.get('error')}")
        return envelope["result"]


async def remember_repository(memory: Memory) -> int:
    """Store every document, then the claims with the byte spans of their quotes; the number of writes."""
    paths = sorted({claim.path for claim in CLAIMS} | {str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md")})
    artifacts = {}
    for path in paths:
        text = (ROOT / path).read_text()
        artifacts[path] = await memory.must(
            "artifact.put",
            {"kind": "document", "title": path, "content": {"type": "text", "data": text}},
            key=f"document/{path}",
        )
    say(f"stored {len(paths)} documents of this repository")
    for number, claim in enumerate(CLAIMS):
        start = (ROOT / claim.path).read_bytes().find(claim.quote.encode())
        expect(start >= 0, f"{claim.path} does not say {claim.quote!r}")
        artifact = artifacts[claim.path]
        evidence = {
            "artifact_id": artifact["artifact_id"],
            "revision_id": artifact["revision_id"],
            "start_byte": start,
            "end_byte": start + len(claim.quote.encode()),
        }
        payload = {"claim_type": claim.claim_type, "statement": claim.statement, "evidence": [evidence]}
        await memory.must("claim.assert", payload, key=f"claim/{number}")
    say(f"asserted {len(CLAIMS)} claims, each citing exact bytes")
    return len(paths) + len(CLAIMS)


async def ask(memory: Memory, stack: Stack) -> None:
    """Each question over HTTP and through the command line; both must agree and cite what they say."""
    for question in QUESTIONS:
        found = await memory.must("search", {"query": question, "limit": SEARCH_LIMIT})
        expect(bool(found["hits"]), f"nothing was found for {question!r}")
        print(f"\nQ: {question}")
        claim = next((hit for hit in found["hits"] if hit["entity_type"] == "claim"), None)
        expect(claim is not None, f"no claim was found for {question!r}")
        assert claim is not None
        for hit in [*found["hits"][:SHOWN_HITS], *([claim] if claim not in found["hits"][:SHOWN_HITS] else [])]:
            shown = hit["title"] if hit["entity_type"] == "artifact" else hit["excerpt"]
            print(f"   [{hit['entity_type']}] {shown}")
            print(f"      {hit['citation']}")
        for locator in claim["provenance"]["evidence"]:
            print(f"      cited bytes: {await cited_bytes(memory, locator)!r}")
        expect(cli_search(stack, question) == [hit["citation"] for hit in found["hits"]], "the command line disagrees")


async def cited_bytes(memory: Memory, locator: dict[str, Any]) -> str:
    artifact = await memory.must(
        "artifact.get", {"artifact_id": locator["artifact_id"], "revision_id": locator["revision_id"]}
    )
    content = artifact["content"]
    expect(content["type"] == "text", "a text document came back as something else")
    cited: bytes = content["data"].encode()[locator["start_byte"] : locator["end_byte"]]
    return cited.decode()


def cli_search(stack: Stack, question: str) -> list[str]:
    environment = {
        **os.environ,
        "MEMOREE_ENDPOINT": stack.url,
        "MEMOREE_TOKEN": stack.token,
        "MEMOREE_CONTEXT": json.dumps(CONTEXT),
    }
    done = subprocess.run(
        [str(MEMOREE), "search", question, "--limit", str(SEARCH_LIMIT), "--json"],
        capture_output=True,
        text=True,
        env=environment,
    )
    expect(done.returncode == 0, f"memoree search failed: {done.stdout}{done.stderr}")
    return [hit["citation"] for hit in json.loads(done.stdout)["result"]["hits"]]


@dataclass
class Burst:
    """What became of each write: when it was sent and acknowledged, and as what."""

    sent: dict[str, float]
    acknowledged: dict[str, float]
    claims: dict[str, str]


async def burst_with_kill(memory: Memory, stack: Stack) -> Burst:
    """Writes from several clients, the writer killed in the middle of them."""
    seen = Burst({}, {}, {})
    waiting = iter(range(BURST_WRITES))
    enough = asyncio.Event()

    async def client() -> None:
        for number in waiting:
            key = f"burst/{number}"
            seen.sent[key] = time.monotonic()
            result = await memory.must(
                "claim.assert", {"claim_type": "observation", "statement": f"Burst write {number}."}, key=key
            )
            seen.acknowledged[key] = time.monotonic()
            if len(seen.acknowledged) == KILL_AFTER_WRITES:
                enough.set()
            seen.claims[key] = result["claim_id"]

    async def killer() -> float:
        await enough.wait()
        stack.kill_writer()
        return time.monotonic()

    killed_at, *_ = await asyncio.gather(killer(), *(client() for _ in range(BURST_CLIENTS)))
    before = sum(at < killed_at for at in seen.acknowledged.values())
    in_flight = sum(seen.sent[key] < killed_at < at for key, at in seen.acknowledged.items())
    after = sum(sent > killed_at for sent in seen.sent.values())
    say(f"killed the writer: {before} acknowledged before, {in_flight} in flight, {after} sent afterwards")
    expect(min(before, in_flight, after) > 0, "the kill did not fall into the middle of the burst")
    return seen


async def compare(memory: Memory, seen: Burst, writes_before: int) -> None:
    """Every acknowledged write is there, none twice: its claim is found by id, a repeat gives the same claim, and
    the store has consumed exactly one commit number per write."""
    expect(len(set(seen.claims.values())) == BURST_WRITES, "two writes became one claim")
    for key, claim_id in seen.claims.items():
        number = key.removeprefix("burst/")
        claim = await memory.must("claim.get", {"claim_id": claim_id})
        expect(claim["statement"] == f"Burst write {number}.", f"{key} is not what was written")
        again = await memory.must(
            "claim.assert", {"claim_type": "observation", "statement": f"Burst write {number}."}, key=key
        )
        expect((again["claim_id"], again["created"]) == (claim_id, False), f"{key} was written twice")
    last = (await memory.must("doctor", {}))["last_commit_seq"]
    expect(last == writes_before + BURST_WRITES, f"{writes_before + BURST_WRITES} writes made {last} commits")
    say(f"all {BURST_WRITES} writes are there, none twice; {last} writes made {last} commits")


async def demonstrate(stack: Stack) -> None:
    async with Memory(stack) as memory:
        writes = await remember_repository(memory)
        await ask(memory, stack)
        seen = await burst_with_kill(memory, stack)
        await compare(memory, seen, writes)


def main() -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="memoree-demo-") as directory:
        stack = Stack(Path(directory, "stack"))
        try:
            asyncio.run(demonstrate(stack))
            stack.stop()
        except StepFailed as error:
            say(f"FAILED: {error}")
            return 1
        finally:
            stack.kill()
    say(f"done in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
