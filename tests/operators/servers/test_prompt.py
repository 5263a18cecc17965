from rejuice.operators.servers.judge_prompt import system_message


def test_dimensions_without_an_explanation_are_named():
    message = system_message(("accuracy", "wit"))
    assert "- accuracy: " in message
    assert "\n- wit\n" in message
    assert message.endswith('{"accuracy": <1-5>, "wit": <1-5>}')
