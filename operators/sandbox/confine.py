"""Takes away from a process, for good, all that a program of a policy does not need.

Four layers, each of which would stop most of what the others stop: limits of resources, no
privileges, Landlock (no file can be opened, no port bound or connected to, no process outside
signalled) and seccomp (`bpf.py`). All are applied by the process to itself, and none can be undone.
Only the standard library is used: the fork server imports this file without its package.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import struct

from . import bpf

_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38
_SECCOMP_MODE_FILTER = 2
_SIGKILL = 9
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


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the process that forked it ends.

    Args:
        parent: id of that process; this one exits if it has ended already.
    """
    _prctl("to end with its parent", _PR_SET_PDEATHSIG, _SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


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


def confine(*, seconds: float, memory: int) -> None:
    """Confine this process, which must have a single thread.

    Args:
        seconds: of processor time, rounded up.
        memory: bytes of address space that it may have more than now.

    Raises:
        ConfinementError: a layer cannot be applied; the others may have been.
    """
    _limit(seconds, memory)
    _prctl("no_new_privs", _PR_SET_NO_NEW_PRIVS, 1)
    _deny_files()
    _filter_calls()


def landlock_abi() -> int:
    """The ABI of Landlock that the kernel has; 0: none, or it is switched off."""
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)))


def _limit(seconds: float, memory: int) -> None:
    with open("/proc/self/statm", encoding="ascii") as sizes:
        used = int(sizes.read().split()[0]) * resource.getpagesize()
    # The wall limit ends a program first; this one holds if nobody enforces that any more.
    processor = int(seconds) + 1
    limits = {
        resource.RLIMIT_AS: used + memory,
        resource.RLIMIT_CPU: processor,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NOFILE: _FILES,
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_CORE: 0,
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
    if machine not in bpf.ARCHITECTURES:
        raise ConfinementError(f"processors of type {machine} are not supported")
    program = bpf.build_filter(bpf.ARCHITECTURES[machine], os.getpid())
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
