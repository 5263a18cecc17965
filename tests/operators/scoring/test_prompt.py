from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators.scoring.prompt import (
    PLACEHOLDERS,
    TEMPLATE,
    fill_placeholders,
    system_message,
)


@given(*[st.text()] * 3)
def test_what_is_filled_in_is_never_looked_at(question, response, reference):
    values = dict(zip(PLACEHOLDERS, (question, response, reference), strict=True))
    template = "<{question}|{response}|{reference}|{x}>"
    assert fill_placeholders(template, values) == f"<{question}|{response}|{reference}|{{x}}>"


def test_the_default_template_contains_each_placeholder_once():
    shown = fill_placeholders(TEMPLATE, {"question": "QQ", "response": "RR", "reference": "no"})
    assert (shown.count("QQ"), shown.count("RR"), shown.count("no")) == (1, 1, 0)


def test_dimensions_without_an_explanation_are_named():
    message = system_message(("accuracy", "wit"))
    assert "- accuracy: " in message
    assert "\n- wit\n" in message
    assert message.endswith('{"accuracy": <1-5>, "wit": <1-5>}')
