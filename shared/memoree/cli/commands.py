"""The tree of commands."""

from __future__ import annotations

from collections.abc import Sequence

import click

import memoree
from memoree.cli.invocation import Invocation
from memoree.cli.parsing import LazyGroup

COMMANDS = {
    "call": "memoree.cli.discovery:call_command",
    "artifact": "memoree.cli.artifact:artifact",
    "claim": "memoree.cli.claim:claim",
    "citation": "memoree.cli.citation:citation",
    "search": "memoree.cli.search:search",
    "recall": "memoree.cli.recall:recall",
    "retrieve": "memoree.cli.retrieve:retrieve",
    "probe": "memoree.cli.probe:probe",
    "link": "memoree.cli.relation:link",
    "relation": "memoree.cli.relation:relation",
    "conflict": "memoree.cli.relation:conflict",
    "source": "memoree.cli.source:source",
    "mcp": "memoree.cli.mcp:mcp_command",
    "connect": "memoree.cli.connect:connect",
    "ingest": "memoree.cli.ingest:ingest",
    "okf": "memoree.cli.okf:okf",
    "inbox": "memoree.cli.inbox:inbox",
    "ledger": "memoree.cli.ledger:ledger",
    "task": "memoree.cli.task:task",
    "review": "memoree.cli.review:review",
    "projection": "memoree.cli.projection:projection",
    "feedback": "memoree.cli.feedback:feedback",
    "init": "memoree.cli.project:init",
    "context": "memoree.cli.project:context",
    "session": "memoree.cli.session:session",
    "answer-pack": "memoree.cli.answer_pack:answer_pack",
    "skill": "memoree.cli.skill:skill",
    "instructions": "memoree.cli.discovery:instructions",
    "schema": "memoree.cli.discovery:schema",
    "capabilities": "memoree.cli.discovery:capabilities",
    "doctor": "memoree.cli.discovery:doctor",
    "verify": "memoree.cli.discovery:verify",
    "eval": "memoree.cli.eval:eval_",
    "backup": "memoree.cli.backup:backup",
    "restore": "memoree.cli.restore:restore",
    "gc": "memoree.cli.gc:gc",
    "erase": "memoree.cli.erase:erase",
    "tenant": "memoree.cli.tenant:tenant",
    "token": "memoree.cli.token:token",
    "export": "memoree.cli.transfer:export_",
    "import": "memoree.cli.transfer:import_",
    "serve": "memoree.cli.server:serve",
    "up": "memoree.cli.server:up",
    "down": "memoree.cli.server:down",
    "status": "memoree.cli.server:status",
    "worker": "memoree.cli.server:worker",
    "head": "memoree.cli.head:head",
}
"""In the order of `memoree --help`."""

HELP = """Evidence-first memory for AI agents.

Agents use `memoree call`: one JSON request on standard input, one JSON envelope on standard output.
All other commands print for people on a terminal, and the same envelope when piped or with --json;
`up`, `down` and `status` print one line of JSON.

Without a task, writes may touch everything of the project; with one, what belongs to the project itself
and to that task. Pins and exact ids only ever give read access.
"""

root = LazyGroup("memoree", help=HELP, lazy=COMMANDS)
root = click.version_option(memoree.__version__, prog_name="memoree", message="%(prog)s %(version)s")(root)


def run(arguments: Sequence[str], invocation: Invocation) -> int:
    """Run a command line. Mistakes in it are answered with usage on standard error and status 2."""
    try:
        status = root.main(list(arguments), prog_name="memoree", standalone_mode=False, obj=invocation)
    except click.ClickException as mistake:
        mistake.show()
        return mistake.exit_code
    except click.Abort:
        return 1
    return int(status or 0)
