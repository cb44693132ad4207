"""What the options say that may stand anywhere on the line, and what follows from them and the environment.

Free of `click`, so that `memoree call` can do without it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memoree.client.request import Endpoint
    from memoree.context import Resolution

ENDPOINT_VARIABLE = "MEMOREE_ENDPOINT"
NO_AUTOSTART_VARIABLE = "MEMOREE_NO_AUTOSTART"


@dataclass(slots=True)
class Invocation:
    """One run of the program."""

    endpoint: str | None = None
    token_file: Path | None = None
    pretty: bool = False
    json: bool = False
    no_autostart: bool = False

    @property
    def address(self) -> str | None:
        """The chosen endpoint; `None` means the store in the data directory."""
        return self.endpoint or os.environ.get(ENDPOINT_VARIABLE) or None

    @property
    def for_people(self) -> bool:
        """Whether readable commands print tables: on a terminal, unless JSON is asked for."""
        return not self.json and not self.pretty and sys.stdout.isatty()

    def open_endpoint(self) -> Endpoint:
        """Raises `CONFIG_ERROR` for an address or token that cannot be used."""
        from memoree.client.endpoint import find_token, select_endpoint
        from memoree.paths import discover

        return select_endpoint(
            self.address, data_dir=lambda: discover().data_dir, token=lambda: find_token(self.token_file)
        )

    def resolve_context(self) -> Resolution:
        """Raises `CONFIG_ERROR` or `NO_AMBIENT_CONTEXT`."""
        from memoree.context import resolve
        from memoree.paths import discover

        return resolve(discover().config_file)

    def ambient(self) -> Mapping[str, Any]:
        """The members a request gets that needs a context and brings none."""
        from memoree.context import wire_form

        found = self.resolve_context()
        return {"context": wire_form(found.context), "context_source": found.source}
