"""`memoree okf new`: a node with what its type cannot do without, as a file of the bundle (OKF contract §5, §6)."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from memoree.cli.okf_line import BundleCommand, answer, bundle_root, fail, now_ms

TYPES = ("Plan", "Decision", "Task", "Session", "Analysis", "Research", "Idea")


@click.command("new", cls=BundleCommand)
@click.argument("node_type", metavar="TYPE", type=click.Choice(TYPES, case_sensitive=False))
@click.argument("title")
@click.option("--root", metavar="DIR", help="The bundle.  [env: OKF_ROOT; default: the current directory]")
@click.option("--path", metavar="PATH", help="Where it goes.  [default: by its type and title]")
@click.option("--description", default="", help="One line of what it says.")
@click.option("--tag", "tags", multiple=True, help="May be repeated.")
@click.option("--field", "fields", multiple=True, metavar="NAME=VALUE", help="As status=agreed; may be repeated.")
@click.option(
    "--relation", "relations", multiple=True, metavar="KEY=ID", help="As about=projects/oven; may be repeated."
)
@click.option("--supersedes", multiple=True, metavar="ID", help="The node that it replaces; may be repeated.")
@click.option("--print", "print_only", is_flag=True, help="Print the file, and write nothing.")
def new(
    node_type: str,
    title: str,
    root: str | None,
    path: str | None,
    description: str,
    tags: tuple[str, ...],
    fields: tuple[str, ...],
    relations: tuple[str, ...],
    supersedes: tuple[str, ...],
    print_only: bool,
) -> int:
    """Write a new node: Plan, Decision, Task, Session, Analysis, Research or Idea.

    The file has the fields and headings of its type, to be filled in. What a type cannot do without must be given:
    agreed_on of a Decision, engine and date of a Session, period of an Analysis, source of a Research, and the reason
    of what is blocked or rejected. Nothing is ever overwritten.
    """
    from memoree.okf import discipline
    from memoree.okf.ids import InvalidId, path_of, safe_id

    def identified(given: str) -> str:
        try:
            return safe_id(given)
        except InvalidId as error:
            fail(f"{given}: {error}")

    related: dict[str, list[str]] = {}
    for key, target in _pairs("--relation", relations):
        related.setdefault(key, []).append(path_of(identified(target)))
    draft = discipline.Draft(
        type=node_type,
        title=title,
        timestamp_ms=now_ms(),
        description=description,
        tags=tags,
        fields=dict(_pairs("--field", fields)),
        relations=related,
        supersedes=[identified(each) for each in supersedes],
    )
    data = discipline.render(draft)
    node_id = identified(path or discipline.path_for(draft))
    if print_only:
        sys.stdout.write(data.decode())
        return 0
    _write(bundle_root(root), f"{node_id}.md", data)
    answer("new", lambda: {"id": node_id, "path": path_of(node_id)}, lambda: [path_of(node_id)])
    return 0


def _pairs(option: str, given: tuple[str, ...]) -> list[tuple[str, str]]:
    pairs = [each.partition("=") for each in given]
    for name, sign, value in pairs:
        if not (name.strip() and sign and value.strip()):
            fail(f"{option}: NAME=VALUE, not {name}{sign}{value}")
    return [(name.strip(), value.strip()) for name, _, value in pairs]


def _write(root: Path, path: str, data: bytes) -> None:
    """Make a file that is not there, in folders that do not lead out of the bundle."""
    file = root / path
    if not file.parent.resolve().is_relative_to(root.resolve()):
        fail(f"{path}: its folder is a link out of the bundle")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("xb") as opened:
            opened.write(data)
    except FileExistsError:
        fail(f"/{path} exists; write a node that supersedes it, or name another --path")
    except OSError as error:
        fail(f"/{path} cannot be written: {error.strerror}")
