"""The command in forks of a process that has imported all it needs: a run takes 0.1 s, not 2 s."""

import importlib
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import NamedTuple

import typer

_LONGEST_S = 300


class Ended(NamedTuple):
    """How a command ended.

    Attributes:
        status: its exit status, or minus the signal that killed it.
        output: what it wrote to stdout and stderr.
    """

    status: int
    output: str


class _Start(NamedTuple):
    """A command that is to be started; see `ForkedCommand.start`."""

    arguments: tuple[str, ...]
    environment: dict[str, str]
    before: Callable[[], object]


class ForkedCommand:
    """Runs `rejuice` in forks of a server, each of which begins as a new process does.

    The server is a process of its own, in which no thread runs: a fork of the tests' process would
    wait for ever for a lock that a thread of Ray or gRPC had at that moment. It imports modules, and
    runs nothing: what an engine remembers of files that it has read would be in each fork.

    Args:
        arguments: `run` and a recipe, whose modules the server imports. It is run once, by a process
            of its own.
        log: where the output of the running command goes; each fork writes it anew.
    """

    def __init__(self, arguments: list[str], log: Path) -> None:
        self._log = log
        code = (
            "import sys; from rejuice.pipelines.cli.main import main\n"
            "try: main()\n"
            "finally: print('\\nmodules', *sys.modules, file=sys.stderr)"
        )
        run = [sys.executable, "-c", code, *arguments]
        done = subprocess.run(run, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)
        modules = done.stderr.rpartition("\nmodules ")[2].split()
        self._server, theirs = Pipe()
        file = theirs.fileno()
        code = (
            f"import sys; sys.path = {sys.path!r}; from forked_command import serve; serve({file})"
        )
        # It ends with this process, whose end of the pipe is the only one.
        self._process = subprocess.Popen([sys.executable, "-c", code], pass_fds=[file])
        theirs.close()
        self._server.send((modules, Path(arguments[1]), log))

    def start(
        self,
        *arguments: str,
        environment: dict[str, str] | None = None,
        before: Callable[[], object] = bool,
    ) -> int:
        """Start the command in a session of its own; gives its process.

        Args:
            arguments: of `rejuice`.
            environment: more variables.
            before: called in the new process, before the command; it can be pickled.
        """
        self._server.send(_Start(arguments, environment or {}, before))
        process: int = self._server.recv()
        return process

    def wait(self, process: int) -> Ended:
        """How a started command ended."""
        self._server.send(process)
        status: int = self._server.recv()
        return Ended(status, self._log.read_text(errors="replace"))

    def run(
        self,
        *arguments: str,
        environment: dict[str, str] | None = None,
        before: Callable[[], object] = bool,
    ) -> Ended:
        """Run the command; arguments as those of `start`."""
        return self.wait(self.start(*arguments, environment=environment, before=before))


def serve(file: int) -> None:
    """Start commands, and wait for them, until the tests have ended.

    Args:
        file: the number of an open file, the server's end of the pipe.
    """
    tests = Connection(file)
    modules, recipe, log = tests.recv()
    for name in modules:
        with suppress(ImportError):  # The operators' file, which each run loads by itself.
            importlib.import_module(name)
    from rejuice.pipelines.cli import main
    from rejuice.pipelines.recipe.recipe import load

    load(recipe)
    command = typer.main.get_command(main.app)
    with suppress(EOFError):
        while True:
            asked: _Start | int = tests.recv()
            if isinstance(asked, _Start):
                process = os.fork()
                if not process:
                    _run(command, asked, log)
                tests.send(process)
            else:
                tests.send(os.waitstatus_to_exitcode(os.waitpid(asked, 0)[1]))


def _run(command: object, start: _Start, log: Path) -> None:
    """Run a command in this process, a fork, and end it."""
    signal.alarm(_LONGEST_S)  # One that waits for ever is ended by it.
    # Whatever happens, the fork must not go on with what its parent was doing.
    status = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
        os.environ.update(start.environment)
        sys.argv = ["rejuice", *start.arguments]
        from rejuice.pipelines.cli import main

        start.before()
        main._chosen = lambda _: command
        main.main()
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
