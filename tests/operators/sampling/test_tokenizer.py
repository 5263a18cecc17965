import pytest
from tiny_policy import save_policy
from vllm_server import EMBEDDED

from rejuice.operators.errors import EngineError
from rejuice.operators.sampling import tokenizer
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


def test_template_arguments(policy, tmp_path):
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(policy)
    loaded.chat_template += "{% if enable_thinking is false %}{{ '<>' }}{% endif %}"
    loaded.save_pretrained(tmp_path)
    kwargs = {"enable_thinking": False}
    name = str(tmp_path)
    assert decoded(name, chat_encoder(name, kwargs)(CHAT)) == TEXT + "<>"
    assert chat_text(name, CHAT, kwargs) == TEXT + "<>"
    assert chat_text(name, CHAT) == chat_text(name, CHAT, {"enable_thinking": True}) == TEXT
    assert chat_text(name, CHAT, {"tools": []}) == TEXT


@pytest.mark.parametrize("how", ["tokenize", "add_generation_prompt", "return_tensors"])
def test_how_the_template_is_applied_is_not_to_be_changed(policy, how):
    message = rf"^chat_template_kwargs cannot contain '{how}'; give arguments that the template itself reads, such"
    for use in (chat_encoder, lambda name, kwargs: chat_text(name, CHAT, kwargs)):
        with pytest.raises(EngineError, match=message):
            use(str(policy), {how: False})


def test_long_chats_are_left_to_the_engine():
    assert len(chat_encoder(str(EMBEDDED))((("user", "one " * 400),))) > 256
    # Its files say 256, of which it would warn, once and on stderr.
    assert tokenizer._load(str(EMBEDDED)).model_max_length > 1 << 40


def test_template_that_refuses(policy, tmp_path):
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(policy)
    loaded.chat_template = "{{ raise_exception('only users') }}"
    loaded.save_pretrained(tmp_path)
    with pytest.raises(TemplateRefusedError, match=r"^the chat template refuses: only users$"):
        chat_encoder(str(tmp_path))(CHAT)


def test_no_template(policy, tmp_path):
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(policy)
    loaded.chat_template = None
    loaded.save_pretrained(tmp_path)
    with pytest.raises(EngineError) as error:
        chat_encoder(str(tmp_path))
    message = f"the tokenizer of '{tmp_path}' has no chat template; choose an instruction-tuned one"
    assert str(error.value) == message


def test_no_tokenizer(tmp_path):
    with pytest.raises(EngineError) as error:
        chat_text(str(tmp_path / "nothing"), CHAT)
    assert str(error.value).startswith(f"cannot load the tokenizer '{tmp_path / 'nothing'}'; ")
    assert "\n" not in str(error.value)
