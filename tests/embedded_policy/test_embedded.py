"""The shipped policy: its files, its behaviour, and a build of it from nothing."""

import hashlib
import json
import re

import pytest
import torch
from plain_sampling import EMBEDDED, load
from policy_figures import judging, solving
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from tools.embedded_policy.build import RECORD, build
from tools.embedded_policy.model import build_model
from tools.embedded_policy.problems import build_tokenizer

pytestmark = pytest.mark.slow


def figures(folder):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        model, tokenizer = load(folder)
        return {
            **solving(model, tokenizer, 400),
            "judging": judging(model, tokenizer, 400)["balanced accuracy"],
        }
    finally:
        torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def shipped():
    return figures(EMBEDDED)


def test_it_is_small_and_names_no_place():
    assert sum(file.stat().st_size for file in EMBEDDED.iterdir()) < 4_000_000
    for file in EMBEDDED.iterdir():
        assert not re.search(rb"/(?:home|root|tmp|usr|Users)/", file.read_bytes()), file.name


def test_its_record_is_of_its_weights():
    record = json.loads((EMBEDDED / RECORD).read_text())
    weights = (EMBEDDED / "model.safetensors").read_bytes()
    assert record["seed"] == 0
    assert record["weights"] == hashlib.sha256(weights).hexdigest()


def test_transformers_loads_it():
    model = AutoModelForCausalLM.from_pretrained(EMBEDDED)
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED)
    assert type(model).__name__ == "Qwen2ForCausalLM"
    assert model.dtype == torch.bfloat16
    assert sum(each.numel() for each in model.parameters()) == 743_424
    ids = tokenizer("Mia has 3 apples.", return_tensors="pt")["input_ids"]
    assert model(ids).logits.shape == (1, ids.shape[1], 800)
    assert tokenizer.decode(ids[0]) == "Mia has 3 apples."


def test_its_tokenizer_and_architecture_are_those_of_the_code():
    built, loaded = build_tokenizer(), AutoTokenizer.from_pretrained(EMBEDDED)
    assert json.loads(loaded.backend_tokenizer.to_str()) == json.loads(
        built.backend_tokenizer.to_str()
    )
    assert loaded.chat_template == built.chat_template
    ours = build_model(built, 0).config.to_dict()
    theirs = AutoConfig.from_pretrained(EMBEDDED).to_dict()
    for config in (ours, theirs):
        for key in ("transformers_version", "dtype", "architectures", "_name_or_path"):
            config.pop(key, None)
    assert ours == theirs


def test_its_config_is_sensible():
    config = AutoConfig.from_pretrained(EMBEDDED)
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED)
    assert config.model_type == "qwen2"
    assert config.max_position_embeddings == tokenizer.model_max_length == 2048
    assert config.vocab_size >= len(tokenizer)
    assert config.tie_word_embeddings
    assert config.eos_token_id == tokenizer.eos_token_id
    assert config.pad_token_id == tokenizer.pad_token_id


def test_nothing_bends_its_sampling():
    written = json.loads((EMBEDDED / "generation_config.json").read_text())
    bending = {
        "do_sample", "top_k", "top_p", "min_p", "temperature", "repetition_penalty", "max_length",
        "max_new_tokens",
    }  # fmt: skip
    assert bending.isdisjoint(written)
    assert GenerationConfig.from_pretrained(EMBEDDED).eos_token_id == written["eos_token_id"]


def test_there_is_room_to_learn(shipped):
    assert shipped["well-formed"] >= 0.9
    assert 0.25 <= shipped["pass@1"] <= 0.6
    assert shipped["pass@8"] >= shipped["pass@1"] + 0.2
    assert 0.55 <= shipped["judging"] <= 0.68


@pytest.mark.rebuild
def test_rebuilt_it_behaves_the_same(shipped, tmp_path):
    """As another seed would: no processor gives the shipped bytes.

    The intervals are those between seeds: training turns the last bit of a sum into other weights.
    That two builds on one machine are the same bytes is in `test_build.py`.
    """
    build(tmp_path / "rebuilt")
    rebuilt = figures(tmp_path / "rebuilt")
    print({name: (shipped[name], rebuilt[name]) for name in shipped})
    assert rebuilt["well-formed"] == pytest.approx(shipped["well-formed"], abs=0.03)
    assert rebuilt["pass@1"] == pytest.approx(shipped["pass@1"], abs=0.06)
    assert rebuilt["pass@8"] == pytest.approx(shipped["pass@8"], abs=0.08)
    assert rebuilt["judging"] == pytest.approx(shipped["judging"], abs=0.06)
