from rejuice.operators.servers.judge import key_of

BODY = {"model": "m", "messages": [{"role": "user", "content": "é\ud800"}], "temperature": 0.0}


def test_the_key_depends_on_the_whole_request():
    key = key_of(BODY, "")
    assert len(key) == 32
    assert key == key_of(dict(reversed(BODY.items())), "")
    others = [key_of(BODY, "b"), key_of({**BODY, "temperature": 1.0}, "")]
    others += [key_of({**BODY, "messages": []}, ""), key_of({**BODY, "model": "n"}, "")]
    assert len({key, *others}) == 5
