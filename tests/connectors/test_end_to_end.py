"""From an external system to a cited recall: the command line, the ingest queue, its worker, the store."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import uuid
from pathlib import Path

import pytest

from connectors.bucket import Bucket
from connectors.memory import WORKSPACE, Memory
from connectors.repository import Repository
from e2e.deployment import PROGRAM, until
from memoree.assembly import embedded_ingestion
from memoree.connectors.outlets import worked_off
from memoree.connectors.s3 import S3Access
from memoree.data_directory import INGEST_QUEUE_NAME
from memoree.limits import CONNECTOR_BATCH_ITEMS_MAX
from memoree.objects.s3 import S3Settings
from memoree.queue.sqlite import SqliteQueue

FACT = "The celadon kiln is fired to cone 6 at 1222 degrees.\n"
QUESTION = "celadon kiln cone"


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "home")


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    made = tmp_path / "docs"
    made.mkdir()
    return made


# --- each connector, to a cited answer ----------------------------------------------------------------------------


def test_a_directory_is_recalled_with_citations_and_forgotten_files_are_not(memory: Memory, docs: Path) -> None:
    (docs / "kiln.md").write_text(f"# Kiln\n\n{FACT}")
    (docs / "large.md").write_text("The raku bucket holds sawdust.\n" + "filler\n" * 30_000)
    for number, content in enumerate([b"\x89PNG", b"\xff\xfe", "celadon".encode("utf-16"), b"", b"x", b"caf\xe9 kiln"]):
        (docs / f"binary{number}.txt").write_bytes(content)

    first = memory.connect("directory", docs, "--source", "docs")

    assert (first["delivered"], first["skipped_count"]) == (8, 0)
    assert memory.recalled(QUESTION) == [("Kiln", f"# Kiln\n\n{FACT}")]
    assert memory.recalled("raku bucket sawdust")[0][0] == "large.md"  # larger than a message: through an upload
    (docs / "kiln.md").unlink()
    second = memory.connect("directory", docs, "--source", "docs")
    assert (second["withdrawn"], second["unchanged"]) == (1, 7)
    assert memory.recalled(QUESTION) == []


def test_a_repository_is_recalled_and_every_commit_is_a_revision(memory: Memory, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "wiki")
    repository.commit({"kiln.md": "# Kiln\n\nCone unknown.\n"})
    repository.commit({"kiln.md": f"# Kiln\n\n{FACT}"})

    memory.connect("git", repository.path, "--source", "wiki")
    memory.connect("git", repository.path, "--source", "wiki", "--rescan")  # all of it again, and no second revision

    assert memory.recalled(QUESTION) == [("Kiln", f"# Kiln\n\n{FACT}")]
    assert memory.revisions() == {"kiln.md": 2}
    ((cursor, health),) = memory.rows("SELECT cursor, health FROM sources")
    assert (cursor, health) == (repository.git("rev-parse", "HEAD"), "healthy")


@pytest.mark.stack
def test_a_bucket_is_recalled(memory: Memory, seaweedfs: S3Settings) -> None:
    assert seaweedfs.access_key_id is not None and seaweedfs.secret_access_key is not None
    access = S3Access(
        endpoint_url=seaweedfs.endpoint_url,
        region=seaweedfs.region,
        access_key_id=seaweedfs.access_key_id,
        secret_access_key=seaweedfs.secret_access_key,
    )
    bucket = Bucket(seaweedfs.bucket, f"tenants/{uuid.uuid4().hex}/", access)
    bucket.put_all({"kiln.md": f"# Kiln\n\n{FACT}"})

    memory.connect(
        *("s3", f"s3://{bucket.name}/{bucket.prefix}", "--source", "bucket"),
        *("--endpoint-url", str(seaweedfs.endpoint_url), "--region", seaweedfs.region),
        MEMOREE_CONNECT_ACCESS_KEY_ID=seaweedfs.access_key_id,
        MEMOREE_CONNECT_SECRET_ACCESS_KEY=seaweedfs.secret_access_key,
    )

    assert memory.recalled(QUESTION) == [("Kiln", f"# Kiln\n\n{FACT}")]


def test_a_conversation_is_recalled_as_an_episode_and_a_malformed_line_fails_the_command(
    memory: Memory, tmp_path: Path
) -> None:
    file = tmp_path / "chat.jsonl"
    turns = [
        {"session": "s1", "speaker": "ada", "text": "Which cone?"},
        {"session": "s1", "speaker": "bo", "text": FACT},
    ]
    file.write_text("".join(json.dumps(turn) + "\n" for turn in turns) + "no turn\n")

    result = memory.connect("conversation", file, "--source", "chat", status=1)

    assert [skipped["where"] for skipped in result["skipped"]] == ["line 3"]
    assert memory.recalled(QUESTION) == [("s1: Which cone?", f"ada: Which cone?\n\nbo: {FACT}\n\n")]
    assert memory.rows("SELECT kind FROM artifacts") == [("episode",)]
    ((provenance,),) = memory.rows("SELECT provenance FROM artifact_revisions")
    span = json.loads(provenance)["turns"][1]
    content = f"ada: Which cone?\n\nbo: {FACT}\n\n".encode()
    assert content[span["start_byte"] : span["end_byte"]].decode() == FACT


# --- at any moment ------------------------------------------------------------------------------------------------


def test_a_connector_that_is_killed_goes_on_and_nothing_is_delivered_twice(memory: Memory, docs: Path) -> None:
    files = 6 * CONNECTOR_BATCH_ITEMS_MAX
    for number in range(files):
        (docs / f"{number:04}.md").write_text(f"page {number}")
    memory.data_dir.mkdir(parents=True, mode=0o700)
    queue = memory.data_dir / INGEST_QUEUE_NAME
    line = ("connect", "directory", docs, "--source", "docs", "--queue", f"sqlite://{queue}", *WORKSPACE)
    killed = subprocess.Popen([PROGRAM, *line], env=memory.environment(), stdout=subprocess.DEVNULL)
    until(lambda: queue.exists() and waiting(queue) > CONNECTOR_BATCH_ITEMS_MAX, "the first batches")
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL

    assert memory.run(*line).returncode == 0
    work_off(memory.data_dir)

    assert memory.revisions() == {f"{number:04}.md": 1 for number in range(files)}
    assert asyncio.run(_stats(queue)) == (0, 0)


def test_a_watching_connector_delivers_what_changes_and_reports_when_it_is_interrupted(
    memory: Memory, docs: Path
) -> None:
    (docs / "kiln.md").write_text("Cone unknown.")
    line = ("connect", "directory", docs, "--source", "docs", "--watch", "--interval", "0.1", *WORKSPACE)
    watching = subprocess.Popen(
        [PROGRAM, *line], env=memory.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        until(lambda: stored(memory) == {"kiln.md": 1}, "the first look")
        (docs / "kiln.md").write_text(FACT)
        until(lambda: stored(memory) == {"kiln.md": 2}, "a later look")
        watching.send_signal(signal.SIGINT)
        said, complained = watching.communicate(timeout=20)
    finally:
        watching.kill()

    assert (watching.returncode, complained) == (0, b"")
    result = json.loads(said)["result"]
    assert (result["delivered"], result["skipped_count"]) == (2, 0)
    assert memory.recalled(QUESTION) == [("kiln.md", FACT)]


def waiting(queue: Path) -> int:
    return asyncio.run(_stats(queue))[0]


async def _stats(path: Path) -> tuple[int, int]:
    queue = SqliteQueue(path)
    try:
        stats = await queue.stats()
        return stats.waiting + stats.in_flight, stats.dead
    finally:
        await queue.close()


def work_off(data_dir: Path) -> None:
    """What a worker of the ingest queue does, until nothing is left."""

    async def work() -> None:
        async with embedded_ingestion(data_dir) as ingestion, worked_off(ingestion):
            pass

    asyncio.run(work())


def stored(memory: Memory) -> dict[str, int]:
    return memory.revisions() if memory.is_born() else {}
