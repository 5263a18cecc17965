import pytest

from rejuice.operators import EngineError
from rejuice.operators.servers.judge import key_of, open_cache

BODY = {"model": "m", "messages": [{"role": "user", "content": "é\ud800"}], "temperature": 0.0}


def test_the_key_depends_on_the_whole_request():
    key = key_of(BODY, "")
    assert len(key) == 32
    assert key == key_of(dict(reversed(BODY.items())), "")
    others = [key_of(BODY, "b"), key_of({**BODY, "temperature": 1.0}, "")]
    others += [key_of({**BODY, "messages": []}, ""), key_of({**BODY, "model": "n"}, "")]
    assert len({key, *others}) == 5


def test_a_file_that_cannot_be_used(tmp_path):
    (tmp_path / "scores.sqlite").write_text("no database, but a text of some length")
    with pytest.raises(EngineError) as error:
        open_cache(tmp_path / "scores.sqlite")
    assert str(error.value) == (
        f"the cache of scores {tmp_path / 'scores.sqlite'} cannot be used: file is not a database; "
        "set `cache` to another path, or to null to keep no scores"
    )
