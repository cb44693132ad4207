"""The same conversation over every transport: child process, HTTP, and two api processes of a stack in turns."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp_support import Json, Model, http_model, local_model, serving, stdio_model

from e2e.api_process import api_process
from e2e.deployment import Deployment

TEXT = "Die Ofenwache hat Orla bis Mai. Ab Mai hat Per die Ofenwache."
_ID = re.compile(r"\b(?:art|arev|clm|crev|evt|rel)_[0-9A-Z]{26}\b")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+Z")
RESTART_AT = 9
_NUMBERS = {"commit_seq", "revision_commit_seq", "memory_snapshot_commit_seq", "next_before"}


def conversation(ask: Callable[[str, Json], Any]) -> list[Json]:
    """Writes, a repeat, reads, refusals, in an order that matters. Returns every answer as text and payload."""
    answers: list[Json] = []

    def call(tool: str, **arguments: Any) -> Json:
        done = ask(tool, arguments)
        answers.append({"error": done.is_error, "text": done.content[0].text, "payload": done.structured_content})
        return done.structured_content or {}

    claims = [
        {"statement": "Orla watches the kiln until May.", "quote": "Ofenwache hat Orla bis Mai"},
        {"statement": "Per watches the kiln from May on.", "quote": "Ofenwache", "occurrence": 2, "confidence": 1},
    ]
    told = call("memory_remember", text=TEXT, title="Kiln watch", claims=claims)
    call("memory_remember", text=TEXT, title="Kiln watch", claims=claims)
    call("memory_retrieve", query="who watches the kiln", max_claims=1)
    call("memory_retrieve", query="nothing like it")
    call("context_build", query="kiln watch", max_bytes=2000)
    call("citation_get", citation=told["claims"][1]["citation"])
    call("memory_browse", of="claims", limit=1)
    call("conflict_list")
    call("claim_retract", claim_id=told["claims"][0]["claim_id"], reason="it was Per all along")
    call("claim_retract", claim_id=told["claims"][0]["claim_id"], reason="it was Per all along")
    call("memory_browse", of="claims")
    call("memory_search", query="kiln")
    call("memory_get", id="projects/kiln")
    call("memory_health")
    call("memory_ledger_append", topic="kiln", phase="done", action="fired", ref="firing-12")
    call("memory_ledger_append", topic="kiln", phase="done", action="fired once more", ref="firing-12")
    call("memory_write_inbox", content="Per took over in May.")
    call("memory_answer_pack", question="who watches the kiln")
    call("memory_forget", artifact_id=told["artifact_id"], reason="asked to")
    call("memory_retrieve", query="who watches the kiln")
    call("memory_remember", text=TEXT, claims=[{"statement": "x", "quote": "not there"}])
    call("memory_get", id="../up")
    call("memory_brew", strength=3)
    return answers


def alike(answers: list[Json]) -> list[Json]:
    """Ids by the order in which they appear, and no times or numbers that depend on what else a store holds."""
    names: dict[str, str] = {}

    def plain(node: Any, name: str = "") -> Any:
        if isinstance(node, dict):
            return {key: plain(value, key) for key, value in node.items()}
        if isinstance(node, list):
            return [plain(item) for item in node]
        if name in _NUMBERS:
            return None
        if isinstance(node, float):
            return round(node, 4)
        if not isinstance(node, str):
            return node
        if name == "text" and node.startswith(("{", "[")):
            return plain(json.loads(node))
        text = _ID.sub(lambda found: names.setdefault(found[0], f"{found[0].split('_')[0]}{len(names)}"), node)
        return _TIME.sub("TIME", text)

    return [plain(answer) for answer in answers]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[Json]:
    with local_model(tmp_path_factory.mktemp("local")) as model:
        return alike(conversation(model.call))


@contextmanager
def over_stdio(directory: Path) -> Iterator[Model]:
    with stdio_model(directory) as model:
        yield model


@contextmanager
def over_http(directory: Path) -> Iterator[Model]:
    with serving(directory) as url, http_model(url) as model:
        yield model


@contextmanager
def over_both(directory: Path) -> Iterator[Model]:
    """A child process that speaks to a server."""
    with serving(directory) as url, stdio_model(None, "--endpoint", url) as model:
        yield model


@pytest.mark.proves("okf-82")
@pytest.mark.fault_class(60)
@pytest.mark.parametrize("door", [over_stdio, over_http, over_both])
def test_every_transport_answers_the_same(tmp_path: Path, expected: list[Json], door: Any) -> None:
    with door(tmp_path) as model:
        answers = alike(conversation(model.call))
    assert [answer["error"] for answer in answers].count(True) == 3
    for ours, theirs in zip(answers, expected, strict=True):
        assert ours == theirs


@pytest.mark.stack
@pytest.mark.timeout(300)
@pytest.mark.proves("okf-82")
@pytest.mark.fault_class(60)
def test_any_api_process_answers_any_call(stack: Deployment, tenant: str, tmp_path: Path, expected: list[Json]) -> None:
    """Calls go to the processes of a stack and to one beside them in turns; half-way through that one is another."""
    token = stack.tokens[tenant]
    turns = itertools.count()
    with ExitStack() as running, http_model(stack.url, token) as one:
        beside: list[Model] = []

        def begin(name: str) -> None:
            running.pop_all().close()
            api = running.enter_context(api_process(stack, tmp_path / name))
            api.wait_until_live()
            beside[:] = [running.enter_context(http_model(api.url, token))]

        begin("first")

        def ask(tool: str, arguments: Json) -> Any:
            number = next(turns)
            if number == RESTART_AT:
                begin("second")
            return (one, *beside)[number % 2].call(tool, arguments)

        answers = alike(conversation(ask))
    for ours, theirs in zip(answers, expected, strict=True):
        assert ours == theirs
