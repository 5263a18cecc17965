r"""A value and its rounding, joined by `\approx`."""

from graded_cases import check_boxed


def test_exact_then_approximate() -> None:
    cases = [
        (r"10\pi \approx 31.4", r"10\pi", True),
        (r"\frac13 \approx 0.333", r"\frac13", True),
        (r"\frac13 \approx 0.333", "0.333", True),
        (r"\frac23 \approx 0.66", r"\frac23", True),  # cut off
        (r"x \approx 11", "11", True),
        (r"f(2) \approx 11", "11", True),
        (r"\frac{1+\sqrt{97}}{8}", r"\frac{1 + \sqrt{97}}{8} \approx 1.36", True),
        ("1.36", r"\frac{1 + \sqrt{97}}{8} \approx 1.36", True),
        (r"42 \approx 41", "42", False),
        (r"41 \approx 42", "42", False),
        (r"\frac13 \approx 0.34", r"\frac13", False),
        (r"40\pi \approx 42", "42", False),  # the rounding of a formula is not checked
        (r"41 + x \approx 42", "42", False),
        (r"17 - 14 \approx 3", "3", True),
        (r"16.98 \approx 17", "17", True),
        (r"149.6 \approx 150", "150", True),
        (r"3.14159 \approx 3.14", "3.14", True),
        (r"33.33\% \approx 33\%", "33", True),
        ("1.37", r"\frac{1 + \sqrt{97}}{8} \approx 1.36", False),
        (r"e \approx 3", "3", False),
        (r"i \approx 3", "3", False),
        (r"B \approx C", "C", False),
        (r"\frac13 \approx \frac12", r"\frac12", False),
    ]
    check_boxed((reference, answer, equal) for answer, reference, equal in cases)
