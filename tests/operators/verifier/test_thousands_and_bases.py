r"""Commas that group thousands and commas that separate; numerals in other bases."""

from graded_cases import check_boxed


def test_base_numerals_by_digits_and_base() -> None:
    cases = [
        ("4343_6", "999_{10}", False),
        ("4343_6", "999", False),
        ("999", "4343_6", False),
        ("4343_6", "4343_7", False),
        ("4343_6", "4343_{6}", True),
        ("4343_6", "04343_6", True),
        ("A1_{16}", "a1_{16}", True),
        (r"1011_{\text{two}}", "1011_2", True),
        (r"1011_{\text{two}}", "1011_{\text{three}}", False),
        ("999", "999_{10}", True),
        ("10", "a_{11}", False),  # a name: it has no digit
        ("x_{36}", "33", False),
    ]
    check_boxed(cases)


def test_thousands_in_brackets() -> None:
    cases = [
        ("1100", "(1,100)", False),
        ("(1,100)", "1100", False),
        ("1,100", "(1,100)", False),
        ("1100", "[1,100]", False),
        (r"\{1,100\}", "1100", False),
        ("(2,251,252)", "(2, 251, 252)", True),
        ("(2,251,252)", "(2251, 252)", False),
        ("(12, 102)", "(12,102)", True),
        (r"\{1,100\}", r"\{1, 100\}", True),
        ("(2,12) \\cup (12,102)", "(2, 12) \\cup (12, 102)", True),
        ("[2,100)", "2 \\le x < 100", True),
        ("(1,000, 2,000)", "(1000,2000)", True),
        ("1100", "1,100", True),
        ("1100", "(1100)", True),
    ]
    check_boxed(cases)
