"""`memoree up` as its users run it: a child process, its progress, its children, and how to take them down."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from e2e.client import Client
from memoree.objects.s3 import S3Settings

Json = dict[str, Any]

PROGRAM = Path(sys.executable).with_name("memoree")
SCOPES = ["recall", "ingest", "forget", "inbox", "admin"]
UNLIMITED = "1000000"
"""The rate limiter is tested elsewhere."""
START_SECONDS_MAX = 90.0
STOP_SECONDS_MAX = 5.0
"""The promise of `memoree up`, from the signal to the end of the process."""
REAP_SECONDS_MAX = 20.0
BACK_SECONDS_MAX = 40.0
"""For a child that was killed, on a busy machine."""
POLL_SECONDS = 0.02
ROLE_OF_API = "api"
ROLE_OF_WRITER = "supervised-writer"
FURTHER_SETTINGS = {
    "MEMOREE_SETTLE_AFTER_IDLE_SECONDS": "5",
    "MEMOREE_LEASE_TTL_SECONDS": "5",
    "MEMOREE_LEASE_RENEW_SECONDS": "1.5",
    "MEMOREE_VISIBILITY_SECONDS": "4",
}
"""A tenant that a test is done with lets go of its Litestream child soon, and dead writers are not waited for long."""


def until(reached: Callable[[], object], what: str, seconds: float = BACK_SECONDS_MAX) -> Any:
    """Wait for a condition with a deadline; gives what it was."""
    deadline = time.monotonic() + seconds
    while not (found := reached()):
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds:g} s"
        time.sleep(POLL_SECONDS)
    return found


def memoree(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """One run of the command line, outside any project and with no settings but these."""
    return subprocess.run(
        [PROGRAM, *arguments],
        capture_output=True,
        text=True,
        env=environment(**variables),
        cwd="/",
        timeout=START_SECONDS_MAX,
    )


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    """The message of a command that was refused as badly configured: one failure envelope, exit status 2."""
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["code"]) == (2, "CONFIG_ERROR"), done
    message: str = error["message"]
    return message


def environment(**variables: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MEMOREE_")}
    return {**inherited, **variables}


def write_tokens(path: Path, tenants: Sequence[str]) -> dict[str, str]:
    """A token for everything per tenant; tenant to token."""
    tokens = {tenant: secrets.token_urlsafe(32) for tenant in tenants}
    path.write_text(json.dumps({token: {"tenant": tenant, "scopes": SCOPES} for tenant, token in tokens.items()}))
    return tokens


@dataclass
class Deployment:
    """A stack on a data directory, and one run of it after the other."""

    data_dir: Path
    tokens: dict[str, str] = field(default_factory=dict)
    """Of the tenants, when there is a tokens file of the test's own."""
    state: Json = field(default_factory=dict)
    """The JSON line of the current run."""
    process: subprocess.Popen[bytes] | None = None

    # --- one run ------------------------------------------------------------------------------------------------

    def start(self, *options: str, settings: Mapping[str, str] = FURTHER_SETTINGS) -> Json:
        """`memoree up`; returns once it announced itself."""
        self.launch(*options, settings=settings)
        assert self.process is not None and self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"memoree up did not start:\n{self.progress()}"
        self.state = json.loads(line)
        if not self.tokens:
            self.tokens = {entry["tenant"]: token for token, entry in self.generated_tokens().items()}
        return self.state

    def launch(self, *options: str, settings: Mapping[str, str] = FURTHER_SETTINGS) -> subprocess.Popen[bytes]:
        settings_file = self.data_dir.with_name(f"{self.data_dir.name}.settings")
        settings_file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        tokens = ("--tokens", str(self._tokens_file)) if self._tokens_file.exists() else ()
        with self.progress_path.open("wb") as progress:
            self.process = subprocess.Popen(
                [
                    *(PROGRAM, "up", "--data", self.data_dir, "--rate", UNLIMITED, "--burst", UNLIMITED),
                    *("--settings", settings_file, *tokens, *options),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=progress,
                env=environment(),
                cwd="/",
                start_new_session=True,
            )
        return self.process

    def use_tokens(self, tenants: Sequence[str]) -> None:
        """From now on with a tokens file of these tenants. A running api sees the change by itself."""
        self.tokens = write_tokens(self._tokens_file, tenants)

    def replace_tokens_file(self, text: str) -> None:
        """In one step, as an operator should."""
        staged = self._tokens_file.with_suffix(".staged")
        staged.write_text(text)
        staged.replace(self._tokens_file)

    def stop(self, number: int = signal.SIGTERM) -> float:
        """Send the signal and wait for the end, which must be clean; how many seconds it took."""
        assert self.process is not None
        began = time.monotonic()
        self.process.send_signal(number)
        status = self.process.wait(REAP_SECONDS_MAX)
        seconds = time.monotonic() - began
        self._finish()
        assert status == 0, f"memoree up ended with status {status}:\n{self.progress()}"
        return seconds

    def kill(self) -> None:
        """SIGKILL the supervisor, and nothing else. Idempotent."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(REAP_SECONDS_MAX)
            self._finish()

    def _finish(self) -> None:
        assert self.process is not None
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.process = None

    # --- what can be seen of it ---------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return str(self.state["url"])

    @property
    def progress_path(self) -> Path:
        return self.data_dir.with_name(f"{self.data_dir.name}.progress")

    @property
    def _tokens_file(self) -> Path:
        return self.data_dir.with_name(f"{self.data_dir.name}.tokens.json")

    def progress(self) -> str:
        return self.progress_path.read_text(errors="replace")

    def log(self, name: str) -> str:
        return "".join(path.read_text(errors="replace") for path in sorted(self.data_dir.glob(f"{name}*.log")))

    def generated_tokens(self) -> dict[str, Json]:
        tokens: dict[str, Json] = json.loads((self.data_dir / "tokens.json").read_bytes())
        return tokens

    def deployment_variables(self) -> dict[str, str]:
        lines = (self.data_dir / "deployment.env").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def published(self) -> Json:
        state: Json = json.loads((self.data_dir / "up.json").read_bytes())
        return state

    def pids(self, role: str) -> list[int]:
        """The children of a role, as `status` knows them: each leads the process group of its program."""
        return [child["pid"] for child in self.published()["children"] if child["name"] == role and child["pid"]]

    def store_pids(self) -> list[int]:
        return [pid for pid in processes_of(self.data_dir) if "-s3.config=" in command_line(pid) and runs(pid, "weed")]

    def litestream_pids(self) -> list[int]:
        """One that replicates per tenant that the writer holds; restoring ones come and go."""
        pids = [pid for pid in processes_of(self.data_dir) if runs(pid, "litestream")]
        return [pid for pid in pids if " replicate " in command_line(pid)]

    def client(self, tenant: str | None = None, *, url: str | None = None, **members: Any) -> Client:
        """A caller with connections of its own; of the only tenant if none is named."""
        token = self.tokens[tenant] if tenant is not None else next(iter(self.tokens.values()))
        return Client(url or self.url, token, **members)

    def readiness(self) -> tuple[int, Json]:
        answer = httpx.get(f"{self.url}/readyz", timeout=10, trust_env=False)
        return answer.status_code, answer.json()

    def metrics(self) -> list[str]:
        """The exposition of every api process."""
        return [httpx.get(url, timeout=10, trust_env=False).text for url in self.state["metrics_urls"]]

    @property
    def s3(self) -> S3Settings:
        """The service's own identity, as other processes of the deployment get it."""
        variables = self.deployment_variables()
        return S3Settings(
            bucket=variables["MEMOREE_BUCKET"],
            endpoint_url=variables["MEMOREE_ENDPOINT_URL"],
            region=variables["MEMOREE_REGION"],
            access_key_id=variables["MEMOREE_ACCESS_KEY_ID"],
            secret_access_key=variables["MEMOREE_SECRET_ACCESS_KEY"],
        )

    # --- doing things to its children ---------------------------------------------------------------------------

    def kill_child(self, role: str) -> int:
        """SIGKILL one child with its process group, as a crash; its former process id."""
        pid = self.pids(role)[0]
        os.killpg(pid, signal.SIGKILL)
        return pid

    def wait_until_replaced(self, role: str, former: int) -> None:
        count = len(self.pids(role))
        until(lambda: former not in self.pids(role) and len(self.pids(role)) >= count, f"a new {role}")

    def wait_until_ready(self) -> None:
        def is_ready() -> bool:
            with contextlib.suppress(httpx.TransportError):
                return self.readiness()[0] == httpx.codes.OK
            return False

        until(is_ready, "readiness")

    @contextlib.contextmanager
    def stopped_writer(self) -> Iterator[None]:
        """SIGSTOP everything of the writer but its launcher and its Litestream children, and let it go on after."""
        (leader,) = self.pids(ROLE_OF_WRITER)
        (program,) = child_pids(leader)
        os.kill(program, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(program, signal.SIGCONT)


@contextlib.contextmanager
def deployment(data_dir: Path) -> Iterator[Deployment]:
    """A stack that is not started yet; nothing of it runs after the block."""
    stack = Deployment(data_dir)
    try:
        yield stack
    finally:
        stack.kill()
        until(lambda: not processes_of(data_dir), f"the end of {described(processes_of(data_dir))}", REAP_SECONDS_MAX)


# --- processes --------------------------------------------------------------------------------------------------


def processes_of(data_dir: Path) -> list[int]:
    """Every live process that was started for a stack on this directory: its path is in the command line or the
    environment of each."""
    return [pid for pid in _all_pids() if str(data_dir) in command_line(pid) or str(data_dir) in _environment_of(pid)]


def described(pids: Sequence[int]) -> str:
    return "; ".join(f"{pid}: {command_line(pid)[:200]}" for pid in pids) or "nothing"


def child_pids(pid: int) -> list[int]:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def runs(pid: int, program: str) -> bool:
    return Path(command_line(pid).split(" ")[0]).name == program


def command_line(pid: int) -> str:
    return _read(pid, "cmdline")


def _environment_of(pid: int) -> str:
    return _read(pid, "environ")


def _read(pid: int, name: str) -> str:
    """Empty for a process that is gone, or that is not ours."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def _all_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
