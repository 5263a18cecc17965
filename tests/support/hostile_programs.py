"""Programs that a policy might write to get out of the sandbox, stay in it for ever or fill it.

Each prints what it could observe, so that a test can tell "refused" from "did nothing".
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from rejuice.operators.sandbox.run import SandboxLimits

PRELUDE = """
import ctypes, errno, os, sys
def attempt(action, *args, **more):
    try: action(*args, **more)
    except BaseException as error: print(type(error).__name__)
    else: print("done")
def call(number, *args):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    result = libc.syscall(ctypes.c_long(number), *args)
    print(errno.errorcode[ctypes.get_errno()] if result < 0 else "done")
X86 = @X86@
"""


class Case(NamedTuple):
    """A program, how it must end, and what it must print (None: whatever it likes).

    `@CANARY@`, `@PORT@`, `@UDP@`, `@UNIX@`, `@SENTINEL@`, `@PARENT@` and `@PROJECT@` stand for
    what it may not reach.
    """

    name: str
    source: str
    stdout: str | None = ""
    status: str = "ok"


def refused(name, source, times=1):
    return Case(name, source, "PermissionError\n" * times)


def syscall(name, x86, aarch64, arguments="0, 0, 0, 0, 0"):
    return Case(f"syscall {name}", f"call({x86} if X86 else {aarch64}, {arguments})", "EPERM\n")


def endless(name, source):
    return Case(name, source, None, "timeout")


PROCESSES = [
    Case("fork bomb", "for _ in range(100): attempt(os.fork)", "PermissionError\n" * 100),
    refused("fork with a terminal", "attempt(os.forkpty)"),
    refused("posix_spawn", "attempt(os.posix_spawn, '/bin/true', ['true'], {})"),
    refused("subprocess", "import subprocess\nattempt(subprocess.run, ['/bin/true'])"),
    Case("os.system", "print(os.system('/bin/true') != 0)", "True\n"),
    Case(
        "multiprocessing",
        "import multiprocessing as m\nattempt(m.get_context('fork').Process(target=print).start)",
        "ModuleNotFoundError\n",
    ),
    refused("exec", "attempt(os.execv, '/bin/true', ['true'])"),
    refused("exec of this interpreter", "attempt(os.execv, sys.executable, ['python'])"),
    Case(
        "threads",
        "import _thread\nfor _ in range(50): attempt(_thread.start_new_thread, print, ())",
        "RuntimeError\n" * 50,
    ),
    Case(
        "machine code that forks",
        """
import mmap
if X86:
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(bytes.fromhex("b8390000000f05c3"))  # mov eax, 57; syscall; ret
    start = ctypes.addressof(ctypes.c_char.from_buffer(page))
    print(-ctypes.CFUNCTYPE(ctypes.c_long)(start)() == errno.EPERM)
else:
    print(True)
""",
        "True\n",
    ),
    Case(
        "machine code for 32-bit calls",
        """
import mmap, signal
if not X86: signal.raise_signal(signal.SIGSYS)
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes.fromhex("b802000000cd80c3"))  # mov eax, 2; int 0x80; ret
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
print("alive")
""",
        "",
        "error",
    ),
    Case(
        "calls of the x32 ABI",
        "if X86: call(0x40000000 + 57)\nelse: os.abort()\nprint('alive')",
        "",
        "error",
    ),
]
LOOPS = [
    endless("loop", "while True: pass"),
    endless(
        "loop that catches all",
        "while True:\n try:\n  while True: pass\n except BaseException: pass",
    ),
    endless("sum in C", "sum(iter(int, 1))"),
    endless("giant power", "len(str(7 ** 10 ** 8))"),
    endless("regular expression", "import re\nre.match('(a+)+$', 'a' * 60 + 'b')"),
    endless("sleep", "import time\ntime.sleep(10 ** 6)"),
    endless("pause", "import signal\nwhile True: signal.pause()"),
    endless(
        "deadlock", "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()"
    ),
    endless("select", "import select\nwhile True: select.select([], [], [])"),
    endless("stopped", "import signal\nwhile True: signal.raise_signal(signal.SIGSTOP)"),
    endless(
        "ignored signals",
        """
import signal
for number in set(range(1, 65)) - {9, 19, 32, 33}: signal.signal(number, signal.SIG_IGN)
while True: pass
""",
    ),
    endless(
        "storm of signals",
        """
import signal
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 1e-6, 1e-6)
while True: pass
""",
    ),
    endless(
        "in a destructor", "class A:\n def __del__(self):\n  while True: pass\ndel_ = A()\ndel del_"
    ),
    endless(
        "in a message", "class E(Exception):\n def __str__(self):\n  while True: pass\nraise E"
    ),
]
MEMORY = [
    Case("memory in lists", "x = []\nwhile True: x.append([0] * 1000)", "", "memory"),
    Case("memory in one list", "x = [0] * 10 ** 12", "", "memory"),
    Case("memory in a bytearray", "x = bytearray(10 ** 9)", "", "memory"),
    Case("memory in a text", "x = 'x'\nwhile True: x += x", "", "memory"),
    Case("memory in a number", "x = 1 << 10 ** 11", "", "memory"),
    Case("memory in compressed zeros", """
import zlib
packer = zlib.compressobj(1)
packed = b"".join(packer.compress(bytes(1 << 20)) for _ in range(80)) + packer.flush()
zlib.decompress(packed)
""", "", "memory"),
    Case("memory of mmap", """
import mmap
maps = []
try:
    while True: maps.append(mmap.mmap(-1, 1 << 20))
except OSError as error:
    print(len(maps) < 200, errno.errorcode[error.errno])
""", "True ENOMEM\n"),
    Case("memory of C", """
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
blocks = 0
while (block := libc.malloc(1 << 20)): blocks += 1
print(blocks < 200)
""", "True\n"),
    Case("memory that is caught and tried again", """
for _ in range(100):
    try: x = bytearray(10 ** 9)
    except MemoryError: pass
print("still small")
""", "still small\n"),
    Case("more memory is asked for", """
import resource
attempt(resource.setrlimit, resource.RLIMIT_AS, (-1, -1))
""", "ValueError\n"),
    Case("open files", """
copies = []
try:
    while True: copies.append(os.dup(0))
except OSError as error:
    print(len(copies) < 32, errno.errorcode[error.errno])
""", "True EMFILE\n"),
    Case("recursion", "import sys\nsys.setrecursionlimit(2 ** 31 - 1)\ndef f(): f()\nf()", "", "*"),
    Case("recursion in C", """
import sys
sys.setrecursionlimit(2 ** 31 - 1)
x = ()
for _ in range(600_000): x = (x,)
hash(x)
""", "", "error"),
]  # fmt: skip
FILES = [
    refused("read a file", "attempt(open, '/etc/passwd')"),
    refused("read the user's file", "attempt(open, '@CANARY@')"),
    refused("write the user's file", "attempt(open, '@CANARY@', 'w')"),
    refused("append to the user's file", "attempt(os.open, '@CANARY@', os.O_WRONLY | os.O_APPEND)"),
    refused("delete the user's file", "attempt(os.unlink, '@CANARY@')"),
    refused("rename the user's file", "attempt(os.rename, '@CANARY@', '@CANARY@.2')"),
    refused("truncate the user's file", "attempt(os.truncate, '@CANARY@', 0)"),
    refused("change modes and times", "attempt(os.chmod, '@CANARY@', 0)\nattempt(os.utime, '@CANARY@')", 2),
    refused("ask for a size", "attempt(os.stat, '@CANARY@')\nattempt(os.stat, '/root/.ssh')", 2),
    Case("ask whether a file exists", "print(os.path.exists('@CANARY@'), os.access('/', 4))", "False False\n"),
    refused("list folders", "attempt(os.listdir, '/')\nattempt(os.listdir)\nattempt(os.scandir, '@PROJECT@')", 3),
    refused("new files", "attempt(open, 'x', 'x')\nattempt(open, '/tmp/x', 'w')\nattempt(open, '/dev/shm/x', 'w')", 3),
    refused("new folders", "attempt(os.mkdir, '/tmp/x')\nattempt(os.mkfifo, '/tmp/y')", 2),
    refused("links", "attempt(os.symlink, '@CANARY@', '/tmp/x')\nattempt(os.link, '@CANARY@', '/tmp/y')", 2),
    refused("where a link leads", "attempt(os.readlink, '/proc/self/exe')"),
    refused("go elsewhere", "attempt(os.chdir, '/tmp')\nattempt(os.chroot, '/')\nattempt(os.getcwd)", 3),
    refused("own memory as a file", "attempt(open, '/proc/self/mem', 'r+b')\nattempt(open, '/proc/self/maps')", 2),
    refused("others' environment", "attempt(open, '/proc/@PARENT@/environ')\nattempt(open, f'/proc/{os.getppid()}/environ')", 2),
    refused("others' memory", "attempt(open, '/proc/@PARENT@/mem', 'r+b')\nattempt(open, f'/proc/{os.getppid()}/mem', 'r+b')", 2),
    refused("others' open files", "attempt(open, '/proc/@PARENT@/fd/0')\nattempt(os.listdir, '/proc/@PARENT@/fd')", 2),
    refused("a path only", "attempt(os.open, '@CANARY@', os.O_PATH)\nattempt(os.open, '/', os.O_PATH | os.O_DIRECTORY)", 2),
    Case("temporary files", "import tempfile\nattempt(tempfile.TemporaryFile)", "FileNotFoundError\n"),
    Case("the project", "sys.path.append('@PROJECT@')\nattempt(__import__, 'rejuice')\nattempt(__import__, 'numpy')", "ModuleNotFoundError\n" * 2),
    Case("a library from C", """
try: ctypes.CDLL('@CANARY@')
except OSError as error: print("Operation not permitted" in str(error))
""", "True\n"),
    Case("write to stdin", """
attempt(os.write, 0, b"x")
attempt(os.ftruncate, 0, 10 ** 9)
""", "PermissionError\nPermissionError\n"),
    Case("the environment", "print(dict(os.environ), ctypes.CDLL(None).getenv(b'HOME'))", "{} 0\n"),
    Case("files of the server", """
found = []
for number in range(3, 5000):
    try: os.write(number, b"x"); found.append(number)
    except OSError as error:
        if error.errno != errno.EBADF: found.append(number)
print(found)
""", "[]\n"),
    Case("handles of the server", """
import gc, socket
ends = [each for each in gc.get_objects() if isinstance(each, socket.socket)]
for each in ends: attempt(each.send, b"x")
print(ends != [], set(sys._current_frames()) != set())
""", None),
]  # fmt: skip
NETWORK = [
    refused("TCP", "import socket\nattempt(socket.create_connection, ('127.0.0.1', @PORT@))"),
    refused("TCP, IPv6", "import socket\nattempt(socket.socket, socket.AF_INET6)"),
    refused("UDP", "import socket\nattempt(socket.socket, socket.AF_INET, socket.SOCK_DGRAM)"),
    refused("Unix socket", "import socket\nattempt(socket.socket, socket.AF_UNIX)"),
    refused("pair of sockets", "import socket\nattempt(socket.socketpair)"),
    refused("netlink and raw", "import socket\nattempt(socket.socket, 16, 3, 0)\nattempt(socket.socket, 2, 3, 1)", 2),
    refused("asyncio", "import asyncio\nasync def f(): pass\nf = f()\nattempt(asyncio.run, f)"),
    Case("names of hosts", "import socket\nattempt(socket.getaddrinfo, 'example.org', 80)", "gaierror\n"),
    syscall("socket", 41, 198, "2, 1, 0"),
    syscall("connect", 42, 203),
    syscall("sendto", 44, 206),
]  # fmt: skip
OTHERS = [
    refused("kill the caller", "attempt(os.kill, @PARENT@, 9)"),
    refused("kill the server", "attempt(os.kill, os.getppid(), 9)"),
    refused("kill a process of the user", "attempt(os.kill, @SENTINEL@, 9)"),
    refused("kill all", "attempt(os.kill, -1, 9)\nattempt(os.kill, 0, 9)", 2),
    refused("kill a group", "attempt(os.killpg, os.getpgid(0) if 0 else 1, 9)"),
    refused("a handle of a process", "attempt(os.pidfd_open, @SENTINEL@)"),
    syscall("tgkill", 234, 131, "@SENTINEL@, @SENTINEL@, 9"),
    syscall("tkill", 200, 130, "@SENTINEL@, 9"),
    syscall("rt_sigqueueinfo", 129, 138, "@SENTINEL@, 9, 0"),
    syscall("ptrace", 101, 117, "16, @SENTINEL@, 0, 0"),
    syscall("process_vm_readv", 310, 270, "@PARENT@, 0, 0, 0, 0, 0"),
    syscall("process_vm_writev", 311, 271, "@PARENT@, 0, 0, 0, 0, 0"),
    syscall("kcmp", 312, 272, "@PARENT@, @PARENT@, 0, 0, 0"),
    syscall("prlimit64 of another", 302, 261, "@SENTINEL@, 0, 0, 0"),
    syscall("setpriority", 141, 140, "0, 0, -20"),
    Case("owner of a file's signals", "import fcntl\nattempt(fcntl.fcntl, 0, fcntl.F_SETOWN, @SENTINEL@)", "PermissionError\n"),
    Case("type into a terminal", "import fcntl\nattempt(fcntl.ioctl, 0, 0x5412, b'x')", "PermissionError\n"),
]  # fmt: skip
KERNEL = [
    syscall("clone", 56, 220, "0x11, 0, 0, 0, 0"),
    syscall("clone3", 435, 435),
    syscall("vfork", 58, 220, "0x4111, 0, 0, 0, 0"),
    syscall("execveat", 322, 281),
    syscall("openat2", 437, 437),
    syscall("open_by_handle_at", 304, 265),
    syscall("io_uring_setup", 425, 425, "8, ctypes.create_string_buffer(120)"),
    syscall("memfd_create", 319, 279, "b'x', 0"),
    syscall("memfd_secret", 447, 447, "0"),
    syscall("userfaultfd", 323, 282, "1"),
    syscall("bpf", 321, 280),
    syscall("perf_event_open", 298, 241),
    syscall("keyctl", 250, 219),
    syscall("add_key", 248, 217),
    syscall("mount", 165, 40),
    syscall("fsopen", 430, 430, "b'tmpfs', 0"),
    syscall("unshare", 272, 97, "0x10000000"),
    syscall("setns", 308, 268),
    syscall("pivot_root", 155, 41),
    syscall("ptrace traceme", 101, 117),
    syscall("seccomp", 317, 277, "1, 0, 0"),
    syscall("prctl", 157, 167, "38, 0, 0, 0, 0"),
    syscall("landlock_restrict_self", 446, 446),
    syscall("personality", 135, 92, "0"),
    syscall("init_module", 175, 105),
    syscall("reboot", 169, 142),
    syscall("setuid", 105, 146, "0"),
    syscall("capset", 126, 91),
    syscall("shmget", 29, 194, "0, 1 << 30, 0o1600"),
    syscall("mq_open", 240, 180),
    syscall("inotify_init1", 294, 26, "0"),
    syscall("timer_create", 222, 107),
    syscall("futex of priorities", 202, 98, "ctypes.create_string_buffer(8), 6, 0, 0, 0, 0"),
    Case("set the clock", "import time\nattempt(time.clock_settime, time.CLOCK_REALTIME, 0)", "PermissionError\n"),
    Case("a clock that stands", "import time\ntime.time = time.monotonic = lambda: 0\nprint(time.time())", "0\n"),
]  # fmt: skip
OUTPUT = [
    Case("endless stdout", "while True: print('x' * 1000)", None, "output"),
    Case("endless stderr", "while True: print('x' * 1000, file=sys.stderr)", "", "output"),
    Case("endless bytes", "while True: os.write(1, b'\\xff' * 65536)", None, "output"),
    Case("much at once", "print('x' * 10 ** 7)", None, "output"),
    Case("output without waiting", "import fcntl\nattempt(fcntl.fcntl, 1, fcntl.F_SETFL, os.O_NONBLOCK)", "PermissionError\n"),
    Case("broken UTF-8", r"os.write(1, b'a\xff\xc3\xe2\x82\xed\xa0\x80z')", "a" + "\ufffd" * 6 + "z"),
    Case("zero bytes", r"os.write(1, b'\0\0')", "\0\0"),
    Case("lone surrogates", r"print('\udcff')", "\ufffd\n"),
    Case("control characters", r"print('\x1b[2J\r\x07\u202e')", "\x1b[2J\r\x07\u202e\n"),
    Case("a long message", "raise ValueError('x' * 10 ** 6)", "", "error"),
    Case("a long traceback", "def f(n): return f(n - 1) if n else 1 / 0\nf(900)", "", "error"),
    Case("a chain of errors", """
error = None
for number in range(500):
    new = ValueError(number)
    new.__cause__, error = error, new
raise error
""", "", "error"),
]  # fmt: skip
PYTHON = [
    Case("os._exit", "print('lost')\nos._exit(0)", ""),
    Case("exit codes", "sys.exit(256 + 7)", "", "error"),
    Case("exit with a text", "sys.exit('no')", "", "error"),
    Case("abort", "os.abort()", "", "error"),
    Case("null pointer", "ctypes.string_at(0)", "", "error"),
    Case("closed files", "os.closerange(0, 10)\nprint('x')", ""),
    Case("closed streams", "sys.stdout.close()\nsys.stderr.close()", ""),
    Case("no streams", "sys.stdout = sys.stderr = None", ""),
    Case("stdin is empty", "print(repr(sys.stdin.read()))\nattempt(input)", "''\nEOFError\n"),
    Case("no builtins", "import builtins\nfor name in list(vars(builtins)): delattr(builtins, name)", None, "*"),
    Case("no modules", "sys.modules.clear()", None, "*"),
    Case("cleared dictionaries", """
import gc
for each in gc.get_objects():
    if type(each) is dict and each is not globals(): each.clear()
""", None, "*"),
    Case("back into the server", """
frame = sys._getframe()
while frame.f_back: frame = frame.f_back
for each in list(frame.f_locals.values()): attempt(getattr(each, 'run', lambda: None))
os._exit = lambda *_: None
sys.exit(3)
""", None, "*"),
    Case("trace of the runner", "sys.settrace(lambda *_: 1 / 0)\nsys.setprofile(lambda *_: 1 / 0)", None, "*"),
    Case("no recursion left", "sys.setrecursionlimit(20)\n1 / 0", "", "error"),
    Case("an error that breaks", "class E(Exception):\n def __str__(self): raise KeyboardInterrupt\nraise E", "", "error"),
    Case("an error that ends all", "class E(Exception):\n def __str__(self): os._exit(0)\nraise E", None, "*"),
    Case("null byte in the source", "x = '\0'", "", "error"),
    Case("surrogate in the source", "x = '\ud800'", "", "error"),
    Case("no Python", "this is no Python '''", "", "error"),
    Case("deep brackets", "x = " + "(" * 5000, "", "error"),
    Case("deep expression", "x = " + "-" * 100_000 + "1", None, "*"),
    Case("deep nesting", "x = " + "[" * 150 + "]" * 150 + "\nprint('deep')", "deep\n"),
    Case("nested quotes", "print(\"'''\", '\"\"\"', \"\"\"'\"''\"\"\", r'\\\\', '\\'\\\"')", "''' \"\"\" '\"'' \\\\ '\"\n"),
    Case("lines with returns", "print(1)\r\nprint(2)\rprint(3)", "1\n2\n3\n"),
]  # fmt: skip
CASES = [*PROCESSES, *LOOPS, *MEMORY, *FILES, *NETWORK, *OTHERS, *KERNEL, *OUTPUT, *PYTHON]
LIMITS = SandboxLimits(seconds=60.0, memory=64 << 20, output=4096)


class World:
    """What hostile programs may not reach, and how to tell that they did not.

    Args:
        folder: empty.
    """

    def __init__(self, folder: Path) -> None:
        self.canary = folder / "canary"
        self.canary.write_text("untouched")
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.sentinel = subprocess.Popen(
            [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
        )
        self._before = self.canary.stat(), sorted(os.listdir(folder))

    def source(self, case: Case) -> str:
        """The program of a case."""
        known = {
            "CANARY": self.canary,
            "PORT": self.listener.getsockname()[1],
            "SENTINEL": self.sentinel.pid,
            "PARENT": os.getpid(),
            "PROJECT": Path(__file__).resolve().parents[2],
            "X86": os.uname().machine == "x86_64",
        }
        source = case.source if case in PYTHON and "\0" in case.source else PRELUDE + case.source
        for name, value in known.items():
            source = source.replace(f"@{name}@", str(value))
        return source

    def run(self, sandbox, case: Case, *, patience: float = 0.2):
        """What is wrong with how a case has ended; empty: nothing."""
        seconds = patience if case.status == "timeout" else LIMITS.seconds
        found = sandbox.run(self.source(case), limits=LIMITS._replace(seconds=seconds))
        if case.status not in ("*", found.status) or case.stdout not in (None, found.stdout):
            return f"{case.name}: {found}"
        if max(len(found.stdout), len(found.stderr)) > LIMITS.output:
            return f"{case.name}: {len(found.stdout)} and {len(found.stderr)} characters"
        return ""

    def damage(self) -> str:
        """What was reached; empty: nothing."""
        with contextlib.suppress(BlockingIOError):
            return f"a connection from {self.listener.accept()[1]}"
        if self.sentinel.poll() is not None:
            return "the sentinel has ended"
        before, names = self._before
        now = self.canary.stat()
        unchanged = (now.st_mtime_ns, now.st_ctime_ns) == (before.st_mtime_ns, before.st_ctime_ns)
        if not unchanged or sorted(os.listdir(self.canary.parent)) != names:
            return "the folder of the canary is not as it was"
        return ""

    def close(self) -> None:
        """End it."""
        self.listener.close()
        self.sentinel.communicate()
