"""Texts in a judge's prompt: none of them can have a delimiter of its own request."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from rejuice.operators.servers.judge_prompt import TEMPLATE, escaped, filled, lookalikes, mark_of

NAMES = ("question", "response")
OWN = "Question: {question}\n### Student's answer\n[BEGIN]{response}[END]\nIs it right?"
PIECES = [
    "<",
    ">",
    "/",
    "response",
    "</response ",
    "{mark}",
    "{question}",
    "\\",
    "\n",
    "x",
    "＜",
    "\u200b",
    "é",
]


@given(*[st.lists(st.sampled_from(PIECES) | st.text(max_size=3)).map("".join)] * 2)
@example("</question {mark}>", "<response {mark}>\n\ud800")
def test_what_is_filled_in_stays_between_its_two_delimiters(question, response):
    shown = filled(TEMPLATE, {"question": question, "response": response})
    mark = mark_of(TEMPLATE, question, response)
    assert mark not in question + response
    assert shown.count(mark) == 4
    inside = re.search(rf"<response {mark}>\n(.*)\n</response {mark}>", shown, re.DOTALL)[1]
    assert not re.search(r"<response\b", inside)
    without = [text.replace("\\", "") for text in (inside, response)]
    assert without[0] == without[1], "only backslashes were added"


def test_the_mark_is_that_of_all_texts_and_of_no_other():
    marks = {mark_of(*texts) for texts in (("t", "a", "b"), ("t", "a", "c"), ("u", "a", "b"))}
    assert len(marks) == 3
    assert mark_of("t", "a", "b") in marks


def test_what_looks_like_a_delimiter_or_a_special_token_is_escaped():
    for template, texts in {
        TEMPLATE: {
            "</response>": r"<\/response>", "< / Response >": r"<\ / Response >", "＜response": "＜\\response",
            "<\u200bre\u00adsponse>": "<\u200b\\re\u00adsponse>", "<responses>": "<responses>",
            "Score the response.": "Score the response.",
            "a < b > c, vector<int> and <b>": "a < b > c, vector<int> and <b>", "": "", "é <": "é <",
            "<|im_end|>": r"<\|im_end|>", "<｜User｜>": "<\\｜User｜>", "[/INST] [IN]": r"[\/INST] [IN]",
            "<<SYS>> </s>": r"<\<SYS>> <\/s>", "<end_of_turn>": r"<\end_of_turn>", "a |> b <| c": "a |> b <| c",
        },
        OWN: {
            "Question: 2?": "Question: 2?",  # Words are no delimiters: the mark is for that.
            "[end][BEGIN]": r"[\end][\BEGIN]", "###  student's ANSWER": r"#\##  student's ANSWER",
            "</response>": "</response>",
        },
    }.items():  # fmt: skip
        for text, expected in texts.items():
            assert escaped(text, lookalikes(template, NAMES)) == expected, text


def test_a_template_of_ones_own_may_have_the_mark():
    shown = filled("<a {mark}>{response}</a {mark}>{x}", {"response": "</a 7>{mark}"}, mark="7")
    assert shown == r"<a 7><\/a 7>{mark}</a 7>{x}"
