"""The command in forks of a process that has imported all it needs: a run takes 0.1 s, not 2 s."""

import importlib
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import typer


class Ended(NamedTuple):
    """How a command ended.

    Attributes:
        status: its exit status, or minus the signal that killed it.
        output: what it wrote to stdout and stderr.
    """

    status: int
    output: str


class ForkedCommand:
    """Runs `rejuice` in forks of this process, each of which begins as a new process does.

    This process imports modules, and runs nothing: what an engine remembers of files that it has
    read would be in each fork.

    Args:
        arguments: `run` and a recipe, whose modules are imported here. It is run once, by a process
            of its own.
        log: where the output of the running command goes; each fork writes it anew.
    """

    def __init__(self, arguments: list[str], log: Path) -> None:
        self._log = log
        code = (
            "import sys; from rejuice.trainer.cli import main\n"
            "try: main()\n"
            "finally: print('\\nmodules', *sys.modules, file=sys.stderr)"
        )
        run = [sys.executable, "-c", code, *arguments]
        done = subprocess.run(run, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)
        modules = done.stderr.rpartition("\nmodules ")[2].split()
        for name in modules:
            with suppress(ImportError):  # The operators' file, which each run loads by itself.
                importlib.import_module(name)
        from rejuice.operators.cache_key import code_version
        from rejuice.pipelines import cli
        from rejuice.pipelines.recipe.read import load

        for step in load(Path(arguments[1])).steps:
            code_version(type(step.operator))  # It parses our own source files, for 0.4 s.
        self._command = typer.main.get_command(cli.app)

    def start(
        self,
        *arguments: str,
        environment: dict[str, str] | None = None,
        before: Callable[[], object] = lambda: None,
    ) -> int:
        """Start the command in a session of its own; gives its process.

        Args:
            arguments: of `rejuice`.
            environment: more variables.
            before: called in the new process, before the command.
        """
        process = os.fork()
        if process:
            return process
        # Whatever happens, the fork must not go on with what its parent was doing.
        status = 1
        try:
            os.setsid()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            output = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
            os.dup2(output, 1)
            os.dup2(output, 2)
            sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
            sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
            os.environ.update(environment or {})
            sys.argv = ["rejuice", *arguments]
            from rejuice.pipelines import cli

            before()
            cli.app = self._command
            cli.main()
        except SystemExit as end:
            status = int(end.code or 0)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def wait(self, process: int) -> Ended:
        """How a started command ended."""
        _, status = os.waitpid(process, 0)
        text = self._log.read_text(errors="replace")
        return Ended(os.waitstatus_to_exitcode(status), text)

    def run(
        self,
        *arguments: str,
        environment: dict[str, str] | None = None,
        before: Callable[[], object] = lambda: None,
    ) -> Ended:
        """Run the command; arguments as those of `start`."""
        return self.wait(self.start(*arguments, environment=environment, before=before))
