"""`memoree eval`: how well questions are answered, on a corpus of stored items and questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memoree.cli.invocation import Invocation
from memoree.cli.parsing import Command, current_invocation

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from rich.console import RenderableType

    from memoree.client.request import Endpoint

MISSED_STATUS = 1


@click.command("eval", cls=Command)
@click.option("--class", "classes", multiple=True, metavar="NAME", help="Only the cases of this class; repeatable.")
@click.option("--case", "cases", multiple=True, metavar="ID", help="Only this case; repeatable.")
@click.option(
    "--corpus",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Seeds and cases of your own.  [default: those of the program]",
)
@click.option("--held-out", is_flag=True, help="The program's second corpus, on which no rule was tuned at first.")
@click.option(
    "--cranfield",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Also the Cranfield collection, whose three files are there.",
)
@click.option("--output", type=click.Path(path_type=Path), metavar="FILE", help="Also write the JSON document to FILE.")
def eval_(
    classes: tuple[str, ...],
    cases: tuple[str, ...],
    corpus: Path | None,
    held_out: bool,
    cranfield: Path | None,
    output: Path | None,
) -> int:
    """Ask a corpus of questions, and count what is found, missed and wrongly returned.

    In a store of its own that is removed afterwards, whatever MEMOREE_ENDPOINT says. With --endpoint the corpus is
    stored on that server and stays there: use a tenant that is for nothing else.

    The exit status is 1 when a bound is missed that must be reached.
    """
    from memoree.evaluation.corpus import bundled, read_corpus
    from memoree.evaluation.cranfield import read_collection, run_cranfield
    from memoree.evaluation.report import document
    from memoree.evaluation.running import run_corpus

    invocation = current_invocation()
    chosen = read_corpus(corpus or bundled(held_out=held_out)).select(classes, cases)
    collection = read_collection(cranfield) if cranfield is not None else None
    with _endpoint(invocation) as endpoint:
        judgements = run_corpus(endpoint, chosen)
    figures = None
    if collection is not None:
        with _endpoint(invocation) as endpoint:  # a store of its own: what else it holds would change the ranking
            figures = run_cranfield(endpoint, collection)
    found = document(judgements, figures)
    if output is not None:
        _write(output, found)
    _print(found, invocation)
    return 0 if found["bounds_held"] else MISSED_STATUS


def _endpoint(invocation: Invocation) -> AbstractContextManager[Endpoint]:
    """The chosen server, or an empty store. The server of the environment is one that somebody works with."""
    if invocation.endpoint:
        from contextlib import nullcontext

        return nullcontext(invocation.open_endpoint())
    from memoree.evaluation.running import temporary_endpoint

    return temporary_endpoint()


def _write(path: Path, found: Mapping[str, Any]) -> None:
    import orjson

    path.write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def _print(found: Mapping[str, Any], invocation: Invocation) -> None:
    if not invocation.for_people:
        from memoree.cli.output import print_success

        print_success(found, invocation)
        return
    from rich.console import Group

    from memoree.cli.terminal import console

    console().print(Group(*_parts(found)), crop=False)


CLASS_COLUMNS = {
    "cases": "cases",
    "failed": "failed",
    "claim_recall": "claims\nfound",
    "claim_precision": "claims\nright",
    "artifact_recall": "docs\nfound",
    "artifact_precision": "docs\nright",
    "false_answers": "false\nanswer",
    "false_abstentions": "false\nnone",
}
"""Members of a class that stand in its row, with headings that leave it in 80 columns; the rest is shown for all cases
together."""


def _parts(found: Mapping[str, Any]) -> Iterator[RenderableType]:
    from rich.text import Text

    from memoree.cli.terminal import fields, indented, table

    rows = [[name, *(_cell(row[member]) for member in CLASS_COLUMNS)] for name, row in found["classes"].items()]
    yield table(["class", *CLASS_COLUMNS.values()], rows)
    yield Text("")
    together = found["classes"]["all"]
    more = {"cranfield": found["cranfield"]} if "cranfield" in found else {}
    yield fields({name: value for name, value in together.items() if name not in CLASS_COLUMNS} | more)
    for case in found["failed"]:
        yield Text("")
        yield _failure(case)
    yield Text("")
    names = ("name", "value", "must", "aim", "verdict")
    yield table(names, [[_cell(bound[name]) for name in names] for bound in found["bounds"]])
    yield indented(f"{len(found['failed'])} of {together['cases']} cases do not hold")


def _failure(case: Mapping[str, Any]) -> RenderableType:
    from rich.console import Group

    from memoree.cli.terminal import heading, indented

    return Group(heading(f"{case['id']}  {case['query']}"), *(indented(fault) for fault in case["faults"]))


def _cell(value: Any) -> str:
    """A share with three digits; nothing where there was nothing to count."""
    if value is None:
        return ""
    return f"{value:.3f}" if isinstance(value, float) else str(value)
