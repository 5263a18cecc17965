"""The seccomp filter: which system calls a confined program may make.

Every call that is not listed fails with EPERM, which Python raises as PermissionError. None of
those listed takes a path, an address or another process: a program can compute, use the three
files that it was given, and wait. Threads are not allowed, either: a filter cannot count them, and
RLIMIT_NPROC counts all processes of the user. Where only some uses of a call are harmless, its
argument is checked.

The format: https://www.kernel.org/doc/html/latest/userspace-api/seccomp_filter.html
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000 | 1, 0x80000000  # 1 is EPERM
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in `struct seccomp_data`
_X32 = 0x40000000  # numbers from here on are those of another ABI of x86-64

_TCGETS = 0x5401  # what isatty asks
_OWN_FILES = (0, 1, 2, 3, 1030)  # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC
# FUTEX_WAIT, _WAKE, _WAIT_BITSET and _WAKE_BITSET, of this process or not, and by the wall clock:
# what locks need. The rest has had too many bugs.
_LOCKS = (0, 1, 9, 10, 128, 129, 137, 138, 265, 393)


class Architecture(NamedTuple):
    """System calls of a kind of processor.

    Attributes:
        audit: its number in `linux/audit.h`.
        calls: numbers of the calls that are allowed, by name.
    """

    audit: int
    calls: Mapping[str, int]


# fmt: off
X86_64 = Architecture(0xC000003E, {
    "read": 0, "write": 1, "close": 3, "fstat": 5, "poll": 7, "lseek": 8, "mmap": 9,
    "mprotect": 10, "munmap": 11, "brk": 12, "rt_sigaction": 13, "rt_sigprocmask": 14,
    "rt_sigreturn": 15, "ioctl": 16, "pread64": 17, "readv": 19, "writev": 20, "select": 23,
    "sched_yield": 24, "mremap": 25, "madvise": 28, "dup": 32, "dup2": 33, "pause": 34,
    "nanosleep": 35, "getitimer": 36, "alarm": 37, "setitimer": 38, "getpid": 39, "exit": 60,
    "fcntl": 72, "gettimeofday": 96, "getrlimit": 97, "getrusage": 98, "times": 100,
    "getuid": 102, "getgid": 104, "geteuid": 107, "getegid": 108, "getppid": 110,
    "rt_sigpending": 127, "rt_sigtimedwait": 128, "sigaltstack": 131, "gettid": 186, "time": 201,
    "futex": 202, "sched_getaffinity": 204, "restart_syscall": 219, "clock_gettime": 228,
    "clock_getres": 229, "clock_nanosleep": 230, "exit_group": 231, "tgkill": 234,
    "pselect6": 270, "ppoll": 271, "dup3": 292, "prlimit64": 302,
    "getrandom": 318,
})
AARCH64 = Architecture(0xC00000B7, {
    "dup": 23, "dup3": 24, "fcntl": 25, "ioctl": 29, "close": 57, "lseek": 62, "read": 63,
    "write": 64, "readv": 65, "writev": 66, "pread64": 67, "pselect6": 72, "ppoll": 73,
    "fstat": 80, "exit": 93, "exit_group": 94, "futex": 98,
    "nanosleep": 101, "getitimer": 102, "setitimer": 103, "clock_gettime": 113,
    "clock_getres": 114, "clock_nanosleep": 115, "sched_getaffinity": 123, "sched_yield": 124,
    "restart_syscall": 128, "tgkill": 131, "sigaltstack": 132, "rt_sigaction": 134,
    "rt_sigprocmask": 135, "rt_sigpending": 136, "rt_sigtimedwait": 137, "rt_sigreturn": 139,
    "times": 153, "getrlimit": 163, "getrusage": 165, "gettimeofday": 169, "getpid": 172,
    "getppid": 173, "getuid": 174, "geteuid": 175, "getgid": 176, "getegid": 177, "gettid": 178,
    "brk": 214, "munmap": 215, "mremap": 216, "mmap": 222, "mprotect": 226, "madvise": 233,
    "prlimit64": 261, "getrandom": 278,
})
# fmt: on
ARCHITECTURES: Mapping[str, Architecture] = {"x86_64": X86_64, "aarch64": AARCH64}
"""By the name that `os.uname` gives them."""


def build_filter(architecture: Architecture, pid: int) -> bytes:
    """The filter for the process `pid`, an array of `struct sock_filter`."""
    checked: Mapping[str, tuple[int, Sequence[int]]] = {  # argument, and its allowed values
        "ioctl": (1, (_TCGETS,)),
        "fcntl": (1, _OWN_FILES),
        "futex": (1, _LOCKS),
        "prlimit64": (0, (0,)),  # of this process
        "tgkill": (0, (pid,)),  # abort and signal.raise_signal
    }
    program = [
        _instruction(_LOAD, _ARCHITECTURE),
        _instruction(_EQUAL, architecture.audit, 1, 0),
        _instruction(_RETURN, _KILL),
        _instruction(_LOAD, _NUMBER),
    ]
    if architecture is X86_64:
        program += [_instruction(_AT_LEAST, _X32, 0, 1), _instruction(_RETURN, _KILL)]
    for name, number in architecture.calls.items():
        body = _check(*checked[name]) if name in checked else [_instruction(_RETURN, _ALLOW)]
        program += [_instruction(_EQUAL, number, 0, len(body)), *body]
    return b"".join([*program, _instruction(_RETURN, _REFUSE)])


def _check(argument: int, values: Sequence[int]) -> list[bytes]:
    # All checked arguments are of type int, so the kernel itself ignores their upper half, which
    # comes second: both processors are little-endian.
    program = [_instruction(_LOAD, _ARGUMENTS + 8 * argument)]
    for value in values:
        program += [_instruction(_EQUAL, value, 0, 1), _instruction(_RETURN, _ALLOW)]
    return [*program, _instruction(_RETURN, _REFUSE)]


def _instruction(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, operand)
