"""Keep the help texts in docs/cli.md equal to what the program prints.

Each text stands between `<!-- help: memoree … -->` and `<!-- /help -->`; what is written around them stays. A command
without a place gets one at the end, and a place without a command is removed.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from memoree.cli.commands import root
from memoree.cli.invocation import Invocation

DOCUMENT = Path(__file__).parents[1] / "docs" / "cli.md"
WIDTH = 100
PLACE = re.compile(r"<!-- help: (memoree[a-z0-9 -]*) -->\n.*?<!-- /help -->\n", re.DOTALL)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/docs-help", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the document is stale")
    parser.add_argument("document", nargs="?", type=Path, default=DOCUMENT, help="[default: docs/cli.md]")
    options = parser.parse_args(arguments)
    check: bool = options.check
    document: Path = options.document
    before = document.read_text(encoding="utf-8")
    after = with_help(before, dict(help_texts(root, "memoree", None)))
    if after == before:
        return 0
    if check:
        sys.stderr.write(f"{document} differs from the program's help: run scripts/docs-help\n")
        return 1
    document.write_text(after, encoding="utf-8")
    return 0


def help_texts(command: click.Command, name: str, parent: click.Context | None) -> Iterator[tuple[str, str]]:
    """The name and help of a command and of all below it, as on a terminal of fixed width."""
    context = click.Context(
        command,
        info_name=name.rsplit(" ", 1)[-1],
        parent=parent,
        obj=Invocation(),
        terminal_width=WIDTH,
        max_content_width=WIDTH,
    )
    yield name, command.get_help(context)
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None
            yield from help_texts(found, f"{name} {below}", context)


def with_help(document: str, texts: dict[str, str]) -> str:
    placed = set()

    def paste(place: re.Match[str]) -> str:
        name = place[1].strip()
        placed.add(name)
        return block(name, texts[name]) if name in texts else ""

    pasted = PLACE.sub(paste, document)
    missing = [f"\n### {name}\n\n{block(name, text)}" for name, text in texts.items() if name not in placed]
    return pasted + "".join(missing)


def block(name: str, text: str) -> str:
    return f"<!-- help: {name} -->\n```text\n{text}\n```\n<!-- /help -->\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
