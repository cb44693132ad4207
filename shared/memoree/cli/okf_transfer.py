"""`memoree okf share` and `memoree okf adopt`: bundles as files, without a store (OKF contract §8.1, §8.2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from memoree.cli.okf_line import (
    BundleCommand,
    answer,
    bundle_root,
    dialect_of,
    fail,
    now_ms,
    root_option,
    warn,
)

DESTINATIONS = ("inbox", "concepts")


@click.command("share", cls=BundleCommand)
@click.argument("directory")
@root_option
@click.option("--visibility", default="internal", show_default=True, metavar="public|internal", help="What may leave.")
@click.option("--dry-run", is_flag=True, help="Write nothing; tell what would be.")
@click.option("--to-gbrain", is_flag=True, help="In gbrain's form, which holds less than OKF.")
def share(directory: str, root: str | None, compat: bool, visibility: str, dry_run: bool, to_gbrain: bool) -> int:
    """Write what may be shared of a bundle into DIRECTORY, which must be new or empty.

    Secrets, mirrors and the inbox never leave.
    """
    from memoree.okf import bundle, exporting

    bundle_directory = bundle_root(root)
    target = Path(directory)
    place = target if dry_run else exporting.check_target(target, bundle_directory)
    files = ((file.path, file.data) for file in bundle.files(bundle_directory))
    found = exporting.export(files, dialect_of(compat=compat), threshold=visibility, gbrain=to_gbrain)
    if not dry_run:
        exporting.write(found.files, place)
    for warning in found.warnings:
        warn(warning)
    paths = [path for path, _ in found.files]
    told = {"directory": str(target), "dryRun": dry_run, "files": paths, "leftOut": dict(found.left_out)}
    told |= {"warnings": list(found.warnings)}
    answer("export", lambda: told, lambda: _exported(told))
    return 0


@click.command("adopt", cls=BundleCommand)
@click.argument("directory")
@root_option
@click.option("--into", default="inbox", show_default=True, metavar="inbox|concepts", help="As raw notes, or as nodes.")
def adopt(directory: str, root: str | None, compat: bool, into: str) -> int:
    """Take the nodes of DIRECTORY into a bundle; nothing there is ever overwritten.

    Files that are no nodes, that are secret or whose path is taken are told of and passed over. This copies files;
    `memoree okf import` is what brings a directory into the store.
    """
    from memoree.okf import bundle, detectors, importing

    if into not in DESTINATIONS:
        fail(f"--into: one of {', '.join(DESTINATIONS)}, not {into!r}")
    bundle_directory, source = bundle_root(root), Path(directory)
    bundle.require_bundle(source)
    imported = importing.Imported()
    files, label = importing.found_in(source, imported), importing.label_of(source)
    if into == "inbox":
        importing.into_inbox(
            files, bundle_directory, label=label, at_ms=now_ms(), detect=detectors.labels, imported=imported
        )
    else:
        importing.into_concepts(
            files,
            bundle_directory,
            label=label,
            detect=detectors.labels,
            imported=imported,
            dialect=dialect_of(compat=compat),
        )
    for path, reason in imported.refused.items():
        warn(f"{path} is not imported: {reason}")
    for path, labels in imported.flagged.items():
        warn(f"{path} looks like instructions: {', '.join(labels)}")
    told = {
        "written": imported.written,
        "unchanged": imported.unchanged,
        "refused": [{"path": path, "reason": reason} for path, reason in imported.refused.items()],
        "flagged": imported.flagged,
    }
    shown = [f"{len(imported.written)} nodes imported into {path}" for path in sorted(set(imported.written))]
    lines = shown if into == "inbox" else [f"imported {path}" for path in imported.written]
    answer("import", lambda: told, lambda: lines or ["nothing imported"])
    return 0


def _exported(told: dict[str, Any]) -> list[str]:
    done = "would export" if told["dryRun"] else "exported"
    left = ", ".join(f"{count} {reason}" for reason, count in told["leftOut"].items())
    return [f"{done} {len(told['files'])} files to {told['directory']}", *([f"left out: {left}"] if left else [])]
