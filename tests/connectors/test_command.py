"""`memoree connect` as its users run it: where messages go, what is printed, how it ends."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.memory import WORKSPACE, Memory
from connectors.test_end_to_end import work_off
from e2e.deployment import PROGRAM, environment, memoree
from memoree.cli.jobs import say
from memoree.data_directory import INGEST_QUEUE_NAME
from memoree.ingest.message import Ingest, from_body
from memoree.limits import INGEST_INLINE_BYTES_MAX
from memoree.queue.sqs import SqsEndpoint, SqsQueue
from memoree.queue.sqs_setup import QueueUrls, ensure_queues
from ministack_support import install_ministack, running_ministack


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "home")


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    made = tmp_path / "docs"
    made.mkdir()
    (made / "kiln.md").write_text("# Kiln\n\nCone 6.\n")
    return made


@pytest.fixture
def served(memory: Memory) -> Iterator[str]:
    """An api over the same store, and nothing else of it in reach."""
    server = subprocess.Popen(
        [PROGRAM, "serve", "--port", "0"], env=memory.environment(), stderr=subprocess.PIPE, text=True
    )
    try:
        assert server.stderr is not None
        line = next(line for line in server.stderr if line.startswith("LISTENING_ON "))
        yield f"http://{line.split()[1]}"
    finally:
        server.terminate()
        server.communicate()


def test_a_rehearsal_prints_what_would_be_sent_and_leaves_no_trace(memory: Memory, docs: Path) -> None:
    rehearsed = memory.connect("directory", docs, "--source", "docs", "--dry-run")

    assert [message["type"] for message in rehearsed["messages"]] == ["register", "ingest", "checkpoint"]
    assert rehearsed["messages"][1]["external_id"] == "kiln.md"
    assert "content" not in rehearsed["messages"][1]
    assert not memory.data_dir.exists()
    assert memory.connect("directory", docs, "--source", "docs")["delivered"] == 1


def test_messages_that_became_dead_letters_fail_the_command(memory: Memory, docs: Path) -> None:
    memory.connect("directory", docs, "--source", "docs")
    (docs / "kiln.md").write_text("Cone 7.")

    result = memory.connect("directory", docs, "--source", "docs", "--kind", "note", status=1)  # a kind never changes

    assert (result["delivered"], result["dead_letters"]) == (1, 1)


def test_large_content_goes_through_an_api_where_only_the_queue_is_in_reach(
    memory: Memory, docs: Path, served: str
) -> None:
    (docs / "large.md").write_text("The raku bucket holds sawdust.\n" + "x" * INGEST_INLINE_BYTES_MAX)
    line = ("directory", docs, "--source", "docs", "--queue", f"sqlite://{memory.data_dir / INGEST_QUEUE_NAME}")

    without = memory.connect(*line, status=1)
    through = memory.connect(*line, "--endpoint", served)

    assert (without["delivered"], without["skipped"][0]["where"]) == (1, "large.md")
    assert (through["delivered"], through["unchanged"]) == (1, 1)
    work_off(memory.data_dir)
    assert memory.revisions() == {"kiln.md": 1, "large.md": 1}


@pytest.mark.xdist_group("ministack")
def test_messages_go_to_an_sqs_queue_with_the_environments_credentials(
    memory: Memory, docs: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    install_ministack(tmp_path_factory.getbasetemp().parent / "install-ministack.lock")
    home = tmp_path / "ministack"
    home.mkdir()
    with running_ministack(home) as server:
        urls = asyncio.run(ensure_queues("ingest", endpoint=server))
        memory.connect(
            *("directory", docs, "--source", "docs", "--queue", urls.url, "--queue-endpoint", str(server.endpoint_url)),
            AWS_ACCESS_KEY_ID="test",
            AWS_SECRET_ACCESS_KEY="test",
        )
        bodies = asyncio.run(_received(urls, server))

    assert [from_body(body).type for body in bodies] == ["register", "ingest", "checkpoint"]
    delivered = from_body(bodies[1])
    assert isinstance(delivered, Ingest)
    assert delivered.title == "Kiln"


async def _received(urls: QueueUrls, endpoint: SqsEndpoint) -> list[str]:
    queue = SqsQueue(urls.url, urls.dead_letter_url, endpoint=endpoint)
    try:
        return [m.body for m in await queue.receive(max_messages=10, wait_seconds=1, visibility_seconds=30)]
    finally:
        await queue.close()


@pytest.mark.proves("fault-35")
def test_names_that_are_told_do_not_reach_the_terminal_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    say("skipped \x1b]0;owned\x07\u202efdp.md: git said \x9b2J\nand went on")

    assert capsys.readouterr().err == "skipped \\x1b]0;owned\\x07\\x202efdp.md: git said \\x9b2J\nand went on\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("directory", "DOCS"), "Missing option '--source'"),
        (("directory", "DOCS", "--source", "s", "--workspace", "w"), "given together"),
        (("directory", "DOCS", "--source", "s", *WORKSPACE, "--queue", "sqlite:///q", "--data", "/d"), "one of them"),
        (("directory", "DOCS", "--source", "s", *WORKSPACE, "--tenant", "other"), "has the tenant local alone"),
        (("directory", "DOCS", "--source", "s", *WORKSPACE, "--include", "[z-a].md"), "'[z-a].md' is no pattern"),
        (("s3", "http://bucket", "--source", "s", *WORKSPACE), "is not s3://BUCKET"),
    ],
)
def test_mistyped_lines_are_told_on_standard_error(
    docs: Path, tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    done = memoree(
        "connect", *(str(docs) if word == "DOCS" else word for word in arguments), MEMOREE_HOME=str(tmp_path)
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "status"),
    [
        (("directory", "/no/such/directory", "--source", "s", *WORKSPACE), "CONFIG_ERROR", 2),
        (("directory", "/no/such/dir\udcff", "--source", "s", *WORKSPACE), "CONFIG_ERROR", 2),
        (("conversation", "/no/such/file\udcff", "--source", "s", *WORKSPACE), "CONFIG_ERROR", 2),
        (("git", "/no/such/repository\udcff", "--source", "s", *WORKSPACE), "CONFIG_ERROR", 2),
        (("directory", "/", "--source", "s", *WORKSPACE, "--state", "/dev/null/\udcff"), "CONFIG_ERROR", 2),
        (("directory", "/", "--source", "s"), "NO_AMBIENT_CONTEXT", 5),
        (("directory", "/", "--source", " ", *WORKSPACE), "INVALID_REQUEST", 2),
        (("directory", "/", "--source", "s", *WORKSPACE, "--kind", ""), "INVALID_REQUEST", 2),
        (("directory", "/", "--source", "s", "--workspace", "", "--project", "p"), "INVALID_REQUEST", 2),
        (("directory", "/", "--source", "s", *WORKSPACE, "--queue", "ftp://q"), "CONFIG_ERROR", 2),
    ],
)
def test_what_cannot_work_is_an_envelope_with_its_reason(
    tmp_path: Path, arguments: tuple[str, ...], code: str, status: int
) -> None:
    done = subprocess.run(
        [PROGRAM, "connect", *arguments],
        capture_output=True,
        text=True,
        env=environment(MEMOREE_HOME=str(tmp_path)),
        cwd=tmp_path,
        check=False,
    )

    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (status, code)
