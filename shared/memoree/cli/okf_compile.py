"""`memoree okf compile`: claims of what the canon of the store's bundle states (OKF contract §8.3)."""

from __future__ import annotations

import click

from memoree.cli.parsing import Command, current_invocation

INCOMPLETE_STATUS = 1
TYPES = ("Concept", "Entity", "Project", "Session", "Idea")


@click.command("compile", cls=Command)
@click.option(
    "--type",
    "types",
    multiple=True,
    type=click.Choice(TYPES),
    help="Take the descriptions of this type for facts, too; may be repeated.",
)
@click.option("--apply", "applying", is_flag=True, help="Assert, revise and retract what the preview shows.")
def compile_(types: tuple[str, ...], applying: bool) -> int:
    """Show which claims the store's bundle states, and make them with --apply.

    Decisions, rules, verdicts, patterns and the status of tasks and plans are stated; every claim cites the lines of
    the file that say so. What is claimed already stays; what canon says no more is retracted. Importing a bundle makes
    no claims.

    The exit status is 1 when the store refused something; what and why is said.
    """
    from memoree.bundles.compiling import apply, preview
    from memoree.cli.jobs import report, say
    from memoree.cli.okf_store import open_door

    with open_door(writes=applying) as door:
        found = apply(door, types) if applying else preview(door, types)
    if current_invocation().for_people:
        for action in found.actions:
            said = action["input"].get("statement") or action["input"].get("reason") or ""
            say(f"{action['action']:<9} {action.get('path') or ''}  {said}".rstrip())
        for path, why in found.left_out.items():
            say(f"left out {path}: {why}")
        for why in found.refused.values():
            say(f"refused {why}")
    report(
        {
            "applied": applying,
            **{f"{name}_count": count for name, count in found.counts.items()},
            "unchanged_count": found.unchanged,
            "left_out": found.left_out,
            "refused": list(found.refused.values()),
            **({} if current_invocation().for_people else {"actions": [dict(each) for each in found.actions]}),
        }
    )
    return INCOMPLETE_STATUS if found.refused else 0
