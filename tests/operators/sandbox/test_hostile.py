"""Hostile programs: what they could observe, that nothing was reached, and that the next call works."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from hostile_programs import CASES, LIMITS, World
from hypothesis import given, settings
from hypothesis import strategies as st

from rejuice.operators.sandbox.run import Sandbox

ROOT = Path(__file__).resolve().parents[3]
CALLS = int(os.environ.get("REJUICE_HOSTILE_CALLS", "2000"))
SEVERAL = 2 if (os.cpu_count() or 1) > 1 else 1


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(workers=SEVERAL) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    world = World(tmp_path_factory.mktemp("world"))
    yield world
    world.close()


def test_there_are_many_and_each_has_a_name():
    assert len({case.name for case in CASES}) == len(CASES) >= 160


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_hostile_program_reaches_nothing(case, sandbox, world):
    server = sandbox.pid
    assert world.run(sandbox, case) == ""
    assert world.damage() == ""
    assert sandbox.run("print(6 * 7)").stdout == "42\n"
    assert server in (None, sandbox.pid), "the fork server did not survive"


@pytest.mark.slow
def test_a_program_finds_nothing_of_another(sandbox):
    """Each is a fork of the server, which has seen no program, input or output."""
    secret = "".join(map(chr, range(0x2460, 0x2480)))
    source = f"x = {secret!r}\nprint(x, input())\nraise ValueError(x)"
    assert secret in sandbox.run(source, stdin=secret).stdout
    memory = writable_memory(sandbox.pid)
    assert b"server" in memory
    for encoding in ("utf-8", "utf-16-le", "utf-32-le"):
        assert secret.encode(encoding) not in memory


def writable_memory(pid):
    """All bytes that a process may have written."""
    parts = []
    try:
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
            for line in maps:
                addresses, rights, *_ = line.split()
                if rights.startswith("rw"):
                    first, end = (int(each, 16) for each in addresses.split("-"))
                    memory.seek(first)
                    parts.append(memory.read(end - first) or b"")
    except PermissionError as error:
        pytest.skip(f"this user may not read the memory of its processes: {error}")
    return b"".join(parts)


@pytest.fixture
def folder():
    """One that every user may write to; pytest's own are for one user."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        yield folder


@pytest.mark.skipif(os.geteuid() != 0, reason="the whole suite runs as an unprivileged user")
@pytest.mark.slow
def test_hostile_programs_of_an_unprivileged_user(folder):
    for tool in ("unshare", "setpriv", "mount"):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool} on this machine")
    # The interpreter may lie where only root can look, so it is shown there to others, too.
    python = Path(sys.base_prefix)
    hidden = next((each for each in reversed(python.parents) if not each.stat().st_mode & 1), None)
    show = "" if hidden is None else (
        f"mkdir {folder}/python && mount --bind {python} {folder}/python && "
        f"mount -t tmpfs -o mode=755 tmpfs {hidden} && mkdir -p {python} && "
        f"mount --bind {folder}/python {python} &&"
    )  # fmt: skip
    user = "setpriv --reuid=65534 --regid=65534 --clear-groups"
    run = f"{show} exec {user} {sys.executable} {__file__} {folder}/world"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", run],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests/support")},
    )
    if b"unshare:" in done.stderr:
        pytest.skip(f"this machine allows no mounts: {done.stderr.decode()}")
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout) == {"user": 65534, "calls": len(CASES), "wrong": []}


def unprivileged(folder: Path, calls: int = 0) -> dict[str, object]:
    """Run all cases, and more of them up to so many calls, as the user of this process."""
    folder.mkdir()
    world, wrong = World(folder), []
    chosen = [*CASES, *random.Random(1).choices(CASES, k=max(0, calls - len(CASES)))]
    with Sandbox() as sandbox:
        for case in chosen:
            honest = sandbox.run("print(6 * 7)").stdout
            found = world.run(sandbox, case, patience=0.05) or world.damage()
            wrong += [found] if found else [] if honest == "42\n" else [f"before {case.name}"]
    world.close()
    return {"user": os.geteuid(), "calls": len(chosen), "wrong": wrong}


@pytest.mark.slow
@settings(max_examples=60)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_texts_come_back_as_they_are(sandbox, text):
    source = f"import sys\nsys.stdout.write({text!r})\nsys.stderr.write(sys.stdin.read())"
    found = sandbox.run(source, stdin=text)
    newlines = text.replace("\r\n", "\n").replace("\r", "\n")  # as Python reads a text
    assert (found.status, found.stdout, found.stderr) == ("ok", text, newlines)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.binary(max_size=2000))
def test_bytes_come_back_as_utf8_can_say_them(sandbox, data):
    found = sandbox.run(f"import os\nos.write(1, {data!r})")
    assert (found.status, found.stdout) == ("ok", data.decode("utf-8", "replace"))


@pytest.mark.slow
@settings(max_examples=60)
@given(st.text("'\"\\\n\r\0{}()[]#:=ab \ud800\u202e"))
def test_any_text_is_a_program_that_ends(sandbox, source):
    limits = LIMITS._replace(seconds=60)
    assert sandbox.run(source, limits=limits).status in ("ok", "error", "memory")


@pytest.mark.slow
@pytest.mark.alone
def test_thousands_of_hostile_programs(tmp_path, capsys):
    world, chosen = World(tmp_path), random.Random(0).choices(CASES, k=CALLS)
    with Sandbox(workers=SEVERAL) as sandbox, ThreadPoolExecutor(SEVERAL) as threads:
        sandbox.run("")
        server = psutil.Process(sandbox.pid)
        before, start, slowest = server.memory_info().rss, time.perf_counter(), []

        def run(case):
            begun = time.perf_counter()
            wrong = world.run(sandbox, case, patience=0.05)
            slowest.append((time.perf_counter() - begun, case.name))
            return wrong

        wrong = [each for each in threads.map(run, chosen) if each]
        seconds = time.perf_counter() - start
        grown = server.memory_info().rss - before
        assert wrong == []
        assert world.damage() == ""
        assert sandbox.pid == server.pid, "the fork server did not survive"
        assert server.children() == []
        assert server.num_fds() < 16
        assert grown < 8 << 20
        assert max(slowest)[0] < 60, "one of them stalled"
    assert not server.is_running()
    world.close()
    with capsys.disabled():
        print(
            f"\n{CALLS:,} hostile calls: {seconds:.0f} s, {CALLS / seconds:.0f} a second; the server "
            f"grew by {grown >> 10} KiB; the longest took {max(slowest)[0]:.1f} s ({max(slowest)[1]})"
        )


if __name__ == "__main__":
    print(json.dumps(unprivileged(Path(sys.argv[1]), *map(int, sys.argv[2:]))))
