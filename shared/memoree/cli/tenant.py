"""`memoree tenant`: whole tenants of a deployment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from memoree.cli.jobs import deployment_option, report, with_site
from memoree.cli.parsing import Command, Group
from memoree.tenants import NAMES_DEFAULT, NAMES_MAX, page

if TYPE_CHECKING:
    from memoree.tenants import Tenants

Function = TypeVar("Function", bound=Callable[..., Any])

NONE = "none"


class Limit(click.ParamType[Any]):
    """A number, or `none`, which takes the limit away."""

    def __init__(self, kind: type[int] | type[float]) -> None:
        self.name = "N"
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == NONE:
            return value
        try:
            return self._kind(value)
        except ValueError:
            self.fail(f"{value!r} is neither a number nor {NONE!r}", param, ctx)


def quota_options(function: Function) -> Function:
    for name, kind, help_ in (
        ("burst", int, "Requests at once."),
        ("rate", float, "Requests a second."),
        ("bytes", int, "Bytes of content of all revisions that were not erased."),
        ("rows", int, "Revisions that were not erased, and relations, projections, feedback, sources and their items."),
    ):
        option = click.option(f"--{name}", f"{name}_", type=Limit(kind), help=help_)
        function = option(function)
    return function


def _wanted(rows: Any, bytes_: Any, rate: Any, burst: Any) -> dict[str, Any]:
    given = {"rows_max": rows, "bytes_max": bytes_, "rate_per_second": rate, "rate_burst": burst}
    return {name: None if value == NONE else value for name, value in given.items() if value is not None}


@click.group(cls=Group)
def tenant() -> None:
    """Look after whole tenants."""


@tenant.command("list", cls=Command)
@click.option("--after", metavar="NAME", default="", help="Only names beyond this one.")
@click.option("--limit", type=click.IntRange(1, NAMES_MAX), default=NAMES_DEFAULT, show_default=True)
@deployment_option
def list_(after: str, limit: int, data: Path | None) -> int:
    """Name the tenants that have objects in the bucket, in order.

    `next` is what the next page comes after; without it this is the last one.
    """

    async def work(tenants: Tenants) -> dict[str, Any]:
        return page(await tenants.names(after=after, limit=limit + 1), limit)

    return report(_administered(data, work))


@tenant.command(cls=Command)
@click.argument("name")
@deployment_option
def show(name: str, data: Path | None) -> int:
    """Tell what a tenant holds and may hold, who writes it, and its last backup."""
    return report(_administered(data, lambda tenants: tenants.show(name)))


@tenant.command(cls=Command)
@click.argument("name")
@quota_options
@deployment_option
def create(name: str, rows_: Any, bytes_: Any, rate_: Any, burst_: Any, data: Path | None) -> int:
    """Make a tenant exist, before anything is written to it; again, it changes what is given.

    Of a deleted tenant it uses the name again, which no write does: it begins empty. Needs a running writer.
    """
    wanted = _wanted(rows_, bytes_, rate_, burst_)
    return report(_administered(data, lambda tenants: tenants.create(name, wanted)))


@tenant.command(cls=Command)
@click.argument("name")
@quota_options
@deployment_option
def quota(name: str, rows_: Any, bytes_: Any, rate_: Any, burst_: Any, data: Path | None) -> int:
    """Bound what a tenant may hold and how often it may ask; `none` leaves a limit to the deployment.

    What is not given stays as it is. Who holds more already keeps it, and can store nothing until there is room again.
    """
    if not (wanted := _wanted(rows_, bytes_, rate_, burst_)):
        raise click.UsageError("say which limit: --rows, --bytes, --rate or --burst")
    return report(_administered(data, lambda tenants: tenants.set_quota(name, wanted)))


@tenant.command(cls=Command)
@click.argument("name")
@click.option("--confirm", metavar="TOKEN", help="What the same command without it told: once, within ten minutes.")
@click.option("--yes", is_flag=True, help="Both steps at once, for scripts.")
@deployment_option
def delete(name: str, confirm: str | None, yes: bool, data: Path | None) -> int:
    """Remove a tenant with everything it has: rows, content, history and backups, in both buckets.

    Without an option it tells what would go, and the confirmation that makes it go. Nothing brings the tenant back, nor
    does a write that is still under way: `memoree tenant create` uses its name again. Exits 1 when an object could not
    be removed; the same steps again go on.
    """
    if confirm is None and not yes:
        return report(_administered(data, lambda tenants: tenants.announce_deletion(name)))

    async def work(tenants: Tenants) -> Mapping[str, Any]:
        token = confirm or (await tenants.announce_deletion(name))["confirmation"]
        return await tenants.delete(name, token)

    result = _administered(data, work)
    return report(result) or (0 if result["complete"] else 1)


def _administered(data: Path | None, work: Callable[[Tenants], Awaitable[Mapping[str, Any]]]) -> Mapping[str, Any]:
    return with_site(data, lambda site: work(site.administration))
