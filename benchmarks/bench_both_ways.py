"""Every text operator of Data-Juicer's by Data-Juicer and as a step of ours: are the rows equal?

Each runs in a process of its own with its default fields and with those of
tests/support/effective_fields.yaml, without a network. What is not identical is a line; then come
the counts. It ends with status 1 where an operator differs, or only ours fails.

    python benchmarks/bench_both_ways.py [operators]
"""

import os
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import both_ways
from both_ways import Outcome

LIMIT_S = 120.0
TOO_LONG = "not done in time"


def _work(connection, name, numbers, folder):
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    for number in numbers:
        connection.send(both_ways.outcome(name, number, Path(folder)))


def run(context, name, count):
    """What comes of an operator in a process of its own: of its defaults, then of `count` others."""
    here, there = context.Pipe(duplex=False)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        process = context.Process(target=_work, args=(there, name, range(-1, count), folder))
        process.start()
        there.close()
        for _ in range(-1, count):
            try:
                late = not here.poll(LIMIT_S)
                found.append(
                    Outcome(TOO_LONG, f"more than {LIMIT_S:.0f} s") if late else here.recv()
                )
            except EOFError:
                found.append(Outcome(both_ways.RAW, "the process died"))
        process.kill()
        process.join()
    return [(name, number, outcome) for number, outcome in enumerate(found, -1)]


def show(title, results):
    print(f"\n{title}: {len(results)} runs")
    for name, number, found in results:
        verdict, line = found.verdict, found.line
        idle = number >= 0 and verdict == both_ways.IDENTICAL and not found.effect
        if verdict != both_ways.IDENTICAL or idle:
            label = f"{name} {number}" if number > 0 else name
            print(f"  {label}: {verdict}{', without an effect' if idle else ''}: {line:.400}")
    counts = Counter(found.verdict for _, _, found in results)
    for verdict in (*both_ways.CLASSES, TOO_LONG):
        print(f"  {counts[verdict]:>4} {verdict}")
    return sum(counts[verdict] for verdict in both_ways.BAD)


def main(names):
    os.environ.update(both_ways.OFFLINE)
    context = get_context("forkserver")
    # Each process starts with all imports done.
    context.set_forkserver_preload(["both_ways", "torch", "data_juicer.core.data"])
    fields = both_ways.effective_fields()
    names = names or both_ways.operators()
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda name: run(context, name, len(fields.get(name, ()))), names))
    done = [each for every in done for each in every]
    bad = show("Default fields", [each for each in done if each[1] < 0])
    return bad + show("Effective fields", [each for each in done if each[1] >= 0])


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
