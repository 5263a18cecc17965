r"""Sets of real numbers written with operations: equal as sets, however they are composed."""

from graded_cases import check_boxed


def test_unions_of_sets_and_intervals() -> None:
    cases = [
        ("[0,2]", r"[0,1]\cup[1,2]", True),
        ("[0,2]", r"[0,1)\cup(1,2]", False),
        ("[0,2]", r"[0,1]\cup[1,3]", False),
        (r"[0,\sqrt{2}]", r"[0,1]\cup[1,\frac{2}{\sqrt{2}}]", True),
        (r"(-\infty,1)\cup(2,\infty)", r"(2,\infty) \cup (-\infty,1)", True),
        (r"\{-1\} \cup [0,7)", r"\{-1\}\cup[0,7)", True),
        (r"\{-1\} \cup [0,7)", r"\{-1\}\cup(0,7)", False),
        (r"\{-1\} \cup [0,7)", r"[0,7)", False),
        (r"(0,1]", r"(0,1)\cup\{1\}", True),
        (r"[1,2]", r"[0,2]\cap[1,3]", True),
        (r"(a,b)\cup(c,d)", r"(c,d) \cup (a,b)", True),
        (r"(a,b)\cup(c,d)", r"(a,d)", False),
        (r"x \in (0,1)\cup(2,3)", r"(0,1)\cup(2,3)", True),
    ]
    check_boxed(cases)


def test_complements() -> None:
    cases = [
        (r"(-\infty,2)\cup(2,\infty)", r"\mathbb R\setminus\{2\}", True),
        (r"(-\infty,2)\cup(2,\infty)", r"\mathbb{R}-\{2\}", True),
        (r"(-\infty,2)\cup(2,\infty)", r"x \ne 2", True),
        (r"(-\infty,2)\cup(2,\infty)", r"\mathbb R\setminus\{3\}", False),
        (r"(-\infty,2)\cup(2,\infty)", r"\mathbb R", False),
        (r"\mathbb{R}\setminus\{2,3\}", r"x \ne 2, 3", True),
        (r"\mathbb{R}\setminus\{2,3\}", r"x \ne 2, x \ne 3", True),
        (r"\mathbb{R}\setminus\{2,3\}", r"x \ne 2", False),
        (r"[0,1)\cup(1,\infty)", r"x \ge 0, x \ne 1", True),
        (r"[0,0.5)\cup(0.5,1]", r"[0,1] \setminus {0.5}", True),
        (r"\{1\}", r"{1,2} \setminus {2}", True),
        (r"\{x | x < \frac{3}{2}\} - \{-6\}", r"(-\infty, -6) \cup (-6, \dfrac{3}{2})", True),
        ("x > 1 and x < 3", "x > 1 or x < 3", False),
        ("x > 1 or x < 3", "x > 1 and x < 3", False),
    ]
    check_boxed(cases)


def test_chained_and_joined_inequalities() -> None:
    cases = [
        ("(1,2)", "1<x<2", True),
        (r"x \in (1,2)", "1<x<2", True),
        ("(1,2)", "2>x>1", True),
        ("(1,3)", "x>1 and x<3", True),
        ("(1,3)", "x>1 or x<3", False),
        (r"(-\infty,1)\cup(3,\infty)", "x<1 or x>3", True),
        ("x > a and x < b", "x < b and x > a", True),
        ("x > a and x < b", "x > b and x < a", False),
        (r"(\pi,\infty)", r"x > \pi", True),
        (r"[\pi,\infty)", r"x > \pi", False),
        (r"\{1,2\}", r"x \in \{2, 1\}", True),
        (r"x \ge 2", r"[2,\infty]", True),
        ("2x > 6", "x > 3", True),
        ("2x > 6", "6", False),
        ("(-1,1)", "|x|<1", True),
        ("|x|<1", "(-1,1)", True),
        ("|x|<1", "[-1,1]", False),
        ("|x|<1", "x<1", False),
        (r"1\leq|z|\leq \frac{3}{2}",
         r"z \in \left[-\frac{3}{2}, -1\right] \cup \left[1, \frac{3}{2}\right]", True),
        (r"1\leq|z|\leq \frac{3}{2}", r"z \in \left[1, \frac{3}{2}\right]", False),
        (r"(-\infty,-1)\cup(1,\infty)", "|x|>1", True),
        (r"x=2 \text{ or } x > 3", r"x>3 \text{ or } x=2", True),
        ("(1,2)", r"\{x \in \mathbb{R} \mid 1<x<2\}", True),
        ("(1,2)", r"\{x : x>1, x<2\}", True),
        (r"\mathbb{R}\setminus\{0\}", r"\{x\in\mathbb{R} : x \neq 0\}", True),
    ]  # fmt: skip
    check_boxed(cases)


def test_an_answer_that_is_no_set_is_wrong() -> None:
    cases = [r"\frac{x}{2}", r"x \ne a", r"\{x \in \mathbb{Z} : x \ne 0\}", "5", r"\cup", "x+1>2"]
    reference = r"(-\infty,0)\cup(0,\infty)"
    check_boxed((reference, answer, "wrong_answer") for answer in cases)


def test_what_is_no_set_beside_one_is_wrong() -> None:
    cases = [
        (r"\{x | x < \frac{3}{2}\} - \{-6\}", "x=2"),
        (r"\{x|-2<x<3\}", r"(-1,-9),(4+2 \sqrt{2}, 8)"),
        ("-12;-11;-10", r"a \ne 2"),
        (r"x \geq y", r"2\pi r"),
        (r"2\pi r", r"x \geq y"),
    ]
    check_boxed((reference, answer, "wrong_answer") for reference, answer in cases)


def test_an_interval_with_its_ends_exchanged_is_no_empty_set() -> None:
    cases = [(r"(1,0)\cup(2,3)", r"\{x : 2 < x < 3\}"), (r"(1,0)\cup(2,3)", "(2,3)")]
    check_boxed((reference, answer, "wrong_answer") for answer, reference in cases)
