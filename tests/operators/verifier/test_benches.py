"""The arithmetic of the verifier's benches, on cases that are made up."""

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import graders
import pytest
import verifier_tables
from graders import Grader, Outcome
from verifier_tables import Case, Tally

BENCHES = Path(__file__).parents[3] / "benchmarks"
PAID, UNPAID, FAILED = Outcome(True), Outcome(False), Outcome(None, "timeout")


def run(bench, *words):
    done = subprocess.run(
        [sys.executable, BENCHES / bench, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_failure_is_neither_right_nor_wrong():
    labels = [True, True, True, False, False, False]
    found = Tally.of(labels, [PAID, UNPAID, FAILED, PAID, UNPAID, FAILED])
    assert found == Tally(6, agreed=2, false_positives=1, false_negatives=1, failed=2)
    assert found.cell() == "2 / 1 / 1 (+2)"
    assert Tally.of([True], [PAID]).cell() == "1 / 0 / 0"


def test_rates_are_of_what_was_graded_and_has_the_label():
    labels = [False] * 10 + [True] * 4 + [True, False]
    outcomes = [PAID] * 2 + [UNPAID] * 8 + [PAID] * 3 + [UNPAID] + [FAILED] * 2
    positives, negatives, failed = verifier_tables.error_rates(labels, outcomes)
    assert positives == "2 of 10: 20.00% (5.67% to 50.98%)"  # 1 less Wilson's of 8 of 10
    assert negatives.startswith("1 of 4: 25.00% (")
    assert failed == 2
    assert verifier_tables.error_rates([True], [PAID])[0] == "none"


def test_spread():
    assert verifier_tables.spread([3.0, 1.0, 2.0]) == "2.0 (1.0 to 3.0)"
    assert verifier_tables.spread([1200.4], 0) == "1,200 (1,200 to 1,200)"


CASES = [
    Case("b", "1", "1", True),
    Case("a", "1", "2", False),
    Case("b", "1", "3", False),
    Case("x forms", "2", "2", True),
    Case("probe:names", "3", "3", True),
    Case("attack:new", "42", "43", False),
    Case("attack:hedge", "42", "41 or 42", False),
]


def test_a_table_of_suites_has_a_line_for_each_source_and_a_sum_for_each_kind():
    outcomes = {"ours": [PAID, UNPAID, FAILED, UNPAID, PAID, UNPAID, UNPAID]}
    assert verifier_tables.suite_table(CASES, outcomes).split("\n") == [
        "| source | cases | ours |",
        "| --- | --- | --- |",
        "| a | 1 | 1 / 0 / 0 |",
        "| b | 2 | 1 / 0 / 0 (+1) |",
        "| **suites** | 3 | **66.7%**: 2 / 0 / 0 (+1) |",
        "| x forms | 1 | 0 / 0 / 1 |",
        "| **forms** | 1 | **0.0%**: 0 / 0 / 1 |",
        "| names | 1 | 1 / 0 / 0 |",
        "| **probes of known faults** | 1 | **100.0%**: 1 / 0 / 0 |",
    ]


def test_a_table_of_attacks_has_what_is_paid():
    outcomes = {"ours": [UNPAID] * 5 + [FAILED, UNPAID], "other": [PAID] * 7}
    table = verifier_tables.attack_table(CASES, outcomes, {"hedge": "41 or 42", "gone": ""})
    assert table.split("\n")[2:] == [
        "| hedge | 1 | 41 or 42 | 0 | 1 |",
        "| new | 1 |  | 0 (+1) | 1 |",
        "| **all** | 2 |  | **0.0%**: 0 (+1) | **100.0%**: 2 |",
    ]


def test_failures_are_named():
    outcomes = {"a": [FAILED, Outcome(None, "died"), FAILED], "b": [PAID]}
    assert list(verifier_tables.failures(outcomes)) == ["a: 3 (2 timeout, 1 died)"]


def _pays(response, reference):
    if response == "hang":
        time.sleep(600)
    if response == "die":
        os._exit(1)
    if response == "raise":
        raise KeyError(reference)
    if response == "print":
        print("Error: caught")
    if response == "write":
        Path("made").write_text("")
    return response == reference


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setitem(graders.GRADERS, "toy", Grader(_pays, "anything", ()))


@pytest.mark.slow
@pytest.mark.usefixtures("toy")
def test_a_worker_that_raises_or_dies_fails_for_its_pair_alone():
    pairs = [(each, "1") for each in ("1", "raise", "die", "print", "write", "2")]
    assert graders.graded("toy", pairs, limit_s=300) == [
        PAID,
        Outcome(None, "KeyError"),
        Outcome(None, "died"),
        Outcome(None, "Error: caught"),
        Outcome(False, files=True),
        UNPAID,
    ]
    assert not Path("made").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("toy")
def test_a_worker_that_hangs_is_late():
    assert graders.graded("toy", [("hang", "1")] * 2, limit_s=0.2) == [FAILED] * 2


@pytest.mark.slow
def test_the_suites_are_printed_as_a_section(tmp_path):
    file = tmp_path / "cases.jsonl"
    rows = [("mine", "4", r"\boxed{4}", True), ("mine", "4", r"\boxed{5}", False)]
    rows += [("attack:hedge", "4", r"\boxed{4 \text{ or } 5}", False)]
    names = ("source", "gold", "prediction", "expected")
    file.write_text("".join(json.dumps(dict(zip(names, r, strict=True))) + "\n" for r in rows))
    printed = run("bench_verifier_suites.py", file, "--graders", "math-verify")
    assert "| source | cases | ours | math-verify |" in printed
    assert "| **suites** | 2 | **100.0%**: 2 / 0 / 0 | **100.0%**: 2 / 0 / 0 |" in printed
    assert r"| hedge | 1 | `\boxed{41 \text{ or } 42}` | 0 | 0 |" in printed


@pytest.mark.slow
def test_error_rates_are_printed_as_a_section(tmp_path):
    (tmp_path / "gsm8k").mkdir()
    made = {"solution": "2 + 2 = 4\nA: 4", "is_correct": True}
    models = dict.fromkeys(verifier_tables.MODELS, made)
    models["6b_finetuning"] = {"solution": "A: 5", "is_correct": False}
    record = {"ground_truth": "So 4.\nA: 4", **models}
    (tmp_path / "gsm8k" / "model_solutions.jsonl").write_text(json.dumps(record) + "\n")
    pair = {"gold": "4", "answer": "4", "equal": True, "form": "final"}
    pairs = [{**pair, "policy": policy} for policy in (False, True)]
    lines = "".join(json.dumps(each) + "\n" for each in pairs)
    (tmp_path / "answer_pairs.jsonl").write_text(lines)
    printed = run("bench_verifier_errors.py", tmp_path)
    for name in ("ours", "math-verify"):
        line = f"| responses of four models, GSM8K | 4 | {name} | 0 of 1: 0.00% ("
        assert line in printed
    assert "| labelled pairs, a convention | 1 | ours | none | 0 of 1: 0.00% (" in printed


def test_a_bare_answer_is_delimited_for_math_verify(tmp_path):
    file = tmp_path / "pairs.jsonl"
    pair = {"gold": "x", "equal": True, "policy": False}
    answers = [("x", "final"), ("$x$", "final"), ("It is x.", "text")]
    lines = [json.dumps({**pair, "answer": text, "form": form}) for text, form in answers]
    file.write_text("\n".join(lines))
    found = [each.response for each in verifier_tables.labelled_pairs(file, delimited=True)]
    assert found == ["$x$", "$x$", "It is x."]
    assert next(verifier_tables.labelled_pairs(file)).response == "x"


def test_a_ratio_of_speed_is_that_of_each_round(monkeypatch):
    spec = importlib.util.spec_from_file_location("bench", BENCHES / "bench_verifier.py")
    bench = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec.loader.exec_module(bench)
    seconds = iter([1.0, 8.0, 2.0, 8.0, 1.0, 6.0])
    monkeypatch.setattr(bench, "turn", lambda *_: bench.Turn(next(seconds), [True, False]))
    cases = [Case("a", "1", "1", True), Case("a", "1", "1", True), Case("a", "1", "3", True)]
    assert bench.measure("rows", cases, 3) == [
        "rows",
        "2",
        "2 (1 to 2)",
        "0 (0 to 0)",
        "1 and 1",
        "6.0 (4.0 to 8.0)",
    ]
    assert bench.is_symbolic(("x + 1", "1 + x"))
    assert not bench.is_symbolic(("2", "2"))
