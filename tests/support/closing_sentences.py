"""Closing sentences of the solutions of GSM8K, without the equation that gives the answer away.

"Natalia sold 48+24 = 72 clips" ends as "Natalia sold 72 clips", plain and with the number in a box.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

_NOTE = re.compile(r"<<.*?>>")
_EQUATION = re.compile(r"[-+*/x×()$€%\d.,\s]*\d[-+*/x×()$€%\d.,\s]*=\s*")


def closing_sentences(file: Path) -> Iterator[tuple[str, str]]:
    """(sentence, answer) of each solution of a file whose last line has no equation left.

    Args:
        file: JSON lines of GSM8K.
    """
    for line in file.read_text("utf-8").splitlines():
        solution, answer = json.loads(line)["answer"].rsplit("####", 1)
        answer = answer.strip()
        last = _NOTE.sub("", solution).strip().split("\n")[-1]
        sentence = re.sub(r"\s+", " ", _EQUATION.sub("  ", last)).strip()
        if "=" in sentence:
            continue
        number = re.compile(rf"(?<![\d.,])\$?{re.escape(answer)}(?![\d,]|\.\d)")
        boxed = f"$\\boxed{{{answer}}}$"
        yield sentence, answer
        yield number.sub(lambda _, boxed=boxed: boxed, sentence), answer
