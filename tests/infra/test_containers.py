"""Compose files, the Dockerfile and the scripts that do without them, as far as no container engine is needed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import boto3
import pytest
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memoree.cli.commands import root
from memoree.cli.serving import PROCESS_SETTINGS
from memoree.queue import MESSAGE_BYTES_MAX, RECEIVE_COUNT_MAX
from memoree.settings import StackSettings

Json = dict[str, Any]

ROOT = Path(__file__).parents[2]
COMPOSE = ("docker-compose.yml", "seaweedfs/compose.yaml", "localstack/compose.yaml")
OWN = ("api", "writer", "ingest", "jobs")


# --- compose files ----------------------------------------------------------------------------------------------


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Healthcheck(_Strict):
    test: list[str] | None = None
    interval: str | None = None
    timeout: str | None = None
    start_period: str | None = None
    retries: int | None = None
    disable: bool = False


class Service(_Strict):
    """What of the compose specification these files use, and nothing else."""

    image: Annotated[str, Field(pattern=r"^[a-z./-]+:[A-Za-z0-9._-]+$")]
    build: str | None = None
    profiles: list[str] = []
    entrypoint: list[str] | None = None
    command: list[str] | None = None
    environment: dict[str, str] = {}
    ports: list[Annotated[str, Field(pattern=r"^127\.0\.0\.1:\d+:\d+$")]] = []
    volumes: list[str] = []
    tmpfs: list[str] = []
    secrets: list[str] = []
    depends_on: dict[str, dict[Literal["condition"], str]] = {}
    healthcheck: Healthcheck | None = None
    read_only: bool = False
    cap_drop: list[str] = []
    security_opt: list[str] = []
    stop_signal: str | None = None
    stop_grace_period: str | None = None
    restart: Literal["unless-stopped", "no"]
    logging: dict[str, dict[str, str]] | None = None


class Compose(_Strict):
    name: str
    include: list[str] = []
    services: dict[str, Service]
    volumes: dict[str, None] = {}
    secrets: dict[str, dict[Literal["file"], str]] = {}


def compose(name: str) -> Compose:
    document = yaml.safe_load((ROOT / name).read_text())
    return Compose.model_validate({key: value for key, value in document.items() if not key.startswith("x-")})


@pytest.mark.proves("operations-71")
@pytest.mark.parametrize("name", COMPOSE)
def test_compose_files_are_well_formed_pinned_and_on_loopback(name: str) -> None:
    found = compose(name)
    for service, described in found.services.items():
        assert not described.image.endswith(":latest"), service
        runs_on = described.restart == "unless-stopped" and service not in OWN
        assert described.healthcheck is not None or not runs_on, service
        named = {volume.split(":")[0] for volume in described.volumes if not volume.startswith(".")}
        assert named <= set(found.volumes) and set(described.secrets) <= set(found.secrets), service
    known = set(found.services).union(*(compose(each).services for each in found.include))
    assert {needed for each in found.services.values() for needed in each.depends_on} <= known


@pytest.mark.proves("operations-71")
@pytest.mark.parametrize("ports", ["0.0.0.0:8333:8333", "8333:8333", "127.0.0.1:8333"])
def test_a_port_beyond_loopback_is_seen(ports: str) -> None:
    with pytest.raises(ValidationError, match="ports"):
        Service(image="some/image:1", ports=[ports], restart="no")


@pytest.mark.proves("operations-71")
@pytest.mark.parametrize("name", OWN)
def test_a_process_may_write_nowhere_but_where_it_must(name: str) -> None:
    service = compose("docker-compose.yml").services[name]
    assert service.read_only and service.cap_drop == ["ALL"] and "no-new-privileges:true" in service.security_opt
    assert service.environment["MEMOREE_RUNTIME_DIR"].startswith(service.tmpfs[0].split(":")[0])
    for queue in ("MEMOREE_QUEUE_URL", "MEMOREE_INGEST_QUEUE_URL"):
        path = service.environment[queue].removeprefix("sqlite://")
        assert any(path.startswith(volume.split(":")[1] + "/") for volume in service.volumes), queue


@pytest.mark.proves("operations-71")
@pytest.mark.parametrize("name", OWN)
def test_a_process_is_told_what_it_reads_and_all_that_it_needs(name: str) -> None:
    told = set(compose("docker-compose.yml").services[name].environment)
    known = {f"MEMOREE_{field.upper()}" for field in StackSettings.model_fields}
    assert told <= known | PROCESS_SETTINGS
    assert {
        f"MEMOREE_{field.upper()}" for field, info in StackSettings.model_fields.items() if info.is_required()
    } <= told


@pytest.mark.proves("operations-71")
@pytest.mark.parametrize("name", [each for each in OWN if each != "api"])
def test_a_container_runs_a_command_that_there_is(name: str) -> None:
    program, *words = compose("docker-compose.yml").services[name].command or []
    command: Any = root
    for word in words:
        command = command.get_command(None, word)
        assert command is not None, word
    assert program == "memoree"


# --- the Dockerfile ---------------------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [
        (name, " ".join(rest.split())) for name, _, rest in (line.partition(" ") for line in text.splitlines() if line)
    ]


@pytest.mark.proves("operations-71")
def test_the_image_is_pinned_and_runs_as_nobody_in_particular() -> None:
    found = instructions()
    assert {name for name, _ in found} <= {
        *("FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "EXPOSE", "VOLUME", "HEALTHCHECK", "CMD")
    }
    bases = [rest.split()[0] for name, rest in found if name == "FROM"]
    assert all(re.fullmatch(r"python:3\.\d+\.\d+-slim-bookworm", base) for base in bases), bases
    user, command = (next(rest for name, rest in reversed(found) if name == wanted) for wanted in ("USER", "CMD"))
    assert user == "10001:10001"
    assert json.loads(command)[:2] == ["uvicorn", "functions.api.app:app"]
    check = next(rest for name, rest in found if name == "HEALTHCHECK")
    assert "/livez" in check


@pytest.mark.proves("operations-71")
def test_everything_that_is_copied_is_there_and_let_into_the_context() -> None:
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {
        source
        for name, rest in instructions()
        if name == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    }
    assert copied == let_in
    assert all((ROOT / source).exists() for source in copied)


# --- without Docker ---------------------------------------------------------------------------------------------


@contextmanager
def script(name: str, *arguments: str, log: Path) -> Iterator[list[str]]:
    """A script that runs until it is interrupted; what it said until it was ready."""
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [ROOT / name, *arguments], stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("READY"), log.read_text()
        yield line.split()
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.stdout.close()
        assert process.wait(30) in (0, -signal.SIGTERM)


@pytest.mark.stack
def test_seaweedfs_starts_says_that_it_is_ready_and_what_is_left(tmp_path: Path) -> None:
    directory = str(tmp_path / "data")
    with script("seaweedfs/start", directory, log=tmp_path / "log"):
        assert subprocess.run([ROOT / "seaweedfs/ready", directory]).returncode == 0
        left = subprocess.run([ROOT / "seaweedfs/headroom", directory], stdout=subprocess.PIPE, check=True)
        assert json.loads(left.stdout)["volumes_free"] > 0
        assert (tmp_path / "data/s3.json").stat().st_mode & 0o777 == 0o600
    ended = subprocess.run([ROOT / "seaweedfs/ready", directory], capture_output=True, text=True)
    assert (ended.returncode, "no answer" in ended.stderr) == (1, True)


@pytest.mark.xdist_group("ministack")
def test_the_hook_makes_what_a_deployment_has_however_often_it_runs(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with script("localstack/start", str(port), log=tmp_path / "log") as (_, endpoint):
        hook = [sys.executable, ROOT / "localstack/init/10-resources.py"]
        subprocess.run(hook, env={**os.environ, "AWS_ENDPOINT_URL": endpoint}, check=True)

        def client(service: str) -> Any:
            keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
            return boto3.client(service, endpoint_url=endpoint, region_name="us-east-1", **keys)

        sqs = client("sqs")
        for name in ("commands", "ingest"):
            url = sqs.get_queue_url(QueueName=f"memoree-{name}.fifo")["QueueUrl"]
            attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
            assert int(attributes["MaximumMessageSize"]) == MESSAGE_BYTES_MAX
            redrive = json.loads(attributes["RedrivePolicy"])
            assert int(redrive["maxReceiveCount"]) == RECEIVE_COUNT_MAX
            assert redrive["deadLetterTargetArn"].endswith(f"memoree-{name}-dead.fifo")
        assert [each["Name"] for each in client("s3").list_buckets()["Buckets"]] == ["memoree"]
        scheduler = client("scheduler")
        jobs = {
            schedule["Name"]: json.loads(scheduler.get_schedule(Name=schedule["Name"])["Target"]["Input"])
            for schedule in scheduler.list_schedules()["Schedules"]
        }
        assert jobs == {f"memoree-{job}": {"job": job} for job in ("migrate", "backup", "verify", "gc")}
