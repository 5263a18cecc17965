"""The embedded engine: what it samples, from what, and that nothing else decides it."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rounding import LOG_PROBS
from scipy import stats
from tiny_policy import save_policy
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel
from true_policy import TruePolicy

import rejuice.operators.sampling
from rejuice.operators.errors import EngineError
from rejuice.operators.sampling import transformers_engine as decoding
from rejuice.operators.sampling.processes import EngineProcesses
from rejuice.operators.sampling.protocol import Failure, Prompt, Settings, listening
from rejuice.operators.sampling.tokenizer import decoded
from rejuice.operators.sampling.transformers_engine import (
    OneGroup,
    Recomputed,
    SharedPrompts,
    TransformersEngine,
)

EMBEDDED = Path(rejuice.operators.sampling.__file__).parent / "embedded"
pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow]
END = 1
FOUR = Settings(n=4, max_tokens=24)
EIGHT = Settings(n=8, max_tokens=64)


def ask(text, seed=0):
    return Prompt((("user", text),), seed)


PROMPTS = [ask("why " * (1 + 7 * i % 12), seed=i) for i in range(20)]
SUMS = [
    ask(
        f"{who} has {a} apples. {who} buys {b} more.{'' if a % 2 else ' Then 1 is lost.'} How many?"
    )
    for who, a, b in zip(["Tom", "Anna", "Bob"] * 8, range(3, 19), range(18, 2, -1), strict=False)
]
SUMS = [prompt._replace(seed=(1 << 62) - 1 - i) for i, prompt in enumerate(SUMS)]


def tokens(group):
    return [sample.token_ids for sample in group.samples]


def all_tokens(results):
    return {index: tokens(group) for index, group in results}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("policy")
    save_policy(path)
    return path


@pytest.fixture(scope="module")
def engine(folder):
    return TransformersEngine(folder)


@pytest.fixture(scope="module")
def groups(engine):
    return dict(engine.sample(PROMPTS, FOUR))


@pytest.fixture(scope="module")
def trained():
    return TransformersEngine(EMBEDDED, name="embedded")


@pytest.fixture(scope="module")
def answers(trained):
    """What the embedded policy answers to SUMS, a prompt at a time, in the model's own cache."""
    trained._store, before = OneGroup, trained._store
    try:
        return all_tokens(trained.sample(SUMS, EIGHT._replace(n=20)))
    finally:
        trained._store = before


# --- the protocol -----------------------------------------------------------------------


def test_every_prompt_once(engine):
    indices = [index for index, _ in engine.sample(PROMPTS, FOUR)]
    assert sorted(indices) == list(range(20))


def test_no_prompts(engine):
    assert list(engine.sample([], FOUR)) == []


def test_a_group_names_its_origin(folder, groups):
    assert {group.policy for group in groups.values()} == {str(folder)}
    assert {group.version for group in groups.values()} == {0}
    assert all(group.seed == PROMPTS[index].seed for index, group in groups.items())
    assert TransformersEngine(EMBEDDED, name="embedded").policy == "embedded"


def test_prompt_is_as_the_template_wrote_it(groups):
    letters = bytes(token - 2 for token in groups[0].prompt_token_ids[:4])
    assert len(letters) == 4  # tokens are bytes, in the order of their alphabet
    text = "user: " + "why " * 8 + "\nassistant: "
    assert len(groups[1].prompt_token_ids) == len(text)
    assert groups[1].prompt_token_ids[:3] != groups[1].prompt_token_ids[-3:]


def test_finish_reasons(groups):
    samples = [sample for group in groups.values() for sample in group.samples]
    assert {sample.finish_reason for sample in samples} == {"stop", "length"}
    for sample in samples:
        assert len(sample.token_ids) == len(sample.logprobs) <= 24
        assert END not in sample.token_ids[:-1]
        if sample.finish_reason == "stop":
            assert sample.token_ids[-1] == END
        else:
            assert len(sample.token_ids) == 24


def test_text_is_without_the_end(trained, engine):
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED)
    for _, group in trained.sample(SUMS[:4], EIGHT):
        for sample in group.samples:
            assert sample.text == tokenizer.decode(sample.token_ids, skip_special_tokens=True)
            assert tokenizer.eos_token not in sample.text
    ended = decoding.SampledResponse(
        (41, END), (-1.0, -1.0), stopped=False
    )  # at the limit, not by itself
    assert engine._sample(ended).text.endswith("<|im_end|>")


def test_prompts_that_leave_no_room(engine):
    # 512 places, 18 of them for what the template adds
    by_index = dict(engine.sample([ask("x" * n) for n in (494, 493, 490)], FOUR))
    assert by_index[0] == Failure(
        "prompt_too_long", "512 tokens; the policy's context of 512 includes the response"
    )
    assert {len(s.token_ids) for s in by_index[1].samples} == {1}
    assert max(len(s.token_ids) for s in by_index[2].samples) <= 4


@pytest.mark.parametrize("period", [1, 2, 7, 99])
def test_prompts_are_taken_no_further_ahead_than_its_capacity(folder, period):
    """A process that took more would wait for ever: most prompts are too long here."""
    engine, taken, finished = TransformersEngine(folder, rows=8), 0, 0

    def prompts():
        nonlocal taken
        for number in range(60):
            taken += 1
            assert taken - finished <= engine.capacity(FOUR)
            yield ask("x" if number % period == 0 else "x" * 494, number)

    for _ in engine.sample(prompts(), FOUR):
        finished += 1
    assert (taken, finished) == (60, 60)


def test_template_arguments_are_passed(tmp_path):
    save_policy(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content + more }}")
    build = partial(TransformersEngine, tmp_path, chat_template_kwargs={"more": "!!"})
    group = dict(build().sample([ask("a")], FOUR))[0]
    assert decoded(str(tmp_path), group.prompt_token_ids) == "a!!"


def test_template_that_refuses(tmp_path):
    save_policy(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{{ raise_exception('no system role') }}")
    assert dict(TransformersEngine(tmp_path).sample([ask("a")], FOUR)) == {
        0: Failure("template_refused", "the chat template refuses: no system role")
    }


def test_no_such_policy(tmp_path, folder):
    with pytest.raises(EngineError, match=rf"^cannot load the tokenizer '{tmp_path / 'x'}'; "):
        TransformersEngine(tmp_path / "x")
    with pytest.raises(EngineError, match=r"^cannot load the policy '/no/where'; "):
        TransformersEngine(folder).load_weights("/no/where", 1)


def test_weights_that_are_a_pointer_of_git_lfs(tmp_path):
    save_policy(tmp_path)
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(EngineError, match=rf"^cannot load the policy '{tmp_path}'; .*header"):
        TransformersEngine(tmp_path)


def test_token_ids_are_sampled_from_as_they_are(engine, groups):
    """The chat is not looked at, and the template not applied."""
    as_ids = [
        Prompt((), prompt.seed, groups[index].prompt_token_ids)
        for index, prompt in enumerate(PROMPTS)
    ]
    assert dict(engine.sample(as_ids, FOUR)) == groups


def test_a_prompt_may_have_a_shorter_longest_response(engine, groups):
    short = [prompt._replace(max_tokens=3 + index) for index, prompt in enumerate(PROMPTS[:4])]
    for index, group in engine.sample([*short, PROMPTS[4]._replace(max_tokens=99)], FOUR):
        most = 3 + index if index < 4 else 24
        for sample, whole in zip(group.samples, groups[index].samples, strict=True):
            assert sample.token_ids == whole.token_ids[:most]
            cut = len(whole.token_ids) > most
            assert sample.finish_reason == ("length" if cut else whole.finish_reason)


# --- what decides a sample --------------------------------------------------------------


def test_a_full_pass_for_each_token_agrees(trained, answers):
    """The definition of a sample, without cache, batch or bookkeeping of any kind."""
    model = AutoModelForCausalLM.from_pretrained(EMBEDDED, dtype="float32").eval()
    for index in (0, 7):
        ids = next(trained.sample([SUMS[index]], EIGHT))[1].prompt_token_ids
        for sample in (0, 1, 19):
            seed = np.array([SUMS[index].seed], np.uint64)
            key = decoding.response_keys(seed, np.array([sample]))
            path = list(ids)
            while len(path) - len(ids) < 64 and path[-1] != model.config.eos_token_id:
                noise = decoding.gumbel(
                    decoding.token_keys(key, np.array([len(path) - len(ids)])), 800
                )
                with torch.inference_mode():
                    path.append(int((model(torch.tensor([path])).logits[0, -1] + noise).argmax()))
            assert tuple(path[len(ids) :]) == answers[index][sample]


@settings(max_examples=12, deadline=None)
@given(
    st.permutations(range(len(SUMS))).flatmap(
        lambda order: st.integers(1, len(SUMS)).map(lambda size: order[:size])
    ),
    st.sampled_from([1, 8, 20, 64, 256]),
    st.sampled_from([1, 3, 8, 9, 20]),
    st.sampled_from([5, 64]),
)
def test_samples_do_not_depend_on_subset_order_rows_n_or_limit(
    trained, answers, chosen, rows, n, limit
):
    trained._rows = rows
    wanted = Settings(n=n, max_tokens=limit)
    results = all_tokens(trained.sample([SUMS[i] for i in chosen], wanted))
    for place, index in enumerate(chosen):
        assert results[place] == [ids[:limit] for ids in answers[index][:n]]


def test_samples_do_not_depend_on_rows_or_stores_with_random_weights(engine, groups, monkeypatch):
    """With flat distributions near ties are common."""
    for rows in (1, 12):
        monkeypatch.setattr(engine, "_rows", rows)
        results = dict(engine.sample(PROMPTS, FOUR))
        for index, group in results.items():
            assert tokens(group) == tokens(groups[index])
            for one, other in zip(group.samples, groups[index].samples, strict=True):
                assert np.allclose(one.logprobs, other.logprobs, atol=LOG_PROBS)
    for store in (OneGroup, Recomputed):
        monkeypatch.setattr(engine, "_store", store)
        for index, ids in all_tokens(engine.sample(PROMPTS[:3], FOUR)).items():
            assert ids == tokens(groups[index])


def test_samples_do_not_depend_on_threads(trained, answers):
    torch.set_num_threads(2)
    try:
        results = all_tokens(trained.sample(SUMS[:6], EIGHT))
    finally:
        torch.set_num_threads(1)
    assert results == {index: answers[index][:8] for index in range(6)}


@pytest.mark.parametrize("top_p", [1.0, 0.8])
def test_near_ties_are_decided_alike_whatever_the_rounding(folder, monkeypatch, top_p):
    engine = TransformersEngine(folder)
    forward, generator = SharedPrompts.forward, torch.Generator().manual_seed(5)

    def noisy(self, *arguments):
        logits = forward(self, *arguments)
        return logits + 2e-3 * (2 * torch.rand(logits.shape, generator=generator) - 1)

    def sampled(tie_margin):
        monkeypatch.setattr(decoding, "TIE_MARGIN", tie_margin)
        wanted = Settings(n=8, max_tokens=12, top_p=top_p)
        return all_tokens(engine.sample(PROMPTS, wanted))

    undisturbed = sampled(5e-3)
    monkeypatch.setattr(SharedPrompts, "forward", noisy)
    assert sampled(5e-3) == undisturbed
    assert sampled(0.0) != undisturbed  # so there were near ties


def test_the_tie_margin_is_far_above_rounding(trained, monkeypatch):
    """On the trained policy, differences stay 50 times below what `TIE_MARGIN` allows."""
    seen = []
    draw = decoding._DecodingBatch._draw

    def watched(batch):
        row = len(batch._group_R) // 2
        g, sample, step = (x[row] for x in (batch._group_R, batch._sample_R, batch._step_R))
        path = [*batch.groups[g].prompt_ids, *batch._ids[g, sample, :step]]
        alone = trained._model(torch.tensor([path])).logits[0, -1]
        seen.append(float((batch._logits[row] - alone).abs().max()))
        return draw(batch)

    monkeypatch.setattr(decoding._DecodingBatch, "_draw", watched)
    list(trained.sample(SUMS[:6], EIGHT))
    assert len(seen) > 20
    assert 0 < max(seen) < decoding.TIE_MARGIN / 2 / 25


def test_seed_sample_and_step_decide(engine):
    a, b = (dict(engine.sample([ask("same", seed)], FOUR))[0] for seed in (1, 2))
    assert len({*tokens(a), *tokens(b)}) == 8
    again = dict(engine.sample([ask("same", 1), ask("same", 1)], FOUR))
    assert tokens(again[0]) == tokens(again[1]) == tokens(a)


@pytest.mark.parametrize("n", [1, 2])
def test_greedy_is_the_most_probable(trained, n):
    group = next(trained.sample(SUMS[:1], EIGHT._replace(n=n, temperature=0.0)))[1]
    rows = TruePolicy(EMBEDDED).rows(group.prompt_token_ids, group.samples[0].token_ids)
    assert rows.argmax(-1).tolist() == list(group.samples[0].token_ids)
    assert tokens(group) == [tokens(group)[0]] * n


# --- the distribution -------------------------------------------------------------------


def check_logprobs(engine, path, prompts, wanted):
    """Log-probabilities are those of a full pass in float32, whatever the settings."""
    true, most = TruePolicy(path), 0.0
    for _, group in engine.sample(prompts, wanted):
        for sample in group.samples:
            expected = true.logprobs(group.prompt_token_ids, sample.token_ids)
            most = max(most, np.abs(np.subtract(expected, sample.logprobs)).max())
    assert 0 < most < LOG_PROBS


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_logprobs_are_those_of_a_full_pass(tmp_path, kv_heads):
    save_policy(tmp_path, num_key_value_heads=kv_heads)
    engine = TransformersEngine(tmp_path)
    assert engine._store is SharedPrompts
    check_logprobs(engine, tmp_path, PROMPTS[:6], Settings(3, 0.7, 0.9, 60))


def test_logprobs_of_the_trained_policy(trained):
    check_logprobs(trained, EMBEDDED, SUMS, EIGHT._replace(n=3))


def test_trained_policy_is_sampled_as_it_is(trained):
    """Over all positions of all responses, by chi-square."""
    assert TruePolicy(EMBEDDED).p_value(g for _, g in trained.sample(SUMS, EIGHT)) > 1e-3


def test_tokens_are_as_frequent_as_those_of_generate(engine, folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    wanted = Settings(n=800, temperature=0.8, top_p=0.9, max_tokens=3)
    group = dict(engine.sample([ask("go")], wanted))[0]
    torch.manual_seed(0)
    prompt = torch.tensor([group.prompt_token_ids])
    theirs = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        do_sample=True,
        temperature=0.8,
        top_p=0.9,
        top_k=0,
        max_new_tokens=3,
        num_return_sequences=800,
    )[:, prompt.shape[1] :].numpy()
    ours = np.array([(*ids, 0, 0)[:3] for ids in tokens(group)])
    for step in range(3):
        counts = np.stack([np.bincount(x[:, step], minlength=300) for x in (ours, theirs)])
        often = counts.sum(0) >= 20
        table = np.column_stack((counts[:, often], counts[:, ~often].sum(1)))
        assert stats.chi2_contingency(table[:, table.sum(0) > 0]).pvalue > 1e-3


# --- other architectures, weights, processes --------------------------------------------


def test_window_on_the_last_tokens(tmp_path):
    save_policy(tmp_path, use_sliding_window=True, sliding_window=8, max_window_layers=0)
    engine = TransformersEngine(tmp_path)
    assert engine._store is OneGroup
    check_logprobs(engine, tmp_path, PROMPTS[:5], FOUR)


def test_learned_positions(tmp_path, folder):
    config = GPT2Config(vocab_size=300, n_embd=32, n_layer=2, n_head=2, n_positions=128)
    GPT2LMHeadModel(config).save_pretrained(tmp_path)
    engine = TransformersEngine(folder)
    engine.load_weights(tmp_path, 1)
    check_logprobs(engine, tmp_path, PROMPTS[:5], FOUR)


def test_few_prompts_take_little_memory(engine, monkeypatch):
    made = []

    def store(model, n, groups):
        made.append(groups)
        return SharedPrompts(model, n, groups)

    monkeypatch.setattr(engine, "_store", store)
    for prompts in (PROMPTS[:3], PROMPTS[:1]):
        assert len(dict(engine.sample(prompts, FOUR))) == len(prompts)
    assert made == [3, 1]


@pytest.mark.parametrize("file", ["", "model.safetensors"])
def test_weights_reload(folder, groups, tmp_path, file):
    save_policy(tmp_path, seed=1)
    engine = TransformersEngine(folder)
    engine.load_weights(tmp_path / file, 7)
    other = dict(engine.sample(PROMPTS, FOUR))
    assert {group.version for group in other.values()} == {7}
    fresh = TransformersEngine(tmp_path, name=str(folder), version=7)
    assert other == dict(fresh.sample(PROMPTS, FOUR))
    assert all_tokens(other.items()) != all_tokens(groups.items())


@pytest.mark.parametrize("sizes", [{"num_hidden_layers": 1}, {"hidden_size": 48}])
def test_weights_of_another_policy_change_nothing(folder, groups, tmp_path, sizes):
    engine = TransformersEngine(folder)
    save_policy(tmp_path, seed=1, **sizes)
    for file, reason in (
        ("model.safetensors", "they are those of another policy"),
        ("no.safetensors", "No such file"),
    ):
        with pytest.raises(EngineError, match=f"cannot load the weights .*{reason}"):
            engine.load_weights(tmp_path / file, 7)
    assert dict(engine.sample(PROMPTS, FOUR)) == groups


@pytest.mark.parametrize("workers", [1, 2])
def test_samples_do_not_depend_on_processes(answers, workers):
    engine = EngineProcesses(partial(TransformersEngine, EMBEDDED), workers=workers)
    try:
        some = range(0, len(SUMS), 3)
        for chunk in (range(len(SUMS)), some):
            results = all_tokens(engine.sample([SUMS[i] for i in chunk], EIGHT))
            assert results == {place: answers[i][:8] for place, i in enumerate(chunk)}
    finally:
        engine.close()


def test_processes_reload_weights(tmp_path, folder):
    save_policy(tmp_path, seed=1)
    expected = all_tokens(TransformersEngine(tmp_path).sample(PROMPTS[:4], FOUR))
    engine = EngineProcesses(partial(TransformersEngine, folder), workers=2)
    try:
        engine.load_weights(tmp_path, 3)
        results = dict(engine.sample(PROMPTS[:4], FOUR))
        assert all_tokens(results.items()) == expected
        assert {group.version for group in results.values()} == {3}
        with pytest.raises(EngineError, match=r"^cannot load the policy '/no/where'; "):
            engine.load_weights("/no/where", 4)
        assert dict(engine.sample(PROMPTS[:4], FOUR)) == results
    finally:
        engine.close()


def test_a_device_that_is_not_there(folder):
    with pytest.raises(EngineError, match=r"^cannot use device 'cuda:99'; "):
        TransformersEngine(folder, device="cuda:99")


def test_every_token_is_reported_while_groups_are_under_way(engine):
    reported = []
    with listening(reported.append):
        results = engine.sample(PROMPTS[:3], FOUR)
        first = next(results)
        before = len(reported)
        groups = [first, *results]
    assert before > 1
    assert sum(reported) == sum(len(ids) for _, group in groups for ids in tokens(group))
