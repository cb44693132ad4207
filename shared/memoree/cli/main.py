"""The entry point. Every failure leaves through here: as an envelope, or as usage for a mistyped line."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from memoree.cli.invocation import Invocation
from memoree.errors import Code, MemoreeError

INTERRUPTED_STATUS = 130
PLAIN_FLAGS = {"--pretty": "pretty", "--json": "json", "--no-autostart": "no_autostart"}


def main() -> int:
    """Run the command line of this process; returns the exit status."""
    _unwind_when_terminated()
    arguments = sys.argv[1:]
    if (invocation := plain_call(arguments)) is not None:
        from memoree.cli.call import call

        # A third of a short call is the collector walking over freshly imported modules, and the interpreter
        # taking them down again.
        gc.disable()
        _leave(_uninterrupted(call, invocation))
    from memoree.cli.commands import run

    return _uninterrupted(lambda current: run(arguments, current), Invocation())


def _unwind_when_terminated() -> None:
    """SIGTERM and SIGHUP end a command as Ctrl-C does: what it staged is removed on the way out."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # `nohup` keeps its word
            signal.signal(number, _terminate)


def _terminate(number: int, _frame: object) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # once is enough, and a second one would stop the tidying
    raise SystemExit(128 + number)


def _leave(status: int) -> NoReturn:
    """End the process at once; the store is closed and the answer is flushed."""
    sys.stderr.flush()
    os._exit(status)


def _uninterrupted(run: Callable[[Invocation], int], invocation: Invocation) -> int:
    try:
        return guarded(run, invocation)
    except KeyboardInterrupt:
        return INTERRUPTED_STATUS
    except BrokenPipeError:
        # Whoever read our output has gone; the interpreter must not trip over it again when it flushes.
        _silence_stdout()
        return 1
    except OSError as error:
        # Not even the failure could be printed: a full disk behind a redirected standard output.
        sys.stderr.write(f"memoree: the outcome could not be printed: {error}\n")
        _silence_stdout()
        return 1


def _silence_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def plain_call(arguments: Sequence[str]) -> Invocation | None:
    """The invocation of a line that is `call` and global options only: machines send it often, and the parser of
    all the other commands takes longer to import than such a line to run. Anything unusual is left to the parser."""
    invocation = Invocation()
    words = iter(arguments)
    commands = []
    for word in words:
        if word in PLAIN_FLAGS:
            setattr(invocation, PLAIN_FLAGS[word], True)
        elif word == "--endpoint":
            invocation.endpoint = next(words, None)
        elif word == "--token-file":
            invocation.token_file = Path(next(words, ""))
        else:
            commands.append(word)
    complete = commands == ["call"] and arguments[-1] not in ("--endpoint", "--token-file")
    return invocation if complete else None


def guarded(run: Callable[[Invocation], int], invocation: Invocation) -> int:
    """Run a command; a failure that it did not report itself is reported under the shell's own request id."""
    try:
        return run(invocation)
    except BrokenPipeError:
        raise
    except MemoreeError as error:
        failure = error
    except OSError as error:
        failure = MemoreeError(Code.INTERNAL_ERROR, f"input or output failed: {error}")
    except Exception as error:
        import traceback

        traceback.print_exc()
        failure = MemoreeError(Code.INTERNAL_ERROR, f"the command failed: {type(error).__name__}: {error}")
    from memoree.cli.output import report_failure
    from memoree.client.request import REQUEST_ID_CLI

    return report_failure(REQUEST_ID_CLI, failure, invocation)


if __name__ == "__main__":
    sys.exit(main())
