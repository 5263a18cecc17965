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

import ast
import contextlib
import errno
import gc
import importlib
import io
import linecache
import os
import random
import select
import signal
import site
import socket
import struct
import sys
import threading
import traceback
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from ..workers import end_with_parent
from . import confine

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
        end_with_parent(server)
        source = _read(files[0])
        # The server has all of 0 to 2, so these files have higher descriptors.
        for wanted, each in enumerate([*files[1:], link]):
            os.dup2(each, wanted)
        link = _LINK
        os.closerange(_LINK + 1, _HIGHEST)
        _open_streams()
        confine.confine(seconds=seconds, memory=memory, output=output)
        os.write(link, READY)
        os.close(link)
    except BaseException as error:  # whatever it was, the program must not run
        kind = "" if isinstance(error, confine.ConfinementError) else f"{type(error).__name__}: "
        _send(link, FAILED + f"{kind}{error}".encode(errors="replace")[:1000])
        os._exit(_EXCEPTION)
    code = _EXCEPTION
    try:
        code = _run(source, show_last=show_last)
    finally:
        os._exit(code)


# --- What runs in the process of a program --------------------------------------------
# It is done with the rights of the program, which may change all of it: nothing that confines may
# stand here.

_EXCEPTION = 1  # the exit code after an exception
_NAME = "<program>"
_FRAMES = 8  # of a traceback, the innermost ones
_LINES = 60  # of a traceback, the last ones
_LINE = 1000  # characters of a line of a traceback
_LIBRARY = os.path.join(os.path.dirname(os.__file__), "")  # the same error on every machine

# No file can be opened once a program runs, so it can import only what is here. Some of it is of no
# use inside, such as `subprocess`, but programs import more than they use.
_MODULES = """
abc argparse array ast base64 binascii bisect builtins bz2 calendar cmath cmd code codecs
collections collections.abc colorsys contextlib contextvars copy copyreg csv ctypes dataclasses
datetime decimal difflib dis doctest encodings.ascii encodings.base64_codec encodings.cp1252
encodings.hex_codec encodings.idna encodings.latin_1 encodings.punycode
encodings.raw_unicode_escape encodings.rot_13 encodings.unicode_escape encodings.utf_16
encodings.utf_16_be encodings.utf_16_le encodings.utf_32 encodings.utf_8 encodings.utf_8_sig enum
errno faulthandler fileinput fnmatch fractions functools gc getopt glob graphlib hashlib heapq hmac
html html.entities html.parser importlib importlib.util inspect io ipaddress itertools json keyword
linecache locale logging lzma marshal math mmap numbers opcode operator os os.path pathlib pdb
pickle pickletools platform pprint queue random re reprlib resource sched secrets select selectors
shlex shutil signal socket stat statistics string stringprep struct subprocess symtable sys
sysconfig tempfile textwrap threading time timeit token tokenize traceback tracemalloc types typing
unicodedata unittest unittest.mock urllib.parse uuid warnings weakref xml.etree.ElementTree zipfile
zlib zoneinfo _strptime concurrent.futures asyncio multiprocessing
"""
MODULES = tuple(_MODULES.split())
"""Modules of the standard library that programs may import."""


def _prepare() -> None:
    """Import what programs may import."""
    for name in MODULES:
        with contextlib.suppress(ImportError):  # a Python that was built without it
            importlib.import_module(name)
    site.setquit()  # `exit()` and `quit()`, which the server itself runs without
    os.environ.clear()
    sys.path.clear()
    sys.argv[:] = [_NAME]


def _read(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    with open(descriptor, "rb") as file:
        return file.read(size).decode("utf-8", "surrogatepass")


def _open_streams() -> None:
    """Make the standard streams of the files 0, 1 and 2, as Python itself does."""
    sys.stdin = _stream(0, "r", "surrogateescape")
    sys.stdout = _stream(1, "w", "surrogateescape")
    sys.stderr = _stream(2, "w", "backslashreplace")
    # Fast readers ask how long their input is, which does not change: nobody can write to it. For
    # that the C library needs a call that takes paths. Both outputs are as they are now, empty.
    known = {descriptor: os.fstat(descriptor) for descriptor in range(3)}

    def fstat(fd: int) -> os.stat_result:
        if fd not in known:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return known[fd]

    os.fstat = fstat


def _run(source: str, *, show_last: bool) -> int:
    """Run a program and return its exit code."""
    random.seed(0)  # the same program prints the same again
    _run_threads_at_once()
    lines = io.StringIO(f"{source}\n", newline=None).readlines()  # for tracebacks
    linecache.cache[_NAME] = (len(source), None, lines, _NAME)
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        for code in _compiled(source, show_last):
            value = eval(code, main.__dict__)
            if value is not None:
                print(repr(value))
        exit_code = 0
    except SystemExit as error:
        exit_code = _exit_code(error.code)
    except BaseException as error:
        _flush()
        _report(error)
        exit_code = _EXCEPTION
    _flush()
    return exit_code


def _run_threads_at_once() -> None:
    """Have a thread run when it is started, to its end: a program may have no second one.

    Programs that recurse deeply start one thread, for its larger stack (`threading.stack_size`),
    and wait for it. Workers of pools, which wait for work, are refused as before.
    """

    def start(thread: threading.Thread) -> None:
        try:
            thread.run()
        except BaseException as error:
            threading.excepthook(
                threading.ExceptHookArgs((type(error), error, error.__traceback__, thread))
            )

    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("can't start new thread")

    threads: Any = threading.Thread
    threads.start, threads.join = start, lambda thread, timeout=None: None
    threads.is_alive = lambda thread: False
    pools: Any = ThreadPoolExecutor
    pools.submit = refuse


def _stream(descriptor: int, mode: str, errors: str) -> Any:
    # Not line by line: a process that is killed loses what it has not flushed, as everywhere.
    return open(descriptor, mode, encoding="utf-8", errors=errors, closefd=False)


def _compiled(source: str, show_last: bool) -> Iterator[types.CodeType]:
    """Code objects to evaluate in turn; only the last may have a value."""
    if not show_last:
        yield compile(source, _NAME, "exec", dont_inherit=True)
        return
    tree: Any = compile(source, _NAME, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    yield compile(tree, _NAME, "exec", dont_inherit=True)
    if isinstance(last, ast.Expr):
        yield compile(ast.Expression(last.value), _NAME, "eval", dont_inherit=True)


def _exit_code(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return _EXCEPTION


def _report(error: BaseException) -> None:
    """Print the end of the traceback; if that fails, only what has happened."""
    sys.setrecursionlimit(1000)
    try:
        trace = error.__traceback__
        while trace and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        text = traceback.TracebackException(type(error), error, trace, limit=-_FRAMES)
        lines = [line for part in text.format() for line in part.splitlines()]
        short = [line[:_LINE].replace(_LIBRARY, "") for line in lines[-_LINES:]]
        sys.stderr.write("\n".join([*short, ""]))
    except BaseException:  # memory is short, or the error itself is broken
        os.write(2, b"MemoryError\n" if isinstance(error, MemoryError) else b"an exception\n")


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(Exception):  # closed, or replaced by something else
            stream.flush()  # type: ignore[union-attr]


def main(control: int, parent: int) -> None:
    """Run the fork server at this socket, which was inherited, until that process ends."""
    caller = os.pidfd_open(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller handles Ctrl-C
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # who prints too much is ended at once
    _prepare()
    confine.prefer_when_memory_is_short()
    confine.drop_privileges()
    gc.collect()
    gc.freeze()  # so that a collection in a child does not touch, and copy, all of this
    with socket.socket(fileno=control) as requests:
        ForkServer(requests, caller).run()
