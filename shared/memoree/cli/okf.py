"""`memoree okf`: bundles of Markdown files, as OKF keeps memory."""

from __future__ import annotations

from memoree.cli.parsing import LazyGroup

COMMANDS = {
    "import": "memoree.cli.okf_store:import_",
    "export": "memoree.cli.okf_store:export_",
    "watch": "memoree.cli.okf_store:watch",
    "compile": "memoree.cli.okf_compile:compile_",
    "recall": "memoree.cli.okf_files:recall",
    "list": "memoree.cli.okf_files:list_",
    "type": "memoree.cli.okf_files:type_",
    "tag": "memoree.cli.okf_files:tag",
    "get": "memoree.cli.okf_files:get",
    "rel": "memoree.cli.okf_files:rel",
    "links": "memoree.cli.okf_files:links",
    "validate": "memoree.cli.okf_files:validate",
    "new": "memoree.cli.okf_new:new",
    "handoff": "memoree.cli.okf_work:handoff",
    "review": "memoree.cli.okf_work:review",
    "forget": "memoree.cli.okf_work:forget",
    "consolidate": "memoree.cli.okf_work:consolidate",
    "ledger": "memoree.cli.okf_work:ledger",
    "share": "memoree.cli.okf_transfer:share",
    "adopt": "memoree.cli.okf_transfer:adopt",
}
"""In the order of `memoree okf --help`."""

HELP = """Bundles of Markdown files: into the store and out of it, or as they are.

`import`, `export`, `watch` and `compile` work on the store, in the project of the current directory. All others need
none: their bundle is the directory that --root names, else OKF_ROOT, else the current one.
"""

okf = LazyGroup("okf", help=HELP, short_help="Bundles of Markdown files, in the store or as they are.", lazy=COMMANDS)
