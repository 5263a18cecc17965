"""The verifier for audits: nothing of ours in it, and no sign of it in ours."""

import ast
from pathlib import Path

import pytest

from rejuice.operators import verifier
from rejuice.operators.verifier import independent, worker
from rejuice.operators.verifier.pool import Pool


@pytest.fixture(scope="module")
def pool():
    pool = Pool(1)
    yield pool
    pool.close()


def test_it_imports_nothing_of_this_package():
    source = (Path(verifier.__file__).parent / "independent.py").read_text("utf-8")
    nodes = list(ast.walk(ast.parse(source)))
    assert not [node for node in nodes if isinstance(node, ast.Import)]
    froms = [(node.module, node.level) for node in nodes if isinstance(node, ast.ImportFrom)]
    assert sorted(froms) == [("__future__", 0), ("math_verify", 0)]


@pytest.mark.parametrize(
    ("response", "reference", "same"),
    [
        (r"I think of 41, but it is $\boxed{42}$.", "42", True),
        (r"I think of 42, but it is $\boxed{41}$.", "42", False),
        ("She has 40 + 2 = 42 apples", "42", True),
        (r"The answer is $\frac{\sqrt{8}}{2}$.", r"\sqrt{2}", True),
        ("I do not know.", "42", False),
        ("", "42", False),
    ],
)
def test_it_finds_the_answer_itself(response, reference, same):
    assert independent.same_by_math_verify(response, reference) is same


def test_a_reference_without_mathematics_is_an_error():
    with pytest.raises(ValueError, match=r"^the reference is not mathematics$"):
        independent.same_by_math_verify("42", "")


@pytest.mark.parametrize("name", ["parse", "verify"])
def test_what_math_verify_raises_is_no_verdict(name, monkeypatch):
    """It would say False, as of a wrong answer."""

    def fails(*args, raise_on_error=False, **options):
        if raise_on_error:
            raise RecursionError
        return []

    monkeypatch.setattr(independent, name, fails)
    with pytest.raises(RecursionError):
        independent.same_by_math_verify("42", "42")


@pytest.mark.slow
def test_each_rule_has_its_own_opinion_in_one_worker(pool):
    pair = ("1/2^{99}", "1/2^{98}")
    ours, theirs = ([pair], [(f"${pair[0]}$", pair[1])])
    for _ in range(2):
        slugs = [
            pool.run(pairs, timeout=30, workers=1, **rule)[0].slug
            for pairs, rule in ((ours, {}), (theirs, {"rule": "math_verify"}))
        ]
        assert slugs == ["wrong_answer", "correct"]


def test_without_a_rule_the_symbolic_tier_compares(monkeypatch):
    monkeypatch.setattr(independent, "same_by_math_verify", None)
    assert worker._same(r"\sqrt{8}", r"2\sqrt{2}") is True
