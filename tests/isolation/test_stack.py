"""Tenants of a real deployment: several api processes, a writer, SeaweedFS and Litestream."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from e2e.client import Client, note
from e2e.deployment import FURTHER_SETTINGS, Deployment, deployment, memoree, until
from isolation.caller import CONTEXT, Callers
from isolation.names import ALIKE, token_of, tokens_file, word_of, words_of_others
from isolation.walk import Walk
from memoree.objects.s3 import S3Store
from memoree.replication.ltx import decode

pytestmark = pytest.mark.stack

STEPS = 40
API_PROCESSES = 2
LOUD = {"MEMOREE_LOG_LEVEL": "DEBUG", "MEMOREE_ACCESS_LOG": "true"}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    directory = tmp_path_factory.mktemp("tenants") / "stack"
    with deployment(directory) as opened:
        opened.use_tokens(ALIKE)
        opened.replace_tokens_file(json.dumps(tokens_file()))
        opened.tokens = {name: token_of(name) for name in ALIKE}
        opened.start("--api-processes", str(API_PROCESSES), settings=FURTHER_SETTINGS | LOUD)
        opened.wait_until_ready()
        yield opened


@pytest.mark.timeout(300)
@pytest.mark.proves("isolation-1", "isolation-2", "isolation-4")
@pytest.mark.fault_class(24)
@pytest.mark.fault_class(25)
@pytest.mark.fault_class(26)
def test_no_tenant_of_a_deployment_meets_anything_of_another(stack: Deployment) -> None:
    with Callers(stack.url) as callers:
        Walk(callers, Random(3)).run(STEPS)
        for tenant in ALIKE:
            check_command_line(stack, tenant)
    for exposition in stack.metrics():
        assert not any(word_of(tenant) in exposition.casefold() for tenant in ALIKE)
    for path in logs(stack):
        written = path.read_text(errors="replace").casefold()
        assert not any(word_of(tenant) in written for tenant in ALIKE), f"{path.name} holds what was stored"
    check_bucket(asyncio.run(objects(stack)))


def check_command_line(stack: Deployment, tenant: str) -> None:
    """It finds what the tenant has, and nothing else."""
    variables = {
        "MEMOREE_ENDPOINT": stack.url,
        "MEMOREE_TOKEN": token_of(tenant),
        "MEMOREE_CONTEXT": json.dumps(CONTEXT),
    }
    done = memoree("search", "glaze", "--limit", "100", **variables)
    assert done.returncode == 0, done
    told = (done.stdout + done.stderr).casefold()
    assert word_of(tenant) in told
    assert not any(word in told for word in words_of_others(tenant))


def logs(stack: Deployment) -> list[Path]:
    """What its processes wrote: those of its own and the supervisor's."""
    found = [stack.progress_path, *stack.data_dir.rglob("*.log")]
    assert len(found) > API_PROCESSES
    return found


async def objects(stack: Deployment) -> dict[str, bytes]:
    async with S3Store(stack.s3) as store:
        keys = [info.key async for info in store.list("") if not info.key.endswith("/")]
        return {key: await body_of(store, key) for key in keys}


async def body_of(store: Any, key: str) -> bytes:
    stored = await store.get(key)
    if key.endswith(".ltx"):
        return b"".join(page for _, page in decode(stored.body).pages())
    body: bytes = stored.body
    return body


def check_bucket(found: dict[str, bytes]) -> None:
    """Every object is of one tenant or of the deployment itself, and holds nothing of any other tenant."""
    for key, body in found.items():
        folder, _, below = key.partition("/")
        owner = below.partition("/")[0] if folder == "tenants" else None
        assert owner in (None, *ALIKE), key
        text = body.decode("latin-1").casefold()
        assert not [each for each in ALIKE if each != owner and word_of(each) in text], key


@pytest.mark.timeout(300)
@pytest.mark.proves("isolation-10")
def test_no_process_of_a_deployment_writes_a_secret(stack: Deployment) -> None:
    """Whoever asks, also while the store does not answer, and after a writer was killed."""
    with stack.client("a") as owner, Client(stack.url, "tok-of-nobody-9q8w7e6r5t4y") as stranger:
        assert stranger.post("doctor", {}).status_code == 401
        (store,) = stack.store_pids()
        os.kill(store, signal.SIGSTOP)
        try:
            answer = owner.post("artifact.put", note("unheard"), headers={"Prefer": "wait=1"})
        finally:
            os.kill(store, signal.SIGCONT)
        assert answer.status_code in (202, 503), answer.text
        former = stack.kill_child("supervised-writer")
        stack.wait_until_replaced("supervised-writer", former)
        owner.decided("artifact.put", note("heard"), key="after all")
        upload = {"size_bytes": 4, "blob_hash": "0" * 64}
        presigned = owner.http.post("/v1/artifacts/uploads", json=upload).json()["url"]
    assert "X-Amz-Signature=" in presigned
    until(lambda: stack.readiness()[0] == 200, "readiness")
    tokens = [*map(token_of, ALIKE), "tok-of-nobody-9q8w7e6r5t4y"]
    digests = [hashlib.sha256(token.encode()).hexdigest() for token in tokens]
    identities = json.loads((stack.data_dir / "seaweedfs" / "s3.json").read_bytes())["identities"]
    keys = [keys["secretKey"] for identity in identities for keys in identity["credentials"]]
    signature = presigned.partition("X-Amz-Signature=")[2].partition("&")[0]
    told = [stack.readiness()[1], *stack.metrics()]
    for name, text in [(path.name, path.read_text(errors="replace")) for path in logs(stack)] + [("told", str(told))]:
        held = [secret for secret in (*tokens, *digests, *keys, signature, "X-Amz-Signature=") if secret in text]
        assert held == [], f"{name} holds {held}"
