import pytest
from tiny_policy import save_policy

from rejuice.operators.errors import EngineError
from rejuice.operators.sampling.tokenizer import (
    TemplateRefusedError,
    chat_encoder,
    chat_text,
    decoded,
)

CHAT = (("system", "Be kind."), ("user", "Hi"))
TEXT = "system: Be kind.\nuser: Hi\nassistant: "


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("policy")
    save_policy(folder)
    return folder


def test_template_is_applied_once_and_is_what_is_shown(policy):
    ids = chat_encoder(str(policy))(CHAT)
    assert isinstance(ids[0], int)
    assert len(ids) == len(TEXT)  # Its tokens are bytes.
    assert chat_text(str(policy), CHAT) == decoded(str(policy), ids) == TEXT


def test_long_chats_are_left_to_the_engine(policy, caplog):
    assert len(chat_encoder(str(policy))((("user", "x" * 5000),))) > 5000
    assert caplog.records == []


def test_template_that_refuses(policy, tmp_path):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(policy)
    tokenizer.chat_template = "{{ raise_exception('only users') }}"
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(TemplateRefusedError, match=r"^the chat template says: only users$"):
        chat_encoder(str(tmp_path))(CHAT)


def test_no_template(policy, tmp_path):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(policy)
    tokenizer.chat_template = None
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(EngineError) as error:
        chat_encoder(str(tmp_path))
    said = f"the tokenizer of '{tmp_path}' has no chat template; name an instruction-tuned one"
    assert str(error.value) == said


def test_no_tokenizer(tmp_path):
    with pytest.raises(EngineError) as error:
        chat_text(str(tmp_path / "nothing"), CHAT)
    assert str(error.value).startswith(f"cannot load the tokenizer '{tmp_path / 'nothing'}'; ")
    assert "\n" not in str(error.value)
