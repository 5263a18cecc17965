"""Verifiers of answers behind one call: ours, math-verify, and verl's graders of mathematics.

    pairs ──> a worker process for each verifier, with a limit for each pair ──> outcomes

What a verifier turns into "wrong" although it failed is found as far as it can be: math-verify is asked
again with `raise_on_error`, and a grader of verl that pays nothing and prints an error has failed. Not
found is what verl's prime_math catches without a word, and math-verify's own timeouts in verl's math_verify.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rejuice.operators.verifier import verify_batch

SCORES = "verl.utils.reward_score"


class Outcome(NamedTuple):
    """What a verifier makes of a response.

    Attributes:
        paid: whether it takes the answer for right; None where it failed.
        failure: why.
        files: whether it has left files behind, which means that it ran the response as code.
    """

    paid: bool | None
    failure: str = ""
    files: bool = False


class Grader(NamedTuple):
    """A verifier that runs in a worker process.

    Attributes:
        pays: whether it pays a response, given also the reference.
        needs: what a response must have for it to find an answer.
        modules: what it imports, before the worker is forked.
    """

    pays: Callable[[str, str], bool]
    needs: str
    modules: tuple[str, ...]


def _math_verify(response: str, reference: str) -> bool:
    from math_verify import parse, verify

    whole = bool(re.search(r"(?<!\\)\$", reference))
    # Our limit alone counts: its own, of 5 s, would be taken for "wrong".
    known = parse(reference if whole else f"${reference}$", parsing_timeout=None)
    if not known:
        raise ValueError("the reference is not read")
    if verify(known, parse(response, parsing_timeout=None), timeout_seconds=None):
        return True
    found = parse(response, parsing_timeout=None, raise_on_error=True)
    return bool(verify(known, found, timeout_seconds=None, raise_on_error=True))


def _gsm8k(method: str) -> Callable[[str, str], bool]:
    def pays(response: str, reference: str) -> bool:
        from verl.utils.reward_score import gsm8k

        return bool(gsm8k.compute_score(response, reference, method=method) == 1)

    return pays


def _math_reward(response: str, reference: str) -> bool:
    from verl.utils.reward_score import math_reward

    return bool(math_reward.compute_score(response, reference) == 1)


def _math_dapo(response: str, reference: str) -> bool:
    from verl.utils.reward_score import math_dapo

    return bool(math_dapo.compute_score(response, reference)["acc"])


def _prime_math(response: str, reference: str) -> bool:
    from verl.utils.reward_score import prime_math

    return bool(prime_math.compute_score(response, reference)[0])


def _verl_math_verify(response: str, reference: str) -> bool:
    from verl.utils.reward_score import math_verify

    return bool(math_verify.compute_score(response, reference, timeout=1e6) == 1)


def _geo3k(response: str, reference: str) -> bool:
    from verl.utils.reward_score import geo3k

    return bool(geo3k.acc_reward(response, reference) == 1)


GRADERS = {
    "math-verify": Grader(_math_verify, "mathematics anywhere", ("math_verify",)),
    "gsm8k": Grader(_gsm8k("strict"), "`#### 42`", (f"{SCORES}.gsm8k",)),
    "gsm8k, flexible": Grader(_gsm8k("flexible"), "a number; the last one", (f"{SCORES}.gsm8k",)),
    "math_reward": Grader(_math_reward, r"`\boxed{}`", (f"{SCORES}.math_reward",)),
    "math_dapo": Grader(
        _math_dapo, r"`Answer:`, or `\boxed{}` near the end", (f"{SCORES}.math_dapo",)
    ),
    "prime_math": Grader(
        _prime_math,
        "any answer; of its comparisons `symbolic_equal` is always false in verl 0.9.1",
        (f"{SCORES}.prime_math", "pylatexenc"),
    ),
    "math_verify": Grader(
        _verl_math_verify, "mathematics anywhere", (f"{SCORES}.math_verify", "math_verify")
    ),
    "geo3k": Grader(_geo3k, r"`\boxed{}`", (f"{SCORES}.geo3k", "mathruler")),
}
"""math-verify by the calls of its README; the others are those of verl, by the names of their modules.
`math_batch` is `math_reward`."""


def installed(name: str) -> bool:
    """Whether what a grader imports is there."""
    return all(importlib.util.find_spec(each.split(".")[0]) for each in GRADERS[name].modules)


def ours(pairs: Sequence[tuple[str, str]], *, worked_out: bool = True) -> list[Outcome]:
    """Outcomes of our own verifier for (response, reference) pairs."""
    responses, references = [each for each, _ in pairs], [each for _, each in pairs]
    verdicts = verify_batch(responses, references, worked_out=worked_out)
    return [
        Outcome(None, each.verdict)
        if each.verdict in ("timeout", "verifier_error")
        else Outcome(bool(each))
        for each in verdicts
    ]


def graded(name: str, pairs: Sequence[tuple[str, str]], limit_s: float) -> list[Outcome]:
    """Outcomes of a verifier of `GRADERS` for (response, reference) pairs.

    Args:
        name: its key.
        pairs: what to grade.
        limit_s: seconds by the wall for each pair; a worker that takes longer is replaced.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in GRADERS[name].modules:
            importlib.import_module(module)
    outcomes, worker = list[Outcome](), _Worker(GRADERS[name].pays)
    try:
        for pair in pairs:
            outcome = worker.outcome(pair, limit_s)
            if outcome is None:
                worker.end()
                worker, outcome = _Worker(GRADERS[name].pays), Outcome(None, "timeout")
            elif outcome.failure == "died":
                worker.end()
                worker = _Worker(GRADERS[name].pays)
            outcomes.append(outcome)
    finally:
        worker.end()
    return outcomes


class _Worker:
    """A process that grades, in an empty folder and a process group of its own."""

    def __init__(self, pays: Callable[[str, str], bool]) -> None:
        context: Any = multiprocessing.get_context("fork")
        self.link, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(pays, theirs, self.link))
        self.process.start()
        theirs.close()

    def outcome(self, pair: tuple[str, str], limit_s: float) -> Outcome | None:
        """The outcome of a pair; None if it is late."""
        self.link.send(pair)
        if not self.link.poll(limit_s):
            return None
        try:
            return Outcome(*self.link.recv())
        except EOFError:
            return Outcome(None, "died")

    def end(self) -> None:
        """End it, and the processes that it has started."""
        self.link.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join()


def _serve(pays: Callable[[str, str], bool], link: Any, parents: Any) -> None:
    os.setpgid(0, 0)
    parents.close()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        # Not the mark of an editable installation, which is no folder.
        sys.path[:] = [os.path.abspath(p) if os.path.isdir(p or ".") else p for p in sys.path]
        os.chdir(folder)  # prime_math gives a part of the response to `eval`
        while True:
            try:
                pair = link.recv()
            except EOFError:
                return
            link.send(_outcome(pays, *pair))


def _outcome(pays: Callable[[str, str], bool], response: str, reference: str) -> Outcome:
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            paid = pays(response, reference)
        failure = printed.getvalue().strip() or ("error" if printed.getvalue() else "")
        outcome = Outcome(None, failure) if failure and not paid else Outcome(paid)
    except Exception as error:
        outcome = Outcome(None, type(error).__name__)
    made = list(Path.cwd().iterdir())
    for path in made:
        path.unlink()
    return outcome._replace(files=bool(made))
