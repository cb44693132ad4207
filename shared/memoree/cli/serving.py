"""What the commands of `server` start: the embedded store behind HTTP or a socket, and settings for the stack."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from memoree.assembly import embedded_facts, embedded_service
from memoree.embedded import LOCAL_TENANT, EmbeddedService
from memoree.errors import Code, MemoreeError, shown
from memoree.http.app import create_app
from memoree.http.logs import log_to_stderr
from memoree.http.server import HttpServer, listen, refuse_open_door
from memoree.http.settings import HttpSettings
from memoree.http.socket import FramedServer
from memoree.limits import HTTP_REQUESTS_IN_FLIGHT_MAX, UNIX_CONNECTIONS_MAX
from memoree.paths import prepare_data_dir
from memoree.tokens.places import FILE_VARIABLE

SETTINGS_PREFIX = "MEMOREE_"
PROCESS_SETTINGS = frozenset(
    {
        "MEMOREE_ACCESS_LOG",
        "MEMOREE_API_PROCESSES",
        "MEMOREE_CORS_ORIGINS",
        "MEMOREE_GRAPH_MODE",
        "MEMOREE_LOG_LEVEL",
        "MEMOREE_METRICS",
        "MEMOREE_METRICS_ON_MAIN_PORT",
        "MEMOREE_RATE_BURST",
        "MEMOREE_RATE_PER_SECOND",
    }
)
"""What the processes of a stack read beside `StackSettings`."""


def serve_http(
    data_dir: Path,
    *,
    host: str,
    port: int,
    tokens_file: str | None,
    cors_origins: str | None = None,
    metrics_disabled: bool = False,
) -> int:
    """Until SIGTERM or SIGINT. Raises `CONFIG_ERROR`, among others for another address than loopback without tokens;
    the store is opened after that is settled."""
    log_to_stderr()
    environment = os.environ if tokens_file is None else {**os.environ, FILE_VARIABLE: tokens_file}
    if cors_origins is not None:
        environment = {**environment, "MEMOREE_CORS_ORIGINS": cors_origins}
    if metrics_disabled:
        environment = {**environment, "MEMOREE_METRICS": "false"}
    settings = HttpSettings.from_environment(environment, only_tenant=LOCAL_TENANT)
    with listen(host, port) as listener:
        refuse_open_door(listener, settings)
        authorization = settings.tokens_file is not None
        service = _open(data_dir, connections_max=HTTP_REQUESTS_IN_FLIGHT_MAX, authorization=authorization)
        try:
            HttpServer(create_app(service, settings), listener).run()
        finally:
            service.close_sync()
    return 0


def serve_socket(data_dir: Path, path: Path) -> int:
    """Until SIGTERM or SIGINT. Raises `CONFIG_ERROR`, and `TRANSPORT_ERROR` when another server owns the socket."""
    log_to_stderr()
    service = _open(data_dir, connections_max=UNIX_CONNECTIONS_MAX, authorization=False)
    try:
        asyncio.run(_serve_frames(service, path.absolute()))
    finally:
        service.close_sync()
    return 0


async def _serve_frames(service: EmbeddedService, path: Path) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with FramedServer(service, path):
        sys.stderr.write(f"LISTENING_ON {path}\n")
        sys.stderr.flush()
        await stop.wait()


def _open(data_dir: Path, *, connections_max: int, authorization: bool) -> EmbeddedService:
    prepare_data_dir(data_dir)
    facts = embedded_facts(running=True, lifecycle_owner="external")
    return embedded_service(
        data_dir, facts=replace(facts, connections_max=connections_max, authorization=authorization)
    )


def read_settings(path: Path) -> Mapping[str, str]:
    """`MEMOREE_NAME=VALUE` lines, blank lines and `#` comments. Raises `CONFIG_ERROR` for any other line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise MemoreeError(Code.CONFIG_ERROR, f"the settings file {path} cannot be read: {reason}") from error
    settings = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip().startswith(SETTINGS_PREFIX):
            raise MemoreeError(
                Code.CONFIG_ERROR, f"{path}, line {number}: {shown(line)} is not {SETTINGS_PREFIX}NAME=VALUE"
            )
        settings[name.strip()] = value.strip()
    return settings


def read_deployment(data_dir: Path) -> Mapping[str, str]:
    """The settings of the stack that runs on a directory. Raises `CONFIG_ERROR` where none does."""
    from memoree.stack.supervisor import DEPLOYMENT_NAME  # with it comes everything that a stack is

    path = data_dir / DEPLOYMENT_NAME
    if not path.exists():
        raise MemoreeError(
            Code.CONFIG_ERROR,
            f"{data_dir} is no stack's directory: it has no {DEPLOYMENT_NAME}, which `memoree up --data DIR` writes",
        )
    return read_settings(path)


def known_settings(settings: Mapping[str, str]) -> Mapping[str, str]:
    """The settings, all of them ones that some part of a deployment reads. Raises `CONFIG_ERROR`: a mistyped name
    would be a default that nobody chose."""
    from memoree.settings import StackSettings

    known = {f"{SETTINGS_PREFIX}{name.upper()}" for name in StackSettings.model_fields} | PROCESS_SETTINGS
    for name in settings:
        if name not in known:
            raise MemoreeError(Code.CONFIG_ERROR, f"no part of a stack reads the setting {shown(name)}")
    return settings
