"""The fork server: forks a confined process for each program, ends it on request, and reaps it.

It is started with an empty environment, imports the modules that programs may use, and then gives
up its privileges. It never reads a program, its input or its output: these go between the caller
and the process, in files that the server passes on. So no program finds anything of another one in
its memory.

A request is one message with five files: source, stdin, stdout, stderr, and the link of the call,
by which the process says that it is confined, and the server how it has ended. When the caller
shuts the link down, the process is killed.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import struct
from typing import NamedTuple

from . import confine, program

REQUEST = struct.Struct("=dQQ?")  # processor seconds, bytes of memory and output, show_last
ENDED = struct.Struct("=id")  # exit code, or minus the signal; seconds of processor time
READY = b"ready"  # the process is confined, and the program starts
FAILED = b"failed: "  # it is not, and this is why
_FILES = 5  # that come with a request
_LINK = 3  # descriptor of the link in the process
_HIGHEST = 1 << 16  # no file has a descriptor from here on


class _Child(NamedTuple):
    pid: int
    ended: int  # a descriptor of the process, readable once it has ended
    link: socket.socket


class ForkServer:
    """Serves requests until the process of the caller has ended or has closed its end."""

    def __init__(self, control: socket.socket, caller: int) -> None:
        # `caller` is a descriptor of that process.
        self._control, self._caller, self._pid = control, caller, os.getpid()
        self._children = dict[int, _Child]()  # by each of both descriptors
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._poll.register(caller, select.POLLIN)

    def run(self) -> None:
        """Serve; on return no child is left."""
        try:
            while self._serve([descriptor for descriptor, _ in self._poll.poll()]):
                pass
        finally:
            for child in set(self._children.values()):
                _kill(child.pid)
                os.waitpid(child.pid, 0)

    def _serve(self, ready: list[int]) -> bool:
        """Handle descriptors that have something to read; False: the caller has gone."""
        if self._caller in ready:
            return False
        for descriptor in ready:
            child = self._children.get(descriptor)
            if child and descriptor == child.ended:
                self._reap(child)
            elif child:  # the link was shut down
                self._poll.unregister(descriptor)
                _kill(child.pid)
        # Last: a new child may get descriptors that an old one had.
        return self._control.fileno() not in ready or self._accept()

    def _accept(self) -> bool:
        request, files, _, _ = socket.recv_fds(self._control, REQUEST.size, _FILES)
        if not request:
            return False
        link = socket.socket(fileno=files.pop())
        try:
            pid = os.fork()
        except OSError as error:
            _send(link.fileno(), FAILED + f"cannot fork: {error}".encode())
            link.close()
        else:
            if not pid:
                _become(files, link.fileno(), self._pid, request)
            child = _Child(pid, os.pidfd_open(pid), link)
            self._children |= {child.ended: child, link.fileno(): child}
            self._poll.register(child.ended, select.POLLIN)
            self._poll.register(link, select.POLLIN)
        for each in files:
            os.close(each)
        return True

    def _reap(self, child: _Child) -> None:
        # Until it is reaped, no other process or group can have its id.
        _kill(child.pid)
        _, status, usage = os.wait4(child.pid, 0)
        for descriptor in (child.ended, child.link.fileno()):
            del self._children[descriptor]
            with contextlib.suppress(KeyError):
                self._poll.unregister(descriptor)
        code = os.waitstatus_to_exitcode(status)
        _send(child.link.fileno(), ENDED.pack(code, usage.ru_utime + usage.ru_stime))
        child.link.close()
        os.close(child.ended)


def _kill(pid: int) -> None:
    """Kill a child that was not reaped yet, with its group."""
    os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):  # it has not made its group yet
        os.killpg(pid, signal.SIGKILL)


def _send(link: int, message: bytes) -> None:
    with contextlib.suppress(OSError):  # the caller does not wait any more
        os.write(link, message)


def _become(files: list[int], link: int, server: int, request: bytes) -> None:
    """Be the process of one program; never returns."""
    try:
        seconds, memory, output, show_last = REQUEST.unpack(request)
        os.setsid()
        confine.end_with_parent(server)
        source = program.read(files[0])
        # The server has all of 0 to 2, so these files have higher descriptors.
        for wanted, each in enumerate([*files[1:], link]):
            os.dup2(each, wanted)
        link = _LINK
        os.closerange(_LINK + 1, _HIGHEST)
        program.open_streams()
        confine.confine(seconds=seconds, memory=memory, output=output)
        os.write(link, READY)
        os.close(link)
    except BaseException as error:  # whatever it was, the program must not run
        kind = "" if isinstance(error, confine.ConfinementError) else f"{type(error).__name__}: "
        _send(link, FAILED + f"{kind}{error}".encode(errors="replace")[:1000])
        os._exit(program.FAILED)
    code = program.FAILED
    try:
        code = program.run(source, show_last=show_last)
    finally:
        os._exit(code)


def main(control: int, parent: int) -> None:
    """Run the fork server at this socket, which was inherited, until that process ends."""
    caller = os.pidfd_open(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller handles Ctrl-C
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # who prints too much is ended at once
    program.prepare()
    confine.prefer_when_memory_is_short()
    confine.drop_privileges()
    gc.collect()
    gc.freeze()  # so that a collection in a child does not touch, and copy, all of this
    with socket.socket(fileno=control) as requests:
        ForkServer(requests, caller).run()
