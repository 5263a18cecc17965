"""A server that has loaded the large libraries, and forks the processes of a run.

Each of the ten processes of a run on a CPU would spend five to ten seconds of processor time on
loading torch, transformers and what else verl uses. The server loads them once, while the prompts
are made. verl's driver, Ray's workers and the sampler's processes are its forks:

    rejuice train ──> fork_server.py: loads the libraries, and forks
      └──> forked_python.py ──> the driver ──> Ray ──> forked_python.py ──> a worker

It has loaded neither verl nor Ray: what these keep for a process, such as the state from which ids
are drawn, must be each process's own. It computes nothing, so that no thread of a library is at
work while it forks.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from . import forked_python
from .forked_python import MOST_FILES, SIZE, STATUS, VARIABLE

PYTHON = (sys.executable, "-IS", str(Path(forked_python.__file__).resolve()))
"""The command of a Python that is forked where a server runs."""
LIBRARIES = (
    "torch.distributed.fsdp",
    "torch._dynamo",
    "tensordict",
    "transformers.image_processing_utils",
    "transformers.modeling_layers",
    "transformers.models.auto.auto_factory",
    "transformers.models.auto.processing_auto",
    "transformers.models.auto.tokenization_auto",
    "peft",
    "accelerate",
    "datasets",
    "torchdata.stateful_dataloader",
    "pyarrow.feather",
    "pyarrow.parquet",
    "aiohttp",
    "fastapi",
    "uvicorn",
    "hydra",
    "jsonschema",
    "requests",
    "zmq",
    "tensorboard.compat.proto.event_pb2",
)
"""What takes verl long to load. Those that are not installed are left out."""
_READ_AT_LOAD = ("PYTHON", "LD_", "MALLOC_", "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "TORCH_")
"""How variables begin that were read when the server or its libraries were loaded."""
_READ_LATER = {"PYTHONBREAKPOINT"}
"""Others that begin so. Ray sets this one in its workers."""
_PR_SET_PDEATHSIG = 1


class PreloadServer:
    """The server of a run, as a context; on exit it is ended."""

    def __init__(
        self, environment: Mapping[str, str], libraries: Sequence[str] = LIBRARIES
    ) -> None:
        self._folder = tempfile.mkdtemp(prefix="rejuice-")  # Only this user can enter it.
        path = f"{self._folder}/fork"
        self.variables: Mapping[str, str] = {VARIABLE: path}
        """Environment variables by which processes find the server."""
        self._control, theirs = socket.socketpair()
        with theirs, socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(64)  # From now on, processes wait until the libraries are loaded.
            files = (theirs.fileno(), listener.fileno())
            self.process = subprocess.Popen(
                [sys.executable, "-m", __name__, *map(str, files), *libraries],
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=files,
                start_new_session=True,
            )

    def finish(self) -> None:
        """Let it end with the last process that it has forked."""
        self._control.close()

    def __enter__(self) -> PreloadServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def is_supported() -> bool:
    """Whether this system can watch the processes that the server forks."""
    return hasattr(os, "pidfd_open")


def is_given() -> bool:
    """Whether this process was started with a server that it shares, as by several trainings."""
    return VARIABLE in os.environ


class NewProcess(NamedTuple):
    words: Sequence[str]  # the arguments of Python
    environment: Mapping[str, str]  # all of its variables
    directory: str  # its working directory
    umask: int  # as of the process that requests it, as are the signals below
    ignored: Sequence[int]  # numbers of signals
    blocked: Sequence[int]  # numbers of signals
    files: Sequence[int]  # the numbers that its files are to have


class _Fork(NamedTuple):
    pid: int
    ended: int  # a descriptor of the process, readable once it has ended
    link: socket.socket


class Forker:
    """Forks a process for each request, until `control` is closed and none is left.

    `environment` is as it was before the libraries were loaded, some of which set variables.
    """

    def __init__(
        self, control: socket.socket, listener: socket.socket, environment: Mapping[str, str]
    ) -> None:
        self._at_start = environment
        self._control, self._listener, self._pid = control, listener, os.getpid()
        self._listener.setblocking(False)
        self._children = dict[int, _Fork]()  # by each of both descriptors
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._poll.register(listener, select.POLLIN)
        self._finishing = False

    def run(self) -> NewProcess | None:
        """Serve. It returns twice for each process: in the process, with what it is to be."""
        while self._children or not self._finishing:
            ready = [descriptor for descriptor, _ in self._poll.poll()]
            for descriptor in ready:
                if descriptor in self._children:
                    self._attend(descriptor)
            # Afterwards: a new child may get descriptors that an old one had.
            if self._listener.fileno() in ready:
                request = self._accept()
                if request is not None:
                    return request
            elif self._control.fileno() in ready:
                self._poll.unregister(self._control)
                self._finishing = True
        return None

    def _accept(self) -> NewProcess | None:
        try:
            link, _ = self._listener.accept()
        except OSError:
            return None
        link.setblocking(True)
        files = list[int]()
        try:
            found = _receive(link, files)
            refused = found is None or not self._suits(found, {*files, link.fileno()})
            pid = -1 if refused else os.fork()
        except (OSError, ValueError):
            pid = -1
        if pid == 0:
            assert found is not None
            self._become(found, files, link)
            return found
        for each in files:
            os.close(each)
        if pid < 0:
            link.close()
            return None
        child = _Fork(pid, os.pidfd_open(pid), link)
        self._children |= {child.ended: child, link.fileno(): child}
        self._poll.register(child.ended, select.POLLIN)
        self._poll.register(link, select.POLLIN)
        _send(link, b"+")
        return None

    def _attend(self, descriptor: int) -> None:
        """A child has ended, or its signals come, or who waits for it has gone."""
        child = self._children[descriptor]
        if descriptor == child.ended:
            _, status = os.waitpid(child.pid, 0)  # Its descriptor says that it has ended.
            for each in (child.ended, child.link.fileno()):
                del self._children[each]
                with contextlib.suppress(KeyError):
                    self._poll.unregister(each)
            _send(child.link, STATUS.pack(os.waitstatus_to_exitcode(status)))
            child.link.close()
            os.close(child.ended)
            return
        try:
            signals = child.link.recv(64)
        except OSError:
            signals = b""
        if not signals:
            self._poll.unregister(child.link)
        for number in signals or [signal.SIGKILL]:
            os.kill(child.pid, number)  # It was not waited for yet: no other has its id.

    def _suits(self, request: NewProcess, of_request: set[int]) -> bool:
        own = {0, 1, 2, self._control.fileno(), self._listener.fileno(), *self._children}
        listed = set(map(int, os.listdir("/proc/self/fd"))) - own - of_request
        # Without the one by which the folder was read.
        of_libraries = {each for each in listed if os.path.exists(f"/proc/self/fd/{each}")}
        # Variables that libraries set are also there if they were loaded where it comes from.
        now = {**request.environment, **self._by_libraries()}
        return (
            _read_at_load(now) == _read_at_load(os.environ)
            and of_libraries.isdisjoint(request.files)
            and os.path.isdir(request.directory)
        )

    def _by_libraries(self) -> dict[str, str]:
        return {k: v for k, v in os.environ.items() if self._at_start.get(k) != v}

    def _become(self, request: NewProcess, files: list[int], link: socket.socket) -> None:
        """Make this process, which is a fork, what the request says."""
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != self._pid:
            os._exit(1)
        os.setsid()
        for child in set(self._children.values()):
            os.close(child.ended)
            child.link.close()
        for each in (self._control, self._listener, link):
            each.close()
        _place(files, request.files)
        os.chdir(request.directory)
        os.umask(request.umask)
        environment = {**request.environment, **self._by_libraries()}
        os.environ.clear()
        os.environ.update(environment)
        for number in request.ignored:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, request.blocked)
        if "numpy" in sys.modules:  # Otherwise all forks would draw the same numbers.
            sys.modules["numpy"].random.seed()


def _receive(link: socket.socket, files: list[int]) -> NewProcess | None:
    """A request with its files; None: who made it has gone."""
    size, received, _, _ = socket.recv_fds(link, SIZE.size, MOST_FILES)
    files += received
    if len(size) < SIZE.size:
        return None
    left, body = SIZE.unpack(size)[0], bytearray()
    while len(body) < left:
        piece = link.recv(left - len(body))
        if not piece:
            return None
        body += piece
    return NewProcess(**json.loads(body))


def _read_at_load(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        k: v for k, v in environment.items() if k.startswith(_READ_AT_LOAD) and k not in _READ_LATER
    }


def _place(files: Sequence[int], numbers: Sequence[int]) -> None:
    import fcntl

    above = max(numbers, default=0) + 1
    moved = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, above) for each in files]
    for each in files:
        os.close(each)
    for each, number in zip(moved, numbers, strict=True):
        os.dup2(each, number)
        os.close(each)


def _send(link: socket.socket, message: bytes) -> None:
    with contextlib.suppress(OSError):  # Who waited has gone.
        link.send(message)


def run(words: Sequence[str]) -> None:
    """Do what Python does with these arguments: `-c CODE`, `-m MODULE` or a file, and more."""
    kind, rest = (words[0], words[1:]) if words[0] in {"-c", "-m"} else ("", words)
    what, arguments = rest[0], rest[1:]
    # The server was started by -m, too, so that the first folder is the working directory.
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = {"-c": "", "-m": os.getcwd()}.get(
            kind, os.path.dirname(os.path.abspath(what))
        )
    sys.argv[:] = ["-c" if kind == "-c" else what, *arguments]
    if kind == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    elif kind == "-c":
        main_module = sys.modules["__main__"] = type(sys)("__main__")
        exec(compile(what, "<string>", "exec"), vars(main_module))
    else:
        runpy.run_path(what, run_name="__main__")


def load_libraries(names: Sequence[str] = LIBRARIES) -> None:
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


def main(control: int, listener: int, libraries: Sequence[str]) -> None:
    before = dict(os.environ)
    load_libraries(libraries)
    server = Forker(socket.socket(fileno=control), socket.socket(fileno=listener), before)
    request = server.run()
    if request is not None:
        run(request.words)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
