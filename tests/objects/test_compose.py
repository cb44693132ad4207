"""The container setup in `seaweedfs/` says the same as the server that the tests run against."""

from __future__ import annotations

import re
from pathlib import Path

import orjson

from memoree.stack.seaweedfs import Ports, _command, _identities

FOLDER = Path(__file__).parents[2] / "seaweedfs"
COMPOSE = (FOLDER / "compose.yaml").read_text()


def test_the_container_runs_with_the_flags_of_the_child_process(tmp_path: Path) -> None:
    differing = re.compile(r"-(dir|ip|ip\.bind|s3\.config|(master|volume|filer|s3)\.port)=")
    child = {flag for flag in _command(Ports(1, 2, 3, 4), tmp_path)[1:] if not differing.match(flag)}
    listed = set(re.findall(r"^ {6}- (server|-\S+)$", COMPOSE, re.MULTILINE))
    assert {flag for flag in listed if not differing.match(flag)} == child


def test_the_container_publishes_s3_on_loopback_and_nothing_else() -> None:
    published = re.findall(r"^ {4}ports:\n((?: {6}- .*\n)+)", COMPOSE, re.MULTILINE)
    assert published == ['      - "127.0.0.1:8333:8333"\n']


def test_images_are_pinned_to_one_version() -> None:
    assert set(re.findall(r"image: (\S+)", COMPOSE)) == {"chrislusf/seaweedfs:4.48"}


def test_the_example_identities_have_the_rights_of_the_generated_ones() -> None:
    example = orjson.loads((FOLDER / "identities.example.json").read_bytes())

    def rights(identities: dict[str, list[dict[str, object]]]) -> dict[object, object]:
        return {identity["name"]: identity["actions"] for identity in identities["identities"]}

    assert rights(example) == rights(_identities("memoree"))
