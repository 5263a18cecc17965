"""`python -IS forked_python.py ARGUMENTS` does what `python ARGUMENTS` does, and starts at once.

It has the fork server (fork_server.py) fork a process that has loaded the large libraries, passes
its arguments, environment, files and signals on to it, and ends as that ends. Where there is no
fork server, or the process has to differ from it, Python itself takes the place of this process.

Ray starts its workers by this file. It needs nothing but the standard library.
"""

import contextlib
import json
import os
import resource
import signal
import socket
import struct
import sys

VARIABLE = "REJUICE_FORK_SERVER"
SIZE = struct.Struct("=I")  # bytes of a request, which precede it
STATUS = struct.Struct("=i")  # exit code, or minus the signal
MOST_FILES = 250  # that one message can carry
_SIGNALS = (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip


def main() -> None:
    words = sys.argv[1:]
    status = _forked(words)
    if status is None:
        os.execv(sys.executable, [sys.executable, *words])
    if status < 0:  # To whoever waits for this process, it ends by the same signal.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def _forked(words: list[str]) -> int | None:
    """How the forked process has ended; None: there is none."""
    path = os.environ.get(VARIABLE)
    # Options of the interpreter itself are beyond what a fork can do.
    if not path or not words or (words[0].startswith("-") and words[0] not in {"-c", "-m"}):
        return None
    files = _open_files()
    link = socket.socket(socket.AF_UNIX)
    try:
        link.connect(path)
    except OSError:
        link.close()
        return None
    ignored = [int(each) for each in _SIGNALS if signal.getsignal(each) is signal.SIG_IGN]
    request = {
        "words": words,
        "environment": dict(os.environ),
        "directory": os.getcwd(),
        "umask": _umask(),
        "ignored": ignored,
        "blocked": [int(each) for each in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
        "files": files,
    }
    return _wait(link, json.dumps(request).encode(), files, ignored)


def _wait(link: socket.socket, request: bytes, files: list[int], ignored: list[int]) -> int | None:
    def forward(number: int, _: object) -> None:
        with contextlib.suppress(OSError):
            link.send(bytes([number]))

    with link:
        try:
            socket.send_fds(link, [SIZE.pack(len(request))], files)
            link.sendall(request)
            accepted = link.recv(1)
        except OSError:
            return None
        if not accepted:
            return None
        for number in _SIGNALS:
            if number not in ignored:
                signal.signal(number, forward)
        try:
            answer = link.recv(STATUS.size)
        except OSError:
            answer = b""
    # Without an answer, the server was killed, and the process with it.
    return STATUS.unpack(answer)[0] if len(answer) == STATUS.size else -signal.SIGKILL


def _open_files() -> list[int]:
    files = []
    for each in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # The one by which the folder was read.
            os.fstat(each)
            files.append(each)
    return files[:MOST_FILES]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


if __name__ == "__main__":
    main()
