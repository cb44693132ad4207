"""One scenario through every door there is: the answers are the same apart from ids and times."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest

from e2e.api_process import api_process
from e2e.deployment import PROGRAM, Deployment, environment
from e2e.shared_stack import fresh_tenant
from memoree.client.framed import FramedEndpoint
from memoree.client.request import encode_request

pytestmark = pytest.mark.stack

Json = dict[str, Any]
Send: TypeAlias = Callable[[Json], Json]

CONTEXT = {"workspace_id": "wsp_doors", "project_id": "prj_doors"}
START_SECONDS_MAX = 30.0
SCORE_DIGITS = 6
"""Recency makes scores of the same hit differ after that, by the time that passed."""
LARGE = "large text with a needle in it. " * 1_000
PROCESS_DEPENDENT = {
    "daemon_pid",
    "running",
    "binary_version",
    "lifecycle_owner",
    "transport",
    "created_at",
    "updated_at",
}
_ID = re.compile(r"\b(?:art|arev|clm|crev|att|evt|rel)_[0-9A-Z]{26}\b")
_UNREAD = re.compile(r"req_(?:transport|cli)")
"""Requests that were refused before their id was read, here and there."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+Z")


def scenario(send: Send) -> list[Json]:
    """Writes, a repeat, a conflict, reads, searches, refusals. Returns every answer in order."""
    answers: list[Json] = []

    def call(op: str, payload: Json, **members: Any) -> Json:
        request = {"v": 1, "request_id": f"req_{len(answers)}", "op": op, "input": payload}
        request |= {"context": CONTEXT, "context_source": "explicit"}
        answers.append(send({**request, **members}))
        result: Json = answers[-1].get("result", {})
        return result

    small = {"kind": "note", "title": "Kiln", "content": {"type": "text", "data": "cone 6 reached — überall"}}
    artifact = call("artifact.put", small, idempotency_key="small")
    call("artifact.put", small, idempotency_key="small")
    call("artifact.put", {**small, "title": "Other"}, idempotency_key="small")
    call("artifact.put", {**small, "content": {"type": "text", "data": LARGE}}, idempotency_key="large")
    call("artifact.put", {**small, "content": {"type": "base64", "data": "//4AAQI="}}, idempotency_key="binary")
    by_id = {"artifact_id": artifact["artifact_id"]}
    revise = {**by_id, "if_revision": artifact["revision_id"], "content": {"type": "text", "data": "cone 7"}}
    call("artifact.revise", revise, idempotency_key="revise")
    call("artifact.revise", revise, idempotency_key="revise again")
    evidence = {**by_id, "revision_id": artifact["revision_id"], "start_byte": 0, "end_byte": 6}
    asserted = {"claim_type": "fact", "statement": "The kiln reached cone 6.", "evidence": [evidence]}
    claim = call("claim.assert", asserted, idempotency_key="claim")
    call("claim.assert", {**asserted, "evidence": [{**evidence, "end_byte": 9999}]}, idempotency_key="too far")
    call("claim.get", {"claim_id": claim["claim_id"]})
    call("artifact.get", by_id)
    call("artifact.history", by_id)
    call("artifact.get", {"artifact_id": "art_unknown"})
    call("search", {"query": "cone kiln"})
    call("search", {"query": "needle", "limit": 1})
    call("search", {"query": ""})
    call("artifact.forget", {**by_id, "reason": "done"}, idempotency_key="forget")
    call("search", {"query": "cone 7"})
    call("artifact.get", by_id)
    call("claim.retract", {"claim_id": claim["claim_id"], "if_revision": claim["revision_id"], "reason": "r"})
    call("doctor", {}, context=None)
    call("no.such.operation", {})
    call("artifact.put", {**small, "no_such_member": 1}, idempotency_key="unknown member")
    return answers


def normalised(answers: list[Json]) -> list[Json]:
    """Ids by the order in which they appear, no times, and nothing that differs between processes."""
    names: dict[str, str] = {}

    def name(found: re.Match[str]) -> str:
        return names.setdefault(found[0], f"{found[0][:4]}#{len(names)}")

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(each) for key, each in value.items() if key not in PROCESS_DEPENDENT}
        if isinstance(value, list):
            return [plain(each) for each in value]
        if isinstance(value, float):
            return round(value, SCORE_DIGITS)
        if isinstance(value, str):
            return _UNREAD.sub("req_unread", _TIME.sub("TIME", _ID.sub(name, value)))
        return value

    return [plain(answer) for answer in answers]


def lines(answer: Json) -> list[str]:
    """So that a difference is shown where it is."""
    return json.dumps(answer, indent=1, sort_keys=True).splitlines()


# --- the doors --------------------------------------------------------------------------------------------------


def command_line(*options: str, **variables: str) -> Send:
    def send(request: Json) -> Json:
        done = subprocess.run(
            [PROGRAM, *options, "call"],
            input=json.dumps(request).encode(),
            capture_output=True,
            env=environment(**variables),
            cwd="/",
        )
        answer: Json = json.loads(done.stdout)
        assert (done.returncode == 0) is answer["ok"]
        return answer

    return send


def http(url: str, token: str | None) -> Send:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def send(request: Json) -> Json:
        answer: Json = httpx.post(f"{url}/v1/call", json=request, headers=headers, timeout=30, trust_env=False).json()
        return answer

    return send


def framed(path: Path) -> Send:
    endpoint = FramedEndpoint(str(path))

    def send(request: Json) -> Json:
        answer: Json = json.loads(endpoint.exchange(encode_request(request)))
        return answer

    return send


@contextmanager
def serving(data_dir: Path, *options: str | Path) -> Iterator[str]:
    """`memoree serve` over an embedded store; where it listens."""
    process = subprocess.Popen(
        [PROGRAM, "serve", "--data", data_dir, *options],
        stderr=subprocess.PIPE,
        env=environment(MEMOREE_HOME=str(data_dir.with_name("home"))),
        text=True,
    )
    try:
        assert process.stderr is not None
        deadline = time.monotonic() + START_SECONDS_MAX
        for line in process.stderr:
            if line.startswith("LISTENING_ON "):
                yield line.removeprefix("LISTENING_ON ").strip()
                return
            assert time.monotonic() < deadline
        raise AssertionError("memoree serve ended")
    finally:
        process.terminate()
        process.wait(START_SECONDS_MAX)
        if process.stderr is not None:
            process.stderr.close()


@pytest.mark.timeout(300)
@pytest.mark.fault_class(60)
def test_every_door_gives_the_same_answers(stack: Deployment, tmp_path: Path) -> None:
    http_token, shell_token = stack.tokens[fresh_tenant()], stack.tokens[fresh_tenant()]
    home = {"MEMOREE_HOME": str(tmp_path / "home")}
    answers = {"command line, embedded": scenario(command_line(MEMOREE_DATA_DIR=str(tmp_path / "shell"), **home))}
    with api_process(stack, tmp_path / "api") as api:  # one process, which reads its own writes
        api.wait_until_live()
        answers["HTTP, stack"] = scenario(http(api.url, http_token))
        variables = {"MEMOREE_ENDPOINT": api.url, "MEMOREE_TOKEN": shell_token}
        answers["command line over HTTP, stack"] = scenario(command_line(**variables, **home))
    with serving(tmp_path / "served", "--port", "0") as address:
        answers["HTTP, embedded"] = scenario(http(f"http://{address}", None))
    # A path of at most 100 bytes: the directories of tests can be longer than a socket's address.
    socket_path = Path("/tmp", f"memoree-doors-{os.getpid()}.sock")
    with serving(tmp_path / "framed", "--socket", socket_path):
        answers["framed socket"] = scenario(framed(socket_path))

    reference, *others = answers
    expected = normalised(answers[reference])
    assert sum(answer["ok"] for answer in expected) > len(expected) / 2
    for other in others:
        for number, (mine, theirs) in enumerate(zip(expected, normalised(answers[other]), strict=True)):
            assert lines(theirs) == lines(mine), f"answer {number} of {other!r} differs from {reference!r}"
