import pickle
from types import SimpleNamespace

import pytest
from rounding import LOG_PROBS
from true_policy import TruePolicy
from vllm_server import EMBEDDED, vllm_python

from rejuice.operators.errors import EngineError
from rejuice.operators.sampling import vllm_engine
from rejuice.operators.sampling.protocol import (
    Failure,
    Group,
    Prompt,
    Sample,
    Settings,
    VllmOptions,
    listening,
)
from rejuice.operators.sampling.tokenizer import TemplateRefusedError
from rejuice.operators.sampling.vllm_engine import VllmEngine, vllm_process

TWO = Settings(n=2, max_tokens=3)


def prompts(count):
    return [Prompt((("user", "x" * (k + 1)),), 100 * k) for k in range(count)]


class FakeLLM:
    """Stands where vllm.LLM does; its last request is always the first to finish.

    Args:
        broken: what is raised by the next step.
        reasons: why responses finish.
    """

    def __init__(self, broken=None, reasons=("stop", "length")):
        self.broken, self.reasons = broken, reasons
        self.waiting, self.most, self.aborted = {}, 0, []
        self.llm_engine = self
        self.model_config = SimpleNamespace(max_model_len=10)
        self.vllm_config = SimpleNamespace(scheduler_config=SimpleNamespace(max_num_seqs=4))

    def add_request(self, name, prompt, params):
        if prompt["prompt_token_ids"] == [7]:
            raise ValueError("no\nsuch token")
        self.waiting[name] = prompt["prompt_token_ids"], params
        self.most = max(self.most, len(self.waiting))

    def step(self):
        if self.broken:
            raise self.broken
        name, (ids, params) = self.waiting.popitem()
        responses = [
            SimpleNamespace(
                text=f"{params.seed}:{index}",
                token_ids=[5, index],
                logprobs=[{5: SimpleNamespace(logprob=-1.0)}, {index: SimpleNamespace(logprob=-2)}],
                finish_reason=self.reasons[index % len(self.reasons)],
            )
            for index in range(params.n)
        ]
        done = SimpleNamespace(
            request_id=name, prompt_token_ids=ids, outputs=responses, finished=True
        )
        return [SimpleNamespace(finished=False), done]

    def abort_request(self, names):
        self.aborted += names
        for name in names:
            del self.waiting[name]


@pytest.fixture
def make(monkeypatch):
    def encode(messages):
        if messages[0][0] == "tool":
            raise TemplateRefusedError("the chat template refuses: no")
        return [len(messages[0][1])] * (len(messages[0][1]) % 20)

    def params(settings, seed):
        return SimpleNamespace(n=settings.n, seed=seed)

    def make(llm, **fields):
        monkeypatch.setattr(vllm_engine, "chat_encoder", lambda name, kwargs: encode)
        monkeypatch.setattr(vllm_engine, "_params", params)
        monkeypatch.setattr(vllm_engine, "_start", lambda model, options: llm)
        return VllmEngine("m", VllmOptions(), **fields)

    return make


def test_tokens_are_reported_with_each_group(make):
    reported = []
    with listening(reported.append):
        list(make(FakeLLM()).sample(prompts(3), TWO))
    assert reported == [4, 4, 4]


def test_groups_come_as_they_finish_with_all_that_is_known(make):
    found = list(make(FakeLLM(), version=3).sample(prompts(6), TWO))
    # vLLM holds 4 responses at a time, so it is given twice as many: 4 prompts.
    assert [index for index, _ in found] == [3, 4, 5, 2, 1, 0]
    samples = (
        Sample("100:0", (5, 0), (-1.0, -2), "stop"),
        Sample("100:1", (5, 1), (-1.0, -2), "length"),
    )
    assert dict(found)[1] == Group("m", 3, 100, (2, 2), samples)


def test_no_more_prompts_are_in_memory_than_keep_vllm_busy(make):
    llm = FakeLLM()
    assert len(list(make(llm).sample(prompts(6) * 50, TWO))) == 300
    assert llm.most == 4
    wide = FakeLLM()
    assert len(list(make(wide).sample(prompts(6), TWO._replace(n=50)))) == 6
    assert wide.most == 2


def test_name_of_the_policy_may_be_another_one(make):
    ((_, group),) = make(FakeLLM(), name="embedded").sample(prompts(1), TWO)
    assert group.policy == "embedded"


def test_template_arguments_are_passed(monkeypatch):
    seen = []
    monkeypatch.setattr(vllm_engine, "_start", lambda model, options: FakeLLM())
    monkeypatch.setattr(vllm_engine, "chat_encoder", lambda *given: seen.append(given))
    monkeypatch.setattr(
        vllm_engine, "EngineProcesses", lambda build, **_: pickle.loads(pickle.dumps(build))()
    )
    vllm_process("m", VllmOptions())
    arguments = {"tokenizer": "t"}
    kwargs = {"enable_thinking": False}
    vllm_process("m", VllmOptions(arguments=arguments), chat_template_kwargs=kwargs)
    assert seen == [("m", {}), ("t", kwargs)]


def test_prompts_that_cannot_be_sampled_are_named_and_the_others_go_on(make):
    few = prompts(12)
    few[2] = Prompt((("tool", "x"),), 0)
    found = dict(make(FakeLLM()).sample(few, TWO))
    assert found[2] == Failure("template_refused", "the chat template refuses: no")
    message = "tokens; the policy's context of 10 includes the response"
    assert found[9] == Failure("prompt_too_long", f"10 {message}")
    assert [k for k, each in found.items() if isinstance(each, Group)] != []
    assert {k for k, each in found.items() if isinstance(each, Failure)} == {2, 9, 10, 11}
    long = Prompt((("user", "x" * 41),), 0)  # One token, 41.
    assert isinstance(dict(make(FakeLLM()).sample([long], TWO))[0], Group)


def test_what_vllm_refuses_is_a_failure_of_the_prompt(make, monkeypatch):
    engine = make(FakeLLM())
    engine._encode = lambda messages: [7]
    assert list(engine.sample(prompts(1), TWO)) == [
        (0, Failure("request_refused", "no such token"))
    ]


def test_an_engine_that_fails_on_a_request_ends_the_call(make):
    llm = FakeLLM()
    engine = make(llm)
    llm.add_request = None  # A TypeError, which is not caused by the prompt.
    with pytest.raises(EngineError, match=r"^vLLM has failed; 'NoneType'"):
        list(engine.sample(prompts(2), TWO))


def test_response_that_was_not_finished_is_no_sample(make):
    found = list(make(FakeLLM(reasons=("stop", "abort"))).sample(prompts(1), TWO))
    assert found == [(0, Failure("bad_response", "vLLM finished with ['abort', 'stop']"))]


def test_leaving_early_aborts_the_rest(make):
    llm = FakeLLM()
    engine = make(llm)
    sampling = engine.sample(prompts(6), TWO)
    next(sampling)
    sampling.close()
    assert llm.waiting == {}
    assert len(llm.aborted) == 3
    assert len(list(engine.sample(prompts(6), TWO))) == 6


def test_an_engine_that_fails_in_a_step_ends_the_call(make):
    engine = make(FakeLLM(broken=RuntimeError("out of memory\n  at ...")))
    with pytest.raises(EngineError, match=r"^vLLM has failed; out of memory at \.\.\.$"):
        list(engine.sample(prompts(2), TWO))


@pytest.mark.slow
def test_interpreter_without_vllm():
    with pytest.raises(EngineError) as error:
        VllmEngine(str(EMBEDDED), VllmOptions())
    message = str(error.value)
    assert message.startswith("vLLM cannot be imported by ")
    assert message.endswith(
        ": No module named 'vllm'; set `python` to the interpreter of an environment that has it"
    )


# From here on with vLLM itself.

real = [pytest.mark.slow, pytest.mark.vllm]
EIGHT = Settings(n=8, max_tokens=24)
EAGER = {"enforce_eager": True, "max_num_seqs": 32}


def problems(count):
    chat = "Tom has {} apples and buys {} more. How many apples does Tom have?"
    return [Prompt((("user", chat.format(k, k + 3)),), 1_000_003 * k) for k in range(count)]


@pytest.fixture(scope="module")
def engine():
    options = VllmOptions(python=vllm_python(), dtype="float32", max_model_len=128, arguments=EAGER)
    engine = vllm_process(str(EMBEDDED), options, name="embedded", version=1)
    yield engine
    engine.close()


def check_true(groups, folder, version):
    truth = TruePolicy(folder)
    for group in groups:
        assert (group.policy, group.version, len(group.samples)) == ("embedded", version, 8)
        for sample in group.samples:
            expected = truth.logprobs(group.prompt_token_ids, sample.token_ids)
            assert sample.logprobs == pytest.approx(expected, abs=LOG_PROBS)


@pytest.mark.usefixtures("_real")
class TestReal:
    pytestmark = real

    @pytest.fixture
    def _real(self):
        vllm_python()

    def test_samples_are_the_policy_s_own(self, engine):
        found = list(engine.sample(problems(64), EIGHT))
        assert sorted(index for index, _ in found) == list(range(64))
        assert [index for index, _ in found] != list(range(64))  # As they finish.
        groups = [group for _, group in found]
        check_true(groups, EMBEDDED, 1)
        assert TruePolicy(EMBEDDED).p_value(groups) > 1e-4

    def test_samples_do_not_depend_on_the_batch(self, engine):
        whole = dict(engine.sample(problems(24), EIGHT))
        part = dict(engine.sample(problems(24)[:15:-1], EIGHT))
        for index, group in part.items():
            same = whole[23 - index].samples
            assert [s.token_ids for s in group.samples] == [s.token_ids for s in same]

    def test_a_prompt_that_is_too_long_is_named(self, engine):
        long = Prompt((("user", "one " * 200),), 0)
        found = dict(engine.sample([long, *problems(1)], EIGHT))
        assert found[0].reason == "prompt_too_long"
        assert len(found[1].samples) == 8

    def test_greedy_is_the_most_probable(self, engine):
        wanted = EIGHT._replace(n=1, temperature=0.0)
        for _, group in engine.sample(problems(4), wanted):
            (sample,) = group.samples
            rows = TruePolicy(EMBEDDED).rows(group.prompt_token_ids, sample.token_ids)
            assert rows.argmax(-1).tolist() == list(sample.token_ids)

    def test_settings_that_vllm_refuses(self, engine):
        with pytest.raises(EngineError, match=r"^vLLM rejects these settings; n must be 1 when"):
            list(engine.sample(problems(2), EIGHT._replace(temperature=0.0)))

    def test_sixteen_bits(self):
        options = VllmOptions(python=vllm_python(), max_model_len=128, arguments=EAGER)
        engine = vllm_process(str(EMBEDDED), options)
        try:
            assert len(list(engine.sample(problems(4), EIGHT))) == 4
        finally:
            engine.close()

    def test_arguments_that_vllm_does_not_take(self):
        options = VllmOptions(python=vllm_python(), arguments={"max_model_length": 3})
        with pytest.raises(EngineError) as error:
            vllm_process(str(EMBEDDED), options)
        assert str(error.value).startswith(f"vLLM cannot be started with '{EMBEDDED}'; ")
        assert "max_model_length" in str(error.value)
        assert "\n" not in str(error.value)


def test_token_ids_are_sampled_from_as_they_are(make, monkeypatch):
    engine = make(FakeLLM())
    limits = []

    def params(settings, seed):
        limits.append(settings.max_tokens)
        return SimpleNamespace(n=settings.n, seed=seed)

    monkeypatch.setattr(vllm_engine, "_params", params)
    asked = [Prompt((("tool", ""),), 0, (5, 6, 7), 2), Prompt((("user", "x"),), 1, None, 9)]
    found = dict(engine.sample(asked, TWO))
    assert [found[index].prompt_token_ids for index in (0, 1)] == [(5, 6, 7), (1,)]
    assert limits == [2, 3]


def test_each_replica_has_gpus_of_its_own(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, 5,6,7,")
    gpus = vllm_engine.visible_gpus()
    assert gpus == ["4", "5", "6", "7"]
    two = VllmOptions(replicas=2, tensor_parallel_size=2)
    shares = vllm_engine.gpu_shares(two, gpus)
    assert [each["CUDA_VISIBLE_DEVICES"] for each in shares] == ["4,5", "6,7"]
    assert vllm_engine.gpu_shares(two, []) == [{}, {}], "without GPUs they simply run"
    assert vllm_engine.gpu_shares(VllmOptions(tensor_parallel_size=4), gpus) == [{}]
    with pytest.raises(EngineError) as error:
        vllm_engine.gpu_shares(VllmOptions(replicas=3, tensor_parallel_size=2), gpus)
    assert str(error.value) == (
        "vllm: 3 replicas with 2 GPUs each need 6, there are 4; set replicas: 2"
    )
