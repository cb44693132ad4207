"""The `git` program, as a child that is told everything and asks nobody.

Repositories are not trusted: no configuration of the system or the user is read, no hook, pager, file system monitor,
external diff or filter runs, and names of branches and repositories cannot be taken for options.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final
from urllib.parse import unquote

from memoree.errors import Code, MemoreeError, shown

PROTOCOLS: Final = "file:git:http:https:ssh"
STOP_SECONDS_MAX = 5.0
SILENCE_SECONDS_MAX = 120
"""Of a server that is asked by http: then it is gone. Git's servers say something every few seconds."""
ERROR_CHARACTERS_MAX = 2000
_ERROR_BYTES_READ_MAX = 16 * 1024
USER_INFORMATION: Final = re.compile(r"(?<=://)[^/?#]*@")
"""Of a URL: up to the last `@` of the authority, since a password may hold another."""
_PASSED_ON: Final = (
    *("PATH", "HOME", "LANG", "TMPDIR", "SSH_AUTH_SOCK", "GIT_SSH_COMMAND", "GIT_ASKPASS", "SSH_ASKPASS"),
    *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE"),
)
"""Where a connector's own credentials come from: the agent, the ssh command or the askpass program of its user."""
_CONFIGURATION: Final = (
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.untrackedCache=false"),
    *("-c", "credential.helper="),
    *("-c", "gc.auto=0"),
    *("-c", "maintenance.auto=false"),
    *("-c", "submodule.recurse=false"),
)


def environment() -> Mapping[str, str]:
    return {
        **{name: value for name in _PASSED_ON if (value := os.environ.get(name))},
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": PROTOCOLS,
        "LC_ALL": "C",
    }


@dataclass(frozen=True, slots=True)
class Git:
    """The program on one repository. Raises `CONFIG_ERROR` when the program is missing or fails."""

    git_dir: Path

    def text(self, *arguments: str) -> str:
        """What a command prints, which is little."""
        done = self._run(arguments)
        if done.returncode != 0:
            raise failed(arguments, done.stderr)
        return os.fsdecode(done.stdout).strip()

    def says(self, *arguments: str) -> bool:
        """Whether a command that is a question ends with status 0."""
        return self._run(arguments).returncode == 0

    def _run(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
        with _program_present():
            return subprocess.run(
                self._line(arguments), stdin=subprocess.DEVNULL, capture_output=True, env=environment(), check=False
            )

    @contextmanager
    def reading(self, *arguments: str) -> Iterator[IO[bytes]]:
        """The output of a command that may print much, also of what is wrong. It is ended when the reader leaves."""
        with TemporaryFile() as said, _program_present():
            child = subprocess.Popen(
                self._line(arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=said,
                env=environment(),
            )
            assert child.stdout is not None
            with child.stdout:
                try:
                    yield child.stdout
                    if child.wait() != 0:
                        raise failed(arguments, _end_of(said))
                finally:
                    _end(child)

    @contextmanager
    def conversing(self, *arguments: str) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
        """A command that answers on its output what it is asked on its input."""
        with _program_present():
            child = subprocess.Popen(
                self._line(arguments),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment(),
            )
        assert child.stdin is not None and child.stdout is not None
        try:
            yield child.stdin, child.stdout
        finally:
            _end(child)
            child.stdout.close()
            with suppress(BrokenPipeError):
                child.stdin.close()

    def _line(self, arguments: Sequence[str]) -> list[str]:
        silence = ("-c", "http.lowSpeedLimit=1", "-c", f"http.lowSpeedTime={SILENCE_SECONDS_MAX}")
        return ["git", "--no-pager", *_CONFIGURATION, *silence, f"--git-dir={self.git_dir}", *arguments]


def failed(arguments: Sequence[str], stderr: bytes) -> MemoreeError:
    """Without what stands before the `@` of a URL, which git tells of some protocols."""
    said = stderr.decode(errors="replace")
    for told in filter(None, map(USER_INFORMATION.search, arguments)):
        said = said.replace(told[0], "").replace(unquote(told[0]), "")
    said = said[-ERROR_CHARACTERS_MAX:].strip()
    return MemoreeError(Code.CONFIG_ERROR, f"git {arguments[0]} failed: {said or 'it said nothing'}")


def git_dir_of(path: Path) -> Path:
    """The repository at a local path, bare or with a working tree. Raises `CONFIG_ERROR` where none is."""
    for candidate in (path / ".git", path):
        if candidate.is_file():  # of a linked working tree
            named = candidate.read_text(errors="replace").removeprefix("gitdir:").strip()
            candidate = path / named
        if (candidate / "HEAD").is_file():
            return candidate.resolve()
    raise MemoreeError(Code.CONFIG_ERROR, f"{shown(str(path))} is no git repository")


def _end_of(said: IO[bytes]) -> bytes:
    said.seek(max(0, said.seek(0, os.SEEK_END) - _ERROR_BYTES_READ_MAX))
    return said.read()


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.kill()
        child.wait(STOP_SECONDS_MAX)


@contextmanager
def _program_present() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise MemoreeError(Code.CONFIG_ERROR, "the program git is not installed") from error
