"""The seccomp filter, run by an interpreter: also of the processor that is not this one."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from rejuice.operators.sandbox.confine import AARCH64, X86_64, build_filter

PID = 4321
ALLOWED, REFUSED, KILLED = 0x7FFF0000, 0x00050001, 0x80000000
BOTH = pytest.mark.parametrize("architecture", [X86_64, AARCH64], ids=["x86_64", "aarch64"])
HEADERS = {
    X86_64.audit: Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    AARCH64.audit: Path("/usr/include/asm-generic/unistd.h"),
}


def verdict(architecture, number, *arguments, audit=None):
    """What the filter says of a call: a classic BPF machine with what seccomp uses of it."""
    arguments = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("=iIQ6Q", number, audit or architecture.audit, 0, *arguments)
    program = list(struct.iter_unpack("=HBBI", build_filter(architecture, PID)))
    at, loaded = 0, None
    while True:
        code, if_true, if_false, operand = program[at]
        at += 1
        if code == 0x20:
            (loaded,) = struct.unpack_from("=I", data, operand)
        elif code == 0x15:
            at += if_true if loaded == operand else if_false
        elif code == 0x35:
            at += if_true if loaded >= operand else if_false
        else:
            assert code == 0x06
            return operand


@BOTH
def test_what_is_not_listed_is_refused(architecture):
    listed = set(architecture.calls.values())
    for number in range(1000):
        found = verdict(architecture, number)
        assert found == REFUSED or (found == ALLOWED and number in listed)


@BOTH
def test_calls_without_conditions_are_allowed(architecture):
    conditional = {"ioctl", "fcntl", "prlimit64", "tgkill", "futex"}
    for name, number in architecture.calls.items():
        if name not in conditional:
            assert verdict(architecture, number, 2**64 - 1, 2**64 - 1) == ALLOWED


@BOTH
def test_conditions(architecture):
    calls = architecture.calls
    assert verdict(architecture, calls["tgkill"], PID, PID, 6) == ALLOWED
    assert verdict(architecture, calls["tgkill"], PID + 1, PID, 6) == REFUSED
    assert verdict(architecture, calls["prlimit64"], 0, 7) == ALLOWED
    assert verdict(architecture, calls["prlimit64"], PID, 7) == REFUSED
    assert verdict(architecture, calls["ioctl"], 0, 0x5401) == ALLOWED
    assert verdict(architecture, calls["ioctl"], 0, 0x5412) == REFUSED
    assert verdict(architecture, calls["fcntl"], 0, 3) == ALLOWED
    assert verdict(architecture, calls["fcntl"], 0, 8) == REFUSED
    assert verdict(architecture, calls["futex"], 0, 128) == ALLOWED
    assert verdict(architecture, calls["futex"], 0, 12) == REFUSED


@BOTH
def test_calls_of_another_architecture_end_the_process(architecture):
    other = AARCH64 if architecture is X86_64 else X86_64
    for audit in (other.audit, 0x40000003):  # i386
        assert verdict(architecture, 0, audit=audit) == KILLED
    assert verdict(X86_64, 0x40000000) == verdict(X86_64, 2**31 - 1) == KILLED
    assert verdict(X86_64, -1) == KILLED


@BOTH
def test_nothing_listed_takes_a_path_an_address_or_a_process(architecture):
    """By name, after the tables of `man 2 syscalls`."""
    names = set(architecture.calls)
    never = re.compile(
        r"open|stat$|stat64|statx|access|link|mkdir|mknod|rename|chdir|chroot|chmod|chown|utime|getcwd|"
        r"getdents|xattr|mount|fork|clone|exec|wait4|waitid|^t?kill|pidfd|queue|ptrace|process_|kcmp|sock|"
        r"connect|bind|listen|accept|send|recv|bpf|ring|userfaultfd|memfd|perf|key|shm|sem|msg|mq_|"
        r"prctl|seccomp|landlock|set.id|setns|unshare|module|reboot|personality|pipe|epoll|inotify"
    )
    assert {name for name in names if never.search(name)} == {"fstat"}


@BOTH
def test_numbers_are_those_of_the_headers_of_linux(architecture):
    header = HEADERS[architecture.audit]
    if not header.is_file():
        pytest.skip(f"no {header} on this machine")
    found = re.findall(r"#define __NR(?:3264)?_(\w+) (\d+)$", header.read_text(), re.MULTILINE)
    numbers = {name: int(number) for name, number in found}
    assert {name: numbers[name] for name in architecture.calls} == dict(architecture.calls)
