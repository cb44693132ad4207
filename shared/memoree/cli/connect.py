"""`memoree connect`: external systems as sources."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from memoree.cli.parsing import Group
from memoree.errors import MemoreeError

if TYPE_CHECKING:
    from memoree.connectors import Connector
    from memoree.connectors.names import Wanted

Function = TypeVar("Function", bound=Callable[..., Any])

TENANT_DEFAULT = "local"
INTERVAL_DEFAULT = 5.0
BUNDLE_ITEM_KIND = "okf.node"
"""Of what is delivered of a bundle; the store finds the kind in the file."""
EVENTS_WAIT_SECONDS = 20
KEY_VARIABLES = ("MEMOREE_CONNECT_ACCESS_KEY_ID", "MEMOREE_CONNECT_SECRET_ACCESS_KEY")


def _together(*decorators: Callable[[Function], Function]) -> Callable[[Function], Function]:
    def decorate(function: Function) -> Function:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


_path = click.Path(path_type=Path)
_source_options = _together(
    click.option("--source", required=True, metavar="NAME", help="Under which name the items are kept, and stay."),
    click.option("--locator", metavar="TEXT", help="Where the source was when it began, if it has moved since."),
    click.option(
        "--once/--watch", default=True, help="Look once, or again and again until interrupted.  [default: once]"
    ),
    click.option(
        "--interval",
        type=click.FloatRange(min=0.1),
        default=INTERVAL_DEFAULT,
        show_default=True,
        metavar="SECONDS",
        help="Between two looks.",
    ),
    click.option("--workspace", metavar="ID", help="Where the items belong.  [default: the ambient context's]"),
    click.option("--project", metavar="ID", help="With --workspace."),
    click.option("--tenant", default=TENANT_DEFAULT, show_default=True, metavar="NAME", help="Whose memory it is."),
    click.option("--queue", metavar="URL", help="The ingest queue: sqlite:///FILE, or the URL of an SQS queue."),
    click.option("--queue-region", metavar="NAME", default="us-east-1", show_default=True, help="Of an SQS queue."),
    click.option("--queue-endpoint", metavar="URL", help="For any SQS that is not Amazon's."),
    click.option("--data", type=_path, metavar="DIR", help="The running stack's directory, instead of --queue."),
    click.option("--state", type=_path, metavar="DIR", help="What was sent.  [default: the user's state directory]"),
    click.option("--rescan", is_flag=True, help="Forget what was sent, and send it again; a repeat changes nothing."),
    click.option("--dry-run", is_flag=True, help="Print what would be sent, and send nothing."),
)
_path_options = _together(
    click.option(
        "--include", multiple=True, metavar="GLOB", help="Only such names; repeatable.  [default: text files]"
    ),
    click.option("--exclude", multiple=True, metavar="GLOB", help="No such names; repeatable."),
    click.option("--kind", default="document", show_default=True, help="Of the artifacts that are made."),
)


@click.group(cls=Group)
def connect() -> None:
    """Deliver what an external system holds, and what changes there.

    Without --queue or --data, to the deployment that MEMOREE_ variables describe, else to the store in the data
    directory. Interrupt it at any moment: the next run goes on, and delivers nothing twice.

    The exit status is 1 when something could not be delivered; what and why is said.
    """


@connect.command()
@click.argument("path", metavar="PATH", type=_path)
@_source_options
@_path_options
@click.option("--allow-empty", is_flag=True, help="Withdraw everything when there is nothing any more.")
def directory(path: Path, include: tuple[str, ...], exclude: tuple[str, ...], allow_empty: bool, **options: Any) -> int:
    """Deliver the text files below a directory.

    One item per file, under its relative path. A changed file is a new revision, a deleted one is withdrawn. Links and
    hidden files are left out.
    """
    from memoree.connectors.directory import DirectoryConnector

    connector = DirectoryConnector(path, _wanted(include, exclude), allow_empty=allow_empty)
    return _run(lambda _: connector, options)


@connect.command()
@click.argument("path", metavar="PATH", type=_path)
@_source_options
@click.option("--include-mirror", is_flag=True, help="Also copies of engines' own memories.")
@click.option("--allow-empty", is_flag=True, help="Withdraw everything when there is nothing any more.")
def okf(path: Path, include_mirror: bool, allow_empty: bool, **options: Any) -> int:
    """Deliver a bundle of OKF files.

    One item per node, under its path. Secrets and the inbox are left out. A project has one bundle, and what is
    delivered takes the place of what was edited in the store: `memoree okf import` asks first.
    """
    from memoree.connectors.okf import OkfConnector

    connector = OkfConnector(path, include_mirror=include_mirror, allow_empty=allow_empty)
    return _run(lambda _: connector, {**options, "kind": BUNDLE_ITEM_KIND})


@connect.command()
@click.argument("repository", metavar="REPOSITORY")
@_source_options
@_path_options
@click.option("--branch", metavar="NAME", help="[default: the repository's main branch]")
@click.option("--history/--no-history", default=True, help="Begin with the first commit, or with the tree as it is.")
def git(
    repository: str,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    branch: str | None,
    history: bool,
    **options: Any,
) -> int:
    """Deliver the text files of a git branch, commit by commit.

    REPOSITORY is a path or a URL. Every commit of the main line makes revisions of the files it changed, with author,
    date and commit id. A rewritten branch is noticed.
    """
    from memoree.connectors.git import GitConnector

    def connector(state: Path) -> Connector:
        return GitConnector(repository, state.with_suffix(".git"), branch, _wanted(include, exclude), history=history)

    return _run(connector, options)


@connect.command()
@click.argument("location", metavar="s3://BUCKET/PREFIX")
@_source_options
@_path_options
@click.option("--allow-empty", is_flag=True, help="Withdraw everything when there is nothing any more.")
@click.option("--profile", metavar="NAME", help="Of the AWS configuration.  [default: as in every AWS program]")
@click.option("--region", metavar="NAME", help="Of the bucket.")
@click.option("--endpoint-url", metavar="URL", help="For any S3 that is not Amazon's.")
@click.option("--events", metavar="URL", help="The SQS queue that the bucket notifies.")
@click.option("--events-endpoint-url", metavar="URL", help="For any SQS that is not Amazon's.")
@click.option("--scan/--no-scan", default=True, help="List the bucket, or follow --events only.")
def s3(
    location: str,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    allow_empty: bool,
    profile: str | None,
    region: str | None,
    endpoint_url: str | None,
    events: str | None,
    events_endpoint_url: str | None,
    scan: bool,
    **options: Any,
) -> int:
    """Deliver the text objects of an S3 bucket.

    One item per object, its ETag the revision. With --events, changes are delivered as the bucket tells them, and the
    bucket is listed at the first look and every six hours, in case it told nobody.

    The bucket's keys may be given by MEMOREE_CONNECT_ACCESS_KEY_ID and MEMOREE_CONNECT_SECRET_ACCESS_KEY.
    """
    from memoree.connectors.s3 import EventQueue, S3Access, S3Connector

    bucket, prefix = _bucket_and_prefix(location)
    access_key_id, secret_access_key = _bucket_keys()
    access = S3Access(
        endpoint_url=endpoint_url,
        region=region,
        profile=profile,
        access_key_id=access_key_id,
        secret_access_key=secret_access_key,
    )
    queue = None
    if events is not None and not options["dry_run"]:  # a rehearsal takes nothing from a queue
        queue = EventQueue(events, events_endpoint_url, wait_seconds=0 if options["once"] else EVENTS_WAIT_SECONDS)
    wanted = _wanted(include, exclude)
    connector = S3Connector(bucket, prefix, access, wanted, allow_empty=allow_empty, scan=scan, events=queue)
    return _run(lambda _: connector, options)


def _bucket_and_prefix(location: str) -> tuple[str, str]:
    scheme, _, rest = location.partition("://")
    bucket, _, prefix = rest.partition("/")
    if scheme != "s3" or not bucket:
        raise click.UsageError(f"{location!r} is not s3://BUCKET or s3://BUCKET/PREFIX")
    return bucket, prefix


def _bucket_keys() -> tuple[str | None, str | None]:
    """Apart from the variables of AWS, which are the queue's."""
    key_id, secret = (os.environ.get(name) or None for name in KEY_VARIABLES)
    if (key_id is None) != (secret is None):
        raise click.UsageError(f"{' and '.join(KEY_VARIABLES)} are set together or not at all")
    return key_id, secret


@connect.command()
@click.argument("file", metavar="FILE", type=_path)
@_source_options
@click.option("--kind", default="episode", show_default=True, help="Of the artifacts that are made.")
def conversation(file: Path, **options: Any) -> int:
    """Deliver chat turns as episodes.

    FILE has one turn per line, {"session", "speaker", "text", "at"?, "id"?}. A session is an episode, and a new
    revision of it when turns are added.
    """
    from memoree.connectors.conversation import ConversationConnector

    connector = ConversationConnector(file)
    return _run(lambda _: connector, options)


def _wanted(include: tuple[str, ...], exclude: tuple[str, ...]) -> Wanted:
    from memoree.connectors.names import Wanted

    try:
        return Wanted(include, exclude)
    except MemoreeError as error:
        raise click.UsageError(error.message) from None


def _run(connector: Callable[[Path], Connector], options: dict[str, Any]) -> int:
    from memoree.cli.connecting import Wishes, run

    return run(connector, Wishes(**options))
