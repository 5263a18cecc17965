"""A letter for each verdict, so that a test's groups fit on a line: "c w n"."""

VERDICTS = {
    "c": "correct",
    "w": "wrong_answer",
    "n": "no_answer",
    "t": "timeout",
    "e": "verifier_error",
    "?": None,
}
