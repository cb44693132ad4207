"""`memoree okf`: bundles of Markdown files, as OKF keeps memory."""

from __future__ import annotations

from memoree.cli.parsing import LazyGroup

COMMANDS = {
    "recall": "memoree.cli.okf_files:recall",
    "list": "memoree.cli.okf_files:list_",
    "type": "memoree.cli.okf_files:type_",
    "tag": "memoree.cli.okf_files:tag",
    "get": "memoree.cli.okf_files:get",
    "rel": "memoree.cli.okf_files:rel",
    "links": "memoree.cli.okf_files:links",
    "validate": "memoree.cli.okf_files:validate",
    "handoff": "memoree.cli.okf_work:handoff",
    "review": "memoree.cli.okf_work:review",
    "forget": "memoree.cli.okf_work:forget",
    "consolidate": "memoree.cli.okf_work:consolidate",
    "ledger": "memoree.cli.okf_work:ledger",
    "export": "memoree.cli.okf_transfer:export_",
    "import": "memoree.cli.okf_transfer:import_",
    "store": "memoree.cli.okf_store:store",
    "watch": "memoree.cli.okf_store:watch",
    "compile": "memoree.cli.okf_compile:compile_",
}
"""In the order of `memoree okf --help`."""

HELP = """Search, check and copy bundles of Markdown files.

The bundle is the directory that --root names, else OKF_ROOT, else the current one; no store is needed.
"""

okf = LazyGroup("okf", help=HELP, short_help="Search, check and copy bundles of Markdown files.", lazy=COMMANDS)
