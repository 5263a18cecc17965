import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import httpx
import pytest
from fake_server import FakeServer, Trouble
from huggingface_hub.errors import OfflineModeIsEnabled, RepositoryNotFoundError
from tiny_policy import save_policy
from vllm_server import EMBEDDED

from rejuice.operators.errors import EngineError
from rejuice.operators.sampling import tokenizer
from rejuice.operators.sampling.engines import EngineSpec, open_engine, release
from rejuice.operators.sampling.protocol import OpenAIOptions
from rejuice.operators.sampling.tokenizer import (
    TemplateRefusedError,
    TokenizerNotFoundError,
    chat_encoder,
    chat_text,
    decoded,
    displayed,
)

pytestmark = pytest.mark.slow

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


@pytest.mark.parametrize("kind", ["embedded", "embedded_flow", "tiny"])
def test_tokens_are_displayed_as_they_are_decoded(kind, policy, monkeypatch):
    name = str(policy if kind == "tiny" else EMBEDDED.parent / kind)
    ids = [*chat_encoder(name)((("user", "  a  b\n\u00a0€ 漢字 it's 1,234.5"),)), 0, 1, 2]
    text = decoded(name, ids)
    with monkeypatch.context() as patched:
        patched.setattr(tokenizer, "decoded", lambda *_: pytest.fail("transformers was used"))
        assert displayed(name, ids) == text


def test_without_a_file_of_its_own_a_tokenizer_is_loaded_as_always(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(EngineError, match="cannot load the tokenizer"):
        displayed(str(tmp_path), [1])


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


@pytest.fixture
def hub(monkeypatch):
    """A hub that gives one answer, or raises it; `requests` are the addresses that were asked."""
    import huggingface_hub

    class Hub:
        answer = None
        cached = None

        def __init__(self):
            self.requests = []

        def metadata(self, url, *, timeout):
            assert timeout <= 5
            self.requests.append(url)
            if isinstance(self.answer, Exception):
                raise self.answer

    hub = Hub()
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", hub.metadata)
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_: hub.cached)
    tokenizer._load.cache_clear()
    yield hub
    tokenizer._load.cache_clear()


def not_found():
    request = httpx.Request("HEAD", "https://hub/served/resolve/main/tokenizer_config.json")
    return RepositoryNotFoundError("401", response=httpx.Response(401, request=request))


@pytest.fixture
def no_transformers(monkeypatch):
    """To import it takes seconds, to have it search the hub a minute."""
    module = ModuleType("transformers")
    module.__spec__ = ModuleSpec("transformers", None)
    monkeypatch.setitem(sys.modules, "transformers", module)


@pytest.mark.usefixtures("no_transformers")
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (not_found(), "the hub has no such repository"),
        (httpx.ConnectError("Name or service\nnot known"), "the hub cannot be reached (Name or service not known)"),
        (httpx.ConnectTimeout(""), "the hub cannot be reached (no answer)"),
        (OfflineModeIsEnabled("it is"), "HF_HUB_OFFLINE is set"),
    ],
)  # fmt: skip
def test_a_name_that_is_no_hub_name_fails_after_one_request(hub, answer, reason):
    hub.answer = answer
    with pytest.raises(TokenizerNotFoundError) as error:
        chat_encoder("served")
    assert str(error.value) == (
        f"cannot load the tokenizer 'served'; it is no folder, and {reason}"
    )
    assert len(hub.requests) == 1
    assert hub.requests[0].endswith("/served/resolve/main/tokenizer_config.json")


@pytest.mark.usefixtures("no_transformers")
def test_a_name_that_cannot_be_on_the_hub_is_not_asked_for(hub):
    with pytest.raises(TokenizerNotFoundError, match="the hub has no such repository"):
        chat_encoder("a/b/c")
    assert hub.requests == []


@pytest.mark.parametrize("found", [True, False])
def test_a_tokenizer_of_the_hub_or_of_its_cache(hub, monkeypatch, policy, found):
    from transformers import AutoTokenizer

    local_only = []
    load = AutoTokenizer.from_pretrained

    def loaded(name, *, local_files_only, **_):
        local_only.append(local_files_only)
        assert name == "org/model"
        return load(policy)

    monkeypatch.setattr(AutoTokenizer, "from_pretrained", loaded)
    hub.answer, hub.cached = (None, None) if found else (httpx.ConnectError("no"), "/a/file")
    assert len(chat_encoder("org/model")(CHAT)) == len(TEXT)
    assert local_only == [not found]


def test_a_folder_needs_no_hub(hub, policy):
    assert chat_encoder(str(policy))
    assert hub.requests == []


@pytest.mark.usefixtures("no_transformers")
def test_a_served_name_without_a_tokenizer_names_both_ways_out(hub):
    hub.answer = not_found()
    with FakeServer() as server:
        options = OpenAIOptions(base_url=server.url, patience_s=0)
        spec = EngineSpec("m", 0, True, {}, options)
        with pytest.raises(EngineError) as error:
            open_engine(spec)
        assert str(error.value) == (
            "cannot load the tokenizer 'm'; it is no folder, and the hub has no such repository: "
            "name the tokenizer of the model, openai: {tokenizer: …}, or leave the chat template "
            "to the server, openai: {api: chat}"
        )
        chat = spec._replace(options=options.model_copy(update={"api": "chat"}))
        open_engine(chat)
        release(chat)


@pytest.mark.usefixtures("no_transformers")
def test_the_server_is_checked_before_its_tokenizer(hub):
    with FakeServer() as server:
        spec = EngineSpec("n", 0, True, {}, OpenAIOptions(base_url=server.url, patience_s=0))
        server.always = Trouble.NOT_FOUND
        server.seed_and_n = lambda body: (0, 1)
        with pytest.raises(EngineError, match=r"^the server has no model 'n'; it has m, other$"):
            open_engine(spec)
        server.kill()
        with pytest.raises(EngineError, match="could not be reached: connection refused"):
            open_engine(spec)
    assert hub.requests == []
