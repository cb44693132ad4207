"""`memoree okf`: search, list and check a bundle that is a directory of files, without a store (OKF contract §2)."""

from __future__ import annotations

import click

from memoree.cli.okf_line import (
    PERSONAL_VARIABLE,
    BundleCommand,
    answer,
    bundle_root,
    dialect_of,
    fail,
    inbox_option,
    note,
    now_ms,
    personal_root,
    print_bytes,
    print_lines,
    root_option,
    secret_option,
    tiers_of,
    warn,
)
from memoree.cli.parsing import current_invocation

MODES = "bm25, semantic, hybrid or auto"
MODE_HINT = "--mode bm25 needs no index"
USAGE = 'usage: memoree okf recall "WORDS" [-k N] [--mode bm25|semantic|hybrid|auto]'
INDEX_WORD = "index"


@click.command(cls=BundleCommand)
@click.argument("query", nargs=-1)
@click.option("-k", "k", metavar="N", default="5", show_default=True, help="Results, at most; 0 is 5.")
@click.option("--mode", default="auto", show_default=True, help=f"{MODES}; files are ranked by words (bm25) only.")
@root_option
@click.option("--include-mirror", is_flag=True, help="Also copies of engines' own memories.")
@secret_option
@inbox_option
@click.option("--include-superseded", is_flag=True, help="Also what was replaced or does not hold, lower and labelled.")
@click.option("--as-of", metavar="ISO", help="The instant to judge from.  [default: now]")
@click.option("--exclude-source", metavar="ID", help="Leave out what names this source.")
@click.option("--no-global", is_flag=True, help=f"Leave out the personal bundle.  [env: {PERSONAL_VARIABLE}]")
@click.option("--expand", is_flag=True, help="Also neighbours of the results, one step away.")
@click.option("--expand-hops", metavar="N", help="0 is off, anything more one step.")
@click.option("--expand-budget", metavar="N", default="5", show_default=True, help="Neighbours in all; 0 is 5.")
def recall(
    query: tuple[str, ...],
    k: str,
    mode: str,
    root: str | None,
    compat: bool,
    include_mirror: bool,
    include_secret: bool,
    include_inbox: bool,
    include_superseded: bool,
    as_of: str | None,
    exclude_source: str | None,
    no_global: bool,
    expand: bool,
    expand_hops: str | None,
    expand_budget: str,
) -> int:
    """Rank a bundle's nodes by the words of a query."""
    from memoree.errors import MemoreeError
    from memoree.okf import recalling
    from memoree.okf.ranking import Query

    if not query:
        print_lines([USAGE])
        return 0
    if query == (INDEX_WORD,):
        fail("there is no endpoint for embeddings", MODE_HINT)
    dialect = dialect_of(compat=compat)
    text = " ".join(query).encode(errors="backslashreplace").decode()
    asked = Query(
        text,
        _instant(as_of),
        _count("-k", k),
        tiers=tiers_of(secret=include_secret, inbox=include_inbox, mirror=include_mirror),
        include_superseded=include_superseded,
        exclude_source=exclude_source,
        expand_budget=_count("--expand-budget", expand_budget) if _expands(expand, expand_hops) else None,
    )
    if compat and root is not None and mode in ("semantic", "hybrid"):
        fail(f"--mode {mode} needs the index of the bundle at hand, not of another one", MODE_HINT)
    try:
        bundle, personal = bundle_root(root), None if no_global else personal_root(dialect)
        found = recalling.recall(bundle, dialect, asked, mode, personal=personal)
    except MemoreeError as error:
        fail(error.message, None if mode == "bm25" else MODE_HINT)
    for warning in (*filter(None, (found.warning,)), *found.warnings):
        warn(warning)
    answer("recall", found.to_json, found.render)
    return 0


@click.command("list", cls=BundleCommand)
@click.argument("directory", required=False)
@root_option
@secret_option
@inbox_option
def list_(directory: str | None, root: str | None, compat: bool, include_secret: bool, include_inbox: bool) -> int:
    """List the nodes of a bundle."""
    from memoree.okf import bundle, listing

    tiers = tiers_of(secret=include_secret, inbox=include_inbox)
    found = listing.concepts(bundle.nodes(bundle_root(root, directory), dialect_of(compat=compat), tiers))
    answer("list", lambda: [listing.to_json(node) for node in found], lambda: listing.table(found, tiers))
    return 0


@click.command("type", cls=BundleCommand)
@click.argument("node_type", metavar="TYPE")
@root_option
@secret_option
@inbox_option
def type_(node_type: str, root: str | None, compat: bool, include_secret: bool, include_inbox: bool) -> int:
    """List the nodes of one type, whatever its case."""
    from memoree.okf import bundle, listing

    tiers = tiers_of(secret=include_secret, inbox=include_inbox)
    found = listing.of_type(bundle.nodes(bundle_root(root), dialect_of(compat=compat), tiers), node_type)
    none = f"no nodes of type {node_type}"
    answer("type", lambda: [listing.to_json(node) for node in found], lambda: listing.lines(found, none))
    return 0


@click.command(cls=BundleCommand)
@click.argument("tag")
@root_option
@secret_option
@inbox_option
def tag(tag: str, root: str | None, compat: bool, include_secret: bool, include_inbox: bool) -> int:
    """List the nodes with one tag, whatever its case."""
    from memoree.okf import bundle, listing

    tiers = tiers_of(secret=include_secret, inbox=include_inbox)
    found = listing.of_tag(bundle.nodes(bundle_root(root), dialect_of(compat=compat), tiers), tag)
    none = f"no nodes with tag {tag}"
    answer("tag", lambda: [listing.to_json(node) for node in found], lambda: listing.lines(found, none))
    return 0


@click.command(cls=BundleCommand)
@click.argument("node_id", metavar="ID")
@root_option
@secret_option
@inbox_option
def get(node_id: str, root: str | None, compat: bool, include_secret: bool, include_inbox: bool) -> int:
    """Print the file of a node, byte for byte; lines before it say why it may no longer hold.

    ID is a path in the bundle, or the end of one.
    """
    from memoree.okf import bundle, listing
    from memoree.okf.node import parse

    guarded, dialect = _guarded(node_id, compat=compat), dialect_of(compat=compat)
    tiers = tiers_of(secret=include_secret, inbox=include_inbox)
    files = {file.id: file.data for file in bundle.files(bundle_root(root), tiers)}
    parsed = (parse(name, data, dialect) for name, data in files.items())
    nodes = [node for node in parsed if include_secret or not node.is_secret]
    node = listing.find(guarded, nodes)
    if node is None:
        answer("get", lambda: {"found": False, "id": node_id}, lambda: [f"not found: {node_id}"])
        return 0
    banner = listing.banner(node, nodes, at_ms=now_ms())
    if current_invocation().json:
        content = files[node.id].decode(errors="replace")
        told = {"found": True, **listing.to_json(node), "tags": node.tags, "content": content, "warnings": banner}
        answer("get", lambda: told, lambda: ())
        return 0
    if banner:
        print_lines([*banner, ""])
    print_bytes(files[node.id])
    return 0


@click.command(cls=BundleCommand)
@click.argument("key")
@click.argument("node_id", metavar="ID")
@click.option("--inbound", is_flag=True, help="Also the nodes that name this one.")
@root_option
@secret_option
@inbox_option
def rel(
    key: str,
    node_id: str,
    inbound: bool,
    root: str | None,
    compat: bool,
    include_secret: bool,
    include_inbox: bool,
) -> int:
    """Print what a node names under a key of its relations, as the key is written."""
    from memoree.okf import bundle, listing

    guarded = _guarded(node_id, compat=compat)
    tiers = tiers_of(secret=include_secret, inbox=include_inbox)
    nodes = list(bundle.nodes(bundle_root(root), dialect_of(compat=compat), tiers))
    found = listing.related(key, guarded, nodes)
    answer("rel", found.to_json, lambda: found.render(with_inbound=inbound))
    return 0


@click.command(cls=BundleCommand)
@click.argument("directory", required=False)
@root_option
@secret_option
@inbox_option
def links(directory: str | None, root: str | None, compat: bool, include_secret: bool, include_inbox: bool) -> int:
    """Count links and relations, and tell those that lead nowhere and the nodes that none leads to."""
    from memoree.okf import graph

    tiers = tiers_of(secret=include_secret, inbox=include_inbox)
    found = graph.of_bundle(bundle_root(root, directory), dialect_of(compat=compat), tiers)
    answer("links", found.to_json, found.render)
    return 0


@click.command(cls=BundleCommand)
@click.argument("directory", required=False)
@root_option
@secret_option
@inbox_option
def validate(directory: str | None, root: str | None, compat: bool, include_secret: bool, include_inbox: bool) -> int:
    """Check a bundle by the rules of OKF; the exit status is 1 when it does not conform."""
    from memoree.okf.bundle import Findings
    from memoree.okf.validate import validate as check

    met = Findings()
    tiers = tiers_of(secret=include_secret, inbox=include_inbox)
    report = check(bundle_root(root, directory), dialect_of(compat=compat), tiers, met)
    for path, reason in met.unreadable.items():
        note(f"{path} is left out: {reason}")
    answer("validate", report.to_json, report.render)
    return 0 if report.is_conformant else 1


def _guarded(node_id: str, *, compat: bool) -> str:
    """What is asked for, before anything is looked up."""
    from memoree.okf.ids import InvalidId, safe_id

    try:
        return safe_id(node_id, dialect_of(compat=compat))
    except InvalidId as error:
        fail(f"[INVALID_ID] {node_id!r}: {error}")


def _instant(written: str | None) -> int:
    from memoree.okf import dates

    if written is None:
        return now_ms()
    instant = dates.milliseconds(written)
    if instant is None:
        fail(f"--as-of: an ISO 8601 date or time such as 2026-06-01T00:00:00Z, not {written!r}")
    return instant


def _count(option: str, written: str) -> int:
    """What is no number, and 0, stand for the default."""
    from memoree.okf.ranking import K_DEFAULT, K_MAX

    try:
        number = int(float(written))
    except (ValueError, OverflowError):
        return K_DEFAULT
    if not 0 <= number <= K_MAX:
        fail(f"{option}: 1 to {K_MAX}, not {written}")
    return number or K_DEFAULT


def _expands(expand: bool, hops: str | None) -> bool:
    if hops is None:
        return expand
    try:
        number = int(hops)
    except ValueError:
        fail(f"--expand-hops: a number, not {hops!r}")
    if number < 0:
        fail(f"--expand-hops: 0 or more, not {hops}")
    if number > 1:
        note("results are expanded by one hop, not more")
    return number > 0
