"""Cases of public test suites, probes and attacks, where they lie beside the checkout."""

import json
from collections import Counter

import pytest

from rejuice.operators.verifier import verify_batch

# Source -> (cases whose verdict agrees with their label, cases); print `counts` to update it.
AGREED = {
    "MATH gold solutions": (8, 9),
    "areal": (27, 29),
    "attack:after-eos": (52, 52),
    "attack:code injection": (7, 7),
    "attack:echo": (47, 47),
    "attack:hedge": (175, 175),
    "attack:listing": (52, 52),
    "attack:look-alike": (44, 46),
    "attack:near 42": (24, 24),
    "attack:negation": (174, 174),
    "attack:not worked out (equal)": (9, 11),
    "attack:think": (57, 57),
    "attack:two in one": (164, 164),
    "attack:vacuous": (497, 497),
    "dart-math": (13, 13),
    "hardverify-math": (212, 216),
    "hendrycks": (7, 7),
    "latex2sympy2_extended forms": (14, 16),
    "lighteval": (92, 95),
    "mario-eval": (24, 24),
    "math-verify": (122, 125),
    "nemo-rl": (3, 3),
    "nemo-skills": (28, 28),
    "olympiadbench": (14, 16),
    "open-instruct": (24, 24),
    "pi-verifiers": (5, 5),
    "probe:E as a symbol": (1, 2),
    "probe:E as a symbol: wrong answers must be wrong_answer": (2, 2),
    "probe:a later final answer": (1, 1),
    "probe:base numerals": (3, 3),
    "probe:bound before the box (13 of 5000 MATH reference solutions)": (1, 1),
    "probe:capital letters": (5, 5),
    "probe:chain of equals": (11, 11),
    "probe:dress": (7, 7),
    "probe:exact then approximate": (3, 3),
    "probe:letter dropped as unit": (17, 17),
    "probe:names": (8, 11),
    "probe:references over the limits or unread": (7, 7),
    "probe:set of an interval and points": (2, 2),
    "probe:thousands in brackets": (6, 6),
    "probe:unreadable answer must be wrong_answer": (3, 3),
    "qwen2.5-math/tora grader": (9, 9),
    "real:rho-math-1b-v0.1": (3, 3),
    "real:rho-math-7b-v0.1": (1, 1),
    "rllm": (7, 7),
    "sympy latex forms": (71, 81),
    "trl/open-r1": (6, 6),
    "xverify": (2, 2),
}


@pytest.mark.slow
def test_shared_cases(shared_data):
    path = shared_data / "verifier_cases.jsonl"
    if not path.is_file():
        pytest.skip("the cases are not in the shared data")
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    cases = [each for each in lines if not each.get("undone")]  # of convention
    verdicts = verify_batch([c["prediction"] for c in cases], [c["gold"] for c in cases])
    agreed, total = Counter(), Counter()
    for case, verdict in zip(cases, verdicts, strict=True):
        total[case["source"]] += 1
        right = {"correct"} if case["expected"] else {"wrong_answer", "no_answer"}
        agreed[case["source"]] += verdict.verdict in right
    counts = {source: (agreed[source], total[source]) for source in sorted(total)}
    assert counts == AGREED
