"""Takes away from a process, for good, all that a program of a policy does not need.

Four layers, each of which would stop most of what the others stop: limits of resources, no
privileges, Landlock (no file can be opened, no port bound or connected to, no process outside
signalled) and seccomp. All are applied by the process to itself, and none can be undone.
Only the standard library is used: the fork server imports this file without its package.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

# --- The seccomp filter: which system calls a confined program may make ---------------
# Every call that is not listed fails with EPERM, which Python raises as PermissionError. None of
# those listed takes a path, an address or another process: a program can compute, use the three
# files that it was given, and wait. Threads are not allowed, either: a filter cannot count them,
# and RLIMIT_NPROC counts all processes of the user. Where only some uses of a call are harmless,
# its argument is checked.
#
# The format: https://www.kernel.org/doc/html/latest/userspace-api/seccomp_filter.html

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
    """System calls of a kind of processor."""

    audit: int  # its number in `linux/audit.h`
    calls: Mapping[str, int]  # numbers of the calls that are allowed, by name


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


# --- All layers -----------------------------------------------------------------------

_PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 4, 22, 38
_SECCOMP_MODE_FILTER = 2
_CREATE_RULESET, _RESTRICT_SELF = 444, 446  # the same on all processors
_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION = 0x20080522
_NOBODY = 65534
_FILES = 16  # descriptors that a program may have open
# What each ABI of Landlock can deny; one that the kernel does not know must not be asked of it.
# https://docs.kernel.org/userspace-api/landlock.html
_FILE_RIGHTS = ((5, 16), (3, 15), (2, 14), (1, 13))  # from this ABI on, so many bits
_TCP_ABI, _SCOPE_ABI = 4, 6
_TCP, _SCOPES = 0b11, 0b11  # bind and connect; abstract Unix sockets and signals

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class ConfinementError(Exception):
    """A layer of the confinement cannot be applied, so the program must not run."""


def prefer_when_memory_is_short() -> None:
    """Have the kernel kill this process and its children first, before the caller."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def drop_privileges() -> None:
    """Become the user nobody, where this process may change its user, and have no capability."""
    if os.geteuid() == 0:
        # Root of a container may not have the capability for this, or no second user. Without
        # capabilities it is then as confined by the other layers as any user.
        with contextlib.suppress(OSError):
            os.setgroups([])
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    _call("dropping capabilities", _CAPSET[os.uname().machine], header, bytes(24))


def confine(*, seconds: float, memory: int, output: int) -> None:
    """Confine this process, which must have a single thread.

    A ConfinementError: a layer cannot be applied; the others may have been.
    """
    _limit(seconds, memory, output)
    _prctl("no core dumps", _PR_SET_DUMPABLE, 0)  # RLIMIT_CORE does not count for a pipe.
    _prctl("no_new_privs", _PR_SET_NO_NEW_PRIVS, 1)
    _deny_files()
    _filter_calls()


def landlock_abi() -> int:
    """The ABI of Landlock that the kernel has; 0: none, or it is switched off."""
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)))


def _limit(seconds: float, memory: int, output: int) -> None:
    with open("/proc/self/statm", encoding="ascii") as sizes:
        used = int(sizes.read().split()[0]) * resource.getpagesize()
    # The wall limit ends a program first; this one holds if nobody enforces that any more.
    processor = int(seconds) + 1
    limits = {
        resource.RLIMIT_AS: used + memory,
        resource.RLIMIT_CPU: processor,
        resource.RLIMIT_FSIZE: output + 1,  # of its two outputs, all that it can write
        resource.RLIMIT_NOFILE: _FILES,
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    for kind, value in limits.items():
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def _deny_files() -> None:
    abi = landlock_abi()
    if not abi:
        raise ConfinementError("its kernel has no Landlock, or has it switched off")
    files = (1 << next(bits for least, bits in _FILE_RIGHTS if abi >= least)) - 1
    attributes = struct.pack("=Q", files)
    if abi >= _TCP_ABI:
        attributes += struct.pack("=Q", _TCP)
    if abi >= _SCOPE_ABI:
        attributes += struct.pack("=Q", _SCOPES)
    size = ctypes.c_size_t(len(attributes))
    # All that is handled is denied: there is no rule that would allow some of it.
    rules = _call("Landlock", _CREATE_RULESET, attributes, size, 0)
    _call("Landlock", _RESTRICT_SELF, rules, 0)
    os.close(rules)


def _filter_calls() -> None:
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        raise ConfinementError(f"processors of type {machine} are not supported")
    program = build_filter(ARCHITECTURES[machine], os.getpid())
    code = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: the number of instructions, padding, their address
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    _prctl("seccomp", _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header)


def _call(what: str, *arguments: object) -> int:
    return _checked(what, _libc.syscall(*arguments))


def _prctl(what: str, option: int, value: int, pointer: bytes | None = None) -> None:
    # A variadic function: integers must have the width that the kernel reads.
    wide = ctypes.c_ulong
    _checked(what, _libc.prctl(option, wide(value), pointer, wide(0), wide(0)))


def _checked(what: str, result: int) -> int:
    if result < 0:
        raise ConfinementError(f"{what}: {os.strerror(ctypes.get_errno())}")
    return int(result)
