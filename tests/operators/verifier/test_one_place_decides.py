"""Attacks and right answers that a reader of the rules wrote: where an answer stands, and alone."""

from __future__ import annotations

import pytest

from rejuice.operators.verifier import verify

WRONG = {
    r"2\pi": [
        r"The answer is $\pi$, since the period of sin is $2\pi$.", r"The answer is \pi, maybe 2\pi",
        r"The answer is at most 2\pi", r"Answer: 5 minus 2\pi", r"The answer is 1 over 2\pi",
    ],
    "2^n": ["Answer: n times 2^n", "The answer is 2^n-1, close to 2^n"],
    "x>2": ["The answer is x>3, as opposed to x>2"],
    r"\{1,2\}": [r"The answer is \{1,2,3\}, a superset of \{1,2\}"],
    "x": ["Answer: ln x"],
    "x = 1 or x = 2": ["I am not sure whether x = 1 or x = 2", "Maybe x = 3 or maybe x = 1 or x = 2"],
    "42": [
        r"\boxed{41}. A common wrong answer is 42.", r"\boxed{41} Another possible answer is 42.",
        r"\boxed{41} If the answer is 42, then it fails.", r"\boxed{41}. 42 is the answer to another.",
        r"\boxed{41} Some would say the answer is 42, but no.", "<answer>41</answer> root: 42",
        r"\boxed{42}. So the answer is 41.", "#### 42\nFinal answer: 41",
    ],
    "Paris": [
        r"\boxed{Lyon} Alternative answer: Paris", "Die Antwort ist Lyon oder Paris.",
        "La respuesta es Lyon, no Paris.",
    ],
    "€6": ["Answer: $5, €6, £7"],
    "240 kJ": ["Answer: 3 m, 240 kJ, 5 s"],
    "March 6": ["Answer: Friday or March 6"],
    "Thursday": ["The answer is March 5, unlike Thursday"],
    "March 5": ["Answer: March 6, 2021; the meeting of March 5 was moved"],
    "June 2007": ["It was in May or June 2007."],
    "京": ["答案是东京"],
    "京都": ["東京都"],
    "北京": ["答案是南京或北京", "南京、北京", "可能是北京"],
    "서울": ["답은 부산 또는 서울", "부산, 서울"],
    "C": ["故不选C", "La réponse est A ou C."],
    "B": ["答案是A或B"],
    "Yes": ["Answer: ja/nein", "ja, aber nein"],
    "True": [
        "False. It is only true for n = 2.", "**False**. The converse is true.", "true or not",
        "This is not necessarily true.", "It is not always true.", "I don't think that is true.",
    ],
    "a_0=1,a_1=2,a_2=4": [r"\boxed{4,2,1}"],
    "5 s": ["12:00:05 am"],
}  # fmt: skip
RIGHT = {
    "42": [
        r"\boxed{42} (the other solution is -3)", r"\boxed{42} The other root is $-3$, which is out.",
        r"\boxed{42}. For n=1, the answer is 2.", r"\boxed{42} A wrong answer is 41.",
        r"\boxed{42} The digital root is 6.", r"\boxed{41}. So the answer is 42.",
        r"\boxed{41} Final answer: 42", r"\boxed{41} The answer is 42.",
    ],
    "81": [r"\boxed{81}, whose square root is 9."],
    "Paris": [r"\boxed{Paris}. As is known, the solution is well documented."],
    "Saturn, Jupiter": [r"\boxed{Saturn, Jupiter} The solution is unique."],
    r"2\sqrt{3}": [r"\boxed{2\sqrt{3}} The answer is approximately 3.46."],
    r"\ln 2": ["ln 2", "The answer is ln 2."],
    r"2 \ln 3": ["The answer is 2 ln 3"],
    r"x \ln x - x + C": ["x ln x - x + C"],
    r"mg \sin\theta": [r"mg \sin \theta"],
    "1, 2": ["So x = 1 or x = 2.", "We get $x=1$ and $x=2$.", "Hence $x_1 = 2$ and $x_2 = 1$."],
    r"-\cos x": ["First derivative: −sin(x)\nSecond derivative: −cos(x)"],
    "False": ["False. It is only true for n = 2.", "**False**. The converse is true."],
    "no": ["No. It would be so if n were even. Yes, then."],
    "yes": ["Sí, Lima es la capital de Perú."],
    "東京": ["日本の首都は東京です。", "東京"],
    "北京": ["中国的首都是北京。", "答案：北京"],
    "2:03:59": ["The runner finished in 2 hours, 3 minutes and 59 seconds."],
    "15 April 1912": ["It sank on 15 April 1912, after it struck ice late on 14 April."],
    "Cannot be determined": ["The answer is: cannot be determined"],
}  # fmt: skip


@pytest.mark.parametrize(("paid", "cases"), [(False, WRONG), (True, RIGHT)])
def test_one_place_decides(paid: bool, cases: dict[str, list[str]]) -> None:
    pairs = [(reference, each) for reference, texts in cases.items() for each in texts]
    odd = [pair for pair in pairs if (verify(*pair[::-1]).verdict == "correct") is not paid]
    assert odd == []
