"""Each zip as it is deployed, under AWS's emulator of the runtime interface, on a real store and SQS's protocol."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import ExitStack

import boto3
import orjson
import pytest
from emulated import Emulated, FunctionError, emulated, last_json, local_aws
from emulated import deployed as unpacked_zips
from functions_support import CONTEXT, SCOPES, TOKEN, EventSource, Json, Site, fact, json_of, request, url_event

from memoree.objects.s3 import S3Settings
from memoree.queue import OutgoingMessage

pytestmark = [pytest.mark.stack, pytest.mark.xdist_group("functions"), pytest.mark.timeout(300)]

NAMES = ("api", "writer", "ingest", "backup", "verify", "gc")
SECRET = "memoree-tokens"


@pytest.fixture(scope="module")
def deployed(seaweedfs: S3Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Emulated]]:
    """All six functions; the tokens are a secret, as in the template."""
    home = tmp_path_factory.mktemp("deployed")
    unpacked = unpacked_zips(NAMES, home, home.parent.parent / "build-functions.lock")
    with ExitStack() as stack:
        site = Site(home, seaweedfs, aws=stack.enter_context(local_aws(home)))
        _store_tokens(site)
        functions: dict[str, Emulated] = {}
        for name in NAMES:
            variables = {
                **{key: value for key, value in site.variables.items() if key != "MEMOREE_TOKENS_FILE"},
                "MEMOREE_RUNTIME_DIR": str(home / name / "tmp"),
                "MEMOREE_SECRETS_ENDPOINT_URL": str(site.aws),
                "MEMOREE_TOKENS_SECRET": SECRET,
            }
            functions[name] = stack.enter_context(emulated(name, unpacked[name], variables, home / f"{name}-home"))
        stack.enter_context(EventSource(site, functions["writer"]))
        yield functions | {"site": site}  # type: ignore[dict-item]


@pytest.fixture(scope="module")
def site(deployed: dict[str, Emulated]) -> Site:
    found: Site = deployed["site"]  # type: ignore[assignment]
    return found


def _store_tokens(site: Site) -> None:
    client = boto3.client(
        "secretsmanager",
        endpoint_url=site.aws,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    tokens = orjson.dumps({TOKEN: {"tenant": site.tenant, "scopes": SCOPES}}).decode()
    client.create_secret(Name=SECRET, SecretString=tokens)


def call(api: Emulated, document: Json) -> Json:
    answer = api(url_event("POST", "/v1/call", orjson.dumps(document)))
    assert answer["statusCode"] == 200, (answer, api.output())
    return json_of(answer)


@pytest.mark.proves("operations-68")
def test_a_write_is_read_back_backed_up_and_verified(deployed: dict[str, Emulated], site: Site) -> None:
    statement = f"written through a zip {uuid.uuid4().hex}"
    written = call(deployed["api"], fact(statement))
    found = call(deployed["api"], request("claim.get", {"claim_id": written["result"]["claim_id"]}))
    assert found["result"]["statement"] == statement

    made = deployed["backup"]({"job": "backup", "tenant": site.tenant})
    assert (made["ok"], made["unreached"]) == (True, [])
    assert made["tenants"][site.tenant]["backup"]["commit_seq"] == written["commit_seq"]

    verified = deployed["verify"]({"job": "verify", "tenant": site.tenant})
    assert verified["ok"]
    assert verified["tenants"][site.tenant]["backups"] == 1
    told = last_json(deployed["verify"].output())
    assert (told["Function"], told["Failures"], told["Issues"]) == ("memoree-verify", 0, 0)
    assert told["LeaseSeconds"] == 0, "a function leaves no lease behind"

    collected = deployed["gc"]({"job": "gc", "tenant": site.tenant})
    assert collected["ok"]


@pytest.mark.proves("operations-68")
def test_a_connectors_messages_become_sources_and_artifacts(deployed: dict[str, Emulated], site: Site) -> None:
    name = f"notes-{uuid.uuid4().hex[:8]}"
    common = {
        "version": 1,
        "tenant": site.tenant,
        "source": {"system": "directory", "name": name},
        "context": CONTEXT,
    }
    item = {
        "type": "ingest",
        "external_id": "a.md",
        "external_revision": "1",
        "kind": "note",
        "title": "a note",
        "content": {"type": "text", "data": f"text of {name}"},
        "observed_at": "2026-01-01T00:00:00Z",
    }
    bodies = [common | {"type": "register"}, common | item]
    messages = [OutgoingMessage(json.dumps(body), f"{site.tenant}/{name}", uuid.uuid4().hex) for body in bodies]
    site.on_queue(lambda queue: queue.send_batch(messages), "ingest")

    assert site.deliver(deployed["ingest"], name="ingest") == []

    found = call(deployed["api"], request("search", {"query": name}))
    assert name in json.dumps(found["result"])


def test_what_a_job_cannot_do_ends_in_an_error_that_says_so(deployed: dict[str, Emulated]) -> None:
    with pytest.raises(FunctionError, match="no-such-tenant"):
        deployed["verify"]({"job": "verify", "tenant": "no-such-tenant"})
    with pytest.raises(FunctionError, match="this function does gc"):
        deployed["gc"]({"job": "backup"})


def test_nothing_was_imported_but_from_the_zips(deployed: dict[str, Emulated]) -> None:
    """Their processes run without site packages; a module that was missing would have been an error above."""
    for name in NAMES:
        assert "ModuleNotFoundError" not in deployed[name].output()
