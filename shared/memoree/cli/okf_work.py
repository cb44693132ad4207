"""`memoree okf`: work on a bundle that is a directory, without a store (OKF contract §3.2, §3.3, §4)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memoree.cli.okf_line import (
    BundleCommand,
    answer,
    bundle_root,
    fail,
    now_ms,
    print_bytes,
    print_lines,
)
from memoree.cli.parsing import Function, Group, current_invocation

if TYPE_CHECKING:
    from memoree.okf.consolidation import Map
    from memoree.okf.ledger import Event
    from memoree.okf.review import Candidate

AGENT_VARIABLE = "SAMEMIND_AGENT"
APPLY_WORD = "apply"
READ_LIMIT_DEFAULT = 200
PLAN_CHARS_READ_MAX = 1024 * 1024
NO_TOPIC_STATUS = 2


def _root_option(function: Function) -> Function:
    return click.option("--root", metavar="DIR", help="The bundle.  [env: OKF_ROOT; default: the current directory]")(
        function
    )


# --- handoff ----------------------------------------------------------------------------------------------------------


@click.command(cls=BundleCommand)
@click.argument("directory", required=False)
@_root_option
@click.option("--project", metavar="ID", help="Only what belongs to this project.")
@click.option("--days", type=click.IntRange(0, 3660), default=14, show_default=True, help="Decisions of so many days.")
def handoff(directory: str | None, root: str | None, project: str | None, days: int) -> int:
    """Tell the next session what is open, decided and planned, in at most 2,000 tokens."""
    from memoree.okf import bundle
    from memoree.okf import handoff as domain
    from memoree.okf.dialect import Dialect

    nodes = bundle.nodes(bundle_root(root, directory), Dialect.SERVICE)
    told = domain.handoff(nodes, at_ms=now_ms(), project=project, days=days).payload()
    answer("handoff", lambda: told, lambda: told["markdown"].rstrip("\n").split("\n"))
    return 0


# --- review, forget, consolidate --------------------------------------------------------------------------------------


@click.command(cls=BundleCommand)
@click.argument("words", nargs=-1, metavar="[apply] [DIR]")
@_root_option
@click.option(
    "--stale-days", type=click.IntRange(0, 36_500), default=60, show_default=True, help="Old from so many days."
)
@click.option("--plan", "plan_file", metavar="FILE|-", help="What `apply` does: lines of `id action [target]`.")
def review(words: tuple[str, ...], root: str | None, stale_days: int, plan_file: str | None) -> int:
    """List the nodes that want a decision, as a plan that can be edited; with apply, do what a plan says.

    Actions are keep, archive, forget and merge, which needs a target. A plan is judged whole before anything is done,
    and done whole or not at all; done a second time it changes nothing.
    """
    from memoree.okf import curation

    applies = words[:1] == (APPLY_WORD,)
    directories = words[1:] if applies else words
    if len(directories) > 1:
        fail(f"one directory, not {len(directories)}")
    bundle = bundle_root(root, *directories)
    at_ms = now_ms()
    if not applies:
        if plan_file is not None:
            fail("--plan belongs to `review apply`")
        found = curation.candidates(bundle, at_ms=at_ms, stale_days=stale_days)
        told: dict[str, Any] = {
            "candidateCount": len(found),
            "staleDays": stale_days,
            "candidates": [each.to_json() for each in found],
        }
        _answer_bare("review", told, at_ms, _listed(found))
        return 0
    if plan_file is None:
        fail("review apply needs --plan FILE")
    results = [step.to_json() for step in curation.apply_plan(bundle, _plan(plan_file), at_ms=at_ms)]
    lines = (f"{each['result']}  {each['action']} {each['id']}" for each in results)
    _answer_bare("review-apply", {"results": results}, at_ms, lines)
    return 0


@click.command(cls=BundleCommand)
@click.argument("words", nargs=-1, required=True, metavar="[DIR] ID")
@_root_option
@click.option("--include-secret", is_flag=True, help="Also a node that is secret.")
def forget(words: tuple[str, ...], root: str | None, include_secret: bool) -> int:
    """Mark one node as deprecated: it stays, and counts less.

    Two lines of its file are set; a second time only the date is new.
    """
    from memoree.okf import curation

    if len(words) > 2:
        fail(f"a directory and an id, not {len(words)} words")
    path = curation.forget(bundle_root(root, *words[:-1]), words[-1], at_ms=now_ms(), secret=include_secret)
    answer("forget", lambda: {"path": path}, lambda: [f"deprecated {path}"])
    return 0


@click.command(cls=BundleCommand)
@click.argument("directory", required=False)
@_root_option
@click.option("--write", is_flag=True, help="Also write the report into the inbox.")
def consolidate(directory: str | None, root: str | None, write: bool) -> int:
    """Hold raw notes of the inbox and of mirrors against canon: what is covered, and what is missing."""
    from memoree.okf import consolidation, curation

    at_ms = now_ms()
    found = curation.consolidated(bundle_root(root, directory), at_ms=at_ms, write=write)
    report = consolidation.report(found, at_ms=at_ms)
    answer("consolidate", lambda: _mapped(found), lambda: report.rstrip("\n").split("\n"))
    return 0


# --- the ledger -------------------------------------------------------------------------------------------------------


@click.group(cls=Group, invoke_without_command=True)
@click.pass_context
def ledger(context: click.Context) -> int:
    """The bundle's ledger: append to it, and read it."""
    if context.invoked_subcommand is None:
        print_lines(["usage: memoree okf ledger append|status|read"])
    return 0


@ledger.command("append", cls=BundleCommand)
@_root_option
@click.option("--actor", metavar="NAME", help=f"Who did it.  [env: {AGENT_VARIABLE}]")
@click.option("--topic", required=True, help="The id of a node, or any other name.")
@click.option("--phase", required=True, help="start, step, done, fail, block or note.")
@click.option("--action", required=True, help="What was done.")
@click.option("--status", help="ok, wip, partial or fail.  [default: ok]")
@click.option("--artifact", metavar="PATH", help="What came of it.")
@click.option("--ref", help="A name for the event: what comes under it again is not appended.")
def append(root: str | None, actor: str | None, **given: str | None) -> int:
    """Append one event."""
    from memoree.okf import curation, detectors
    from memoree.okf import ledger as domain

    event = domain.made(
        ts_ms=now_ms(),
        actor=actor if actor is not None else os.environ.get(AGENT_VARIABLE),
        topic=given["topic"] or "",
        phase=given["phase"] or "",
        action=given["action"] or "",
        status=given["status"],
        artifact=given["artifact"],
        ref=given["ref"],
        detect=detectors.labels,
    )
    kept, deduped = curation.append(bundle_root(root), event)
    told = {**kept.to_json(), **({"deduped": True} if deduped else {})}
    answer("ledger", lambda: told, lambda: [f"{'known' if deduped else 'appended'}: {_event_line(kept)}"])
    return 0


@ledger.command("status", cls=BundleCommand)
@_root_option
def status(root: str | None) -> int:
    """Where every topic stands, and which failures are open."""
    from memoree.okf import curation
    from memoree.okf import ledger as domain

    found = domain.summary(curation.visible_ledger(bundle_root(root)))
    told = {
        "topics": [topic.to_json() for topic in found.topics],
        "openFailures": [failure.told() for failure in found.open_failures],
    }
    rows = [f"{topic.count:>5}  {topic.to_json()['last']:<14} {topic.topic}" for topic in found.topics]
    failures = [f"open: {_event_line(failure)}" for failure in found.open_failures]
    answer("ledger", lambda: told, lambda: [*rows, *failures] or ["(nothing yet)"])
    return 0


@ledger.command("read", cls=BundleCommand)
@_root_option
@click.option("--topic", help="The topic.")
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=READ_LIMIT_DEFAULT, show_default=True, help="At most."
)
def read(root: str | None, topic: str | None, limit: int) -> int:
    """Print the newest events of a topic, the oldest of them first."""
    from memoree.okf import curation

    if topic is None:
        click.echo("Error: --topic is missing", err=True)
        return NO_TOPIC_STATUS
    events = [event for event in curation.visible_ledger(bundle_root(root)) if event.topic == topic]
    shown = sorted(events, key=lambda event: event.ts_ms)[-limit:]
    told = {"topic": topic, "count": len(shown), "events": [event.told() for event in shown]}
    answer("ledger", lambda: told, lambda: [_event_line(event) for event in shown] or ["(nothing found)"])
    return 0


def _answer_bare(kind: str, data: dict[str, Any], at_ms: int, lines: Iterator[str]) -> None:
    """These two have no version of a contract in their JSON, as the reference program has it (§2.3)."""
    if not current_invocation().json:
        print_lines(lines)
        return
    import orjson

    from memoree.okf import dates

    print_bytes(orjson.dumps({"kind": kind, "generatedAt": dates.iso(at_ms), **data}) + b"\n")


def _listed(found: list[Candidate]) -> Iterator[str]:
    """A plan, with the reasons as comments."""
    yield f"# {len(found)} to decide: keep, archive, forget, or merge into a target"
    for each in found:
        rivals = f" with {', '.join(each.conflicts_with)}" if each.conflicts_with else ""
        yield f"# {', '.join(each.reasons)}{rivals}"
        yield each.plan_line()


def _plan(name: str) -> str:
    """Of standard input for -."""
    import sys

    try:
        if name == "-":
            data = sys.stdin.buffer.read(PLAN_CHARS_READ_MAX + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(PLAN_CHARS_READ_MAX + 1)
        return data.decode()
    except OSError as error:
        fail(f"--plan: {name}: {error.strerror or error}")
    except UnicodeDecodeError:
        fail(f"--plan: {name} is not UTF-8")


def _mapped(found: Map) -> dict[str, Any]:
    return {
        "groups": [
            {
                "name": each.name,
                "standing": each.standing,
                "engines": each.engines,
                "raw": each.raw,
                "canon": each.canon,
            }
            for each in found.groups
        ],
        "conflicts": [
            {"a": pair.one, "b": pair.other, "type": pair.type, "score": pair.likeness} for pair in found.conflicts
        ],
    }


def _event_line(event: Event) -> str:
    told = event.told()
    return f"{told['ts']} {event.actor} {event.phase}/{event.status} {event.topic}: {told['action']}"
