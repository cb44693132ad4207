"""What an operator may choose about the HTTP door. The bounds that are no choice stand beside the code they bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from memoree.embedded import LOCAL_TENANT
from memoree.errors import Code, MemoreeError, shown
from memoree.tokens.places import VARIABLES, TokensPlace, named_place

RATE_PER_SECOND_DEFAULT = 60.0
RATE_BURST_DEFAULT = 120
ENVIRONMENT_PREFIX = "MEMOREE_"
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """`tokens_file` is where that file is; None means no authentication at all: loopback only, every request is the
    tenant `local`.

    `only_tenant` refuses tokens of any other tenant (the embedded profile has one). `processes` is how many api
    processes share the limiter's rate. `cors_origins` counts only with a tokens file; `*` allows every origin.
    `graph_mode` is of MemoryProtocol's recall.
    """

    tokens_file: TokensPlace | None = None
    only_tenant: str | None = None
    cors_origins: tuple[str, ...] = ("*",)
    rate_per_second: float = RATE_PER_SECOND_DEFAULT
    rate_burst: int = RATE_BURST_DEFAULT
    processes: int = 1
    metrics: bool = True
    metrics_on_main_port: bool = False
    access_log: bool = False
    graph_mode: bool = True
    tenant_without_tokens: str = LOCAL_TENANT

    def __post_init__(self) -> None:
        """A path configured as empty is a mistake, never "no authentication". Raises `CONFIG_ERROR`."""
        if self.tokens_file is not None and self.tokens_file == Path():
            _refuse("the tokens file is configured, but its path is empty")
        if self.processes < 1:
            _refuse(f"there must be at least one api process, not {self.processes}")

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str], *, only_tenant: str | None = None, tokens_required: bool = False
    ) -> HttpSettings:
        """From what says where the tokens are (`named_place`), and from `MEMOREE_CORS_ORIGINS`, `_RATE_PER_SECOND`,
        `_RATE_BURST`, `_API_PROCESSES`, `_METRICS`, `_METRICS_ON_MAIN_PORT`, `_ACCESS_LOG` and `_GRAPH_MODE`. Raises
        `CONFIG_ERROR` for a value of the wrong kind, and without tokens where `tokens_required` (a deployment whose
        server may listen on any address)."""

        def value(name: str) -> str | None:
            return environment.get(ENVIRONMENT_PREFIX + name)

        tokens_file = named_place(environment)
        if tokens_file is None and tokens_required:
            _refuse(f"none of {', '.join(VARIABLES)} is set; this deployment needs one")
        return cls(
            tokens_file=tokens_file,
            only_tenant=only_tenant,
            cors_origins=parse_origins(value("CORS_ORIGINS") or "*"),
            rate_per_second=_number("RATE_PER_SECOND", value("RATE_PER_SECOND"), RATE_PER_SECOND_DEFAULT),
            rate_burst=int(_number("RATE_BURST", value("RATE_BURST"), RATE_BURST_DEFAULT)),
            processes=int(_number("API_PROCESSES", value("API_PROCESSES"), 1)),
            metrics=_flag("METRICS", value("METRICS") or "true"),
            metrics_on_main_port=_flag("METRICS_ON_MAIN_PORT", value("METRICS_ON_MAIN_PORT")),
            access_log=_flag("ACCESS_LOG", value("ACCESS_LOG")),
            graph_mode=_flag("GRAPH_MODE", value("GRAPH_MODE") or "true"),
        )


def parse_origins(text: str) -> tuple[str, ...]:
    """A comma-separated list of `scheme://host[:port]`, or `*`; entries that are neither are dropped."""
    entries = (entry.strip().rstrip("/") for entry in text.split(","))
    return tuple(entry for entry in entries if entry == "*" or _is_origin(entry))


def _is_origin(text: str) -> bool:
    scheme, separator, authority = text.partition("://")
    return bool(separator and scheme.isalpha() and authority) and not set(authority) & set("/?#@ ")


def _number(name: str, text: str | None, default: float) -> float:
    if text is None:
        return default
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        _refuse(f"{ENVIRONMENT_PREFIX}{name} must be a number above 0, not {shown(text)}")
    return number


def _flag(name: str, text: str | None) -> bool:
    lowered = (text or "0").strip().lower()
    if lowered not in _TRUE | _FALSE:
        _refuse(f"{ENVIRONMENT_PREFIX}{name} must be true or false, not {shown(text)}")
    return lowered in _TRUE


def _refuse(message: str) -> None:
    raise MemoreeError(Code.CONFIG_ERROR, message)
