"""What the commands of jobs share: which store they work on, and how they report.

With `--tenant`, the tenant of a deployment: the running stack in `--data DIR`, or the one described by MEMOREE_
variables. Without, the store in the data directory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from memoree.cli.output import print_success
from memoree.cli.parsing import current_invocation
from memoree.errors import Code, MemoreeError

if TYPE_CHECKING:
    from memoree.jobs.replicated import JobSite
    from memoree.jobs.tenancy import Tenancy
    from memoree.settings import StackSettings

Function = TypeVar("Function", bound=Callable[..., Any])
Result = TypeVar("Result")


def deployment_option(function: Function) -> Function:
    return click.option(
        "--data", type=click.Path(path_type=Path), metavar="DIR", help="The running stack's directory."
    )(function)


def tenancy_options(function: Function) -> Function:
    """`tenant` and `data`, for `with_tenancy`."""
    option = click.option("--tenant", metavar="NAME", help="Of a deployment; without, the store in the data directory.")
    return option(deployment_option(function))


def with_site(data: Path | None, work: Callable[[JobSite], Awaitable[Result]]) -> Result:
    """Run a job on a deployment. Raises `CONFIG_ERROR` when there is none, `TRANSPORT_ERROR` for a store that does not
    answer."""
    return _answered(_on_site(deployment_settings(data), work))


def with_tenancy(tenant: str | None, data: Path | None, work: Callable[[Tenancy], Awaitable[Result]]) -> Result:
    """Run a job on one tenant of either profile. Raises `CONFIG_ERROR` for a deployment or directory that cannot be
    used."""
    if tenant is None and data is not None:
        raise click.UsageError("--data is for a deployment; name the --tenant")

    async def run() -> Result:
        async with _tenancy(tenant, data) as opened:
            return await work(opened)

    return _answered(run())


def _answered(job: Coroutine[Any, Any, Result]) -> Result:
    """What the job returns; a store that does not answer is told as such."""
    import asyncio  # the shell rarely needs it, and it is slow to import

    from memoree.objects import ObjectStoreError

    try:
        return asyncio.run(job)
    except ObjectStoreError as error:
        raise MemoreeError(Code.TRANSPORT_ERROR, f"the object store failed: {error}") from error


def deployment_settings(data: Path | None) -> StackSettings:
    """Of the running stack in `data`; without it, the environment's. Raises `CONFIG_ERROR`."""
    from pydantic import ValidationError

    from memoree.cli.serving import read_deployment
    from memoree.settings import StackSettings

    if data is not None:
        os.environ.update(read_deployment(data))
    try:
        return StackSettings()
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        name = "MEMOREE_" + "_".join(str(part) for part in first["loc"]).upper() + ": " if first["loc"] else ""
        reason = first["msg"].removeprefix("Value error, ")
        if first["type"] == "missing":
            reason = "is not set; describe the deployment by MEMOREE_ variables, or name a running stack by --data DIR"
        raise MemoreeError(Code.CONFIG_ERROR, f"{name}{reason}") from None


def report(result: Mapping[str, Any]) -> int:
    """Print what a job did: for people on a terminal, otherwise an envelope. Returns the exit status of a success."""
    invocation = current_invocation()
    if not invocation.for_people:
        return print_success(result, invocation)
    from memoree.cli.tables import show_fields

    show_fields(result)
    return 0


def say(text: str) -> None:
    """Progress for people, on standard error. Control characters are made visible: names and foreign programs' words
    are told here."""
    from memoree.cli.terminal import visible

    sys.stderr.write(f"{visible(text)}\n")
    sys.stderr.flush()


def progress(step: str) -> None:
    """`say`, where somebody watches."""
    if sys.stderr.isatty():
        say(step)


@asynccontextmanager
async def _tenancy(tenant: str | None, data: Path | None) -> AsyncIterator[Tenancy]:
    if tenant is None:
        from memoree.assembly import embedded_service
        from memoree.jobs.embedded import EmbeddedTenancy
        from memoree.paths import discover

        service = embedded_service(discover().data_dir)
        try:
            yield EmbeddedTenancy(service)
        finally:
            await service.close()
        return
    async with _site(deployment_settings(data)) as site:
        yield site.tenancy(tenant)


async def _on_site(settings: StackSettings, work: Callable[[JobSite], Awaitable[Result]]) -> Result:
    async with _site(settings) as site:
        return await work(site)


@asynccontextmanager
async def _site(settings: StackSettings) -> AsyncIterator[JobSite]:
    """Raises `TRANSPORT_ERROR` at once for a store that is away: jobs would be patient, and somebody is waiting."""
    from memoree.assembly import job_site
    from memoree.objects import ObjectStoreError, StoreUnavailable
    from memoree.replication import layout

    async with job_site(settings) as site:
        try:
            async for _ in site.store.children(layout.TENANTS_PREFIX):
                break
        except StoreUnavailable as error:
            raise MemoreeError(
                Code.TRANSPORT_ERROR, f"the object store does not answer; `memoree status` says what runs: {error}"
            ) from error
        except ObjectStoreError:
            pass  # it answers; what it refuses, the job will tell
        yield site
