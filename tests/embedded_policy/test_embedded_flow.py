"""The shipped policy `embedded_flow`: its files, its behaviour, and a build of it from nothing."""

import hashlib
import json
import re

import pytest
import torch
from lookup_figures import playing
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from rejuice.operators.sampling.engines import EMBEDDED_FLOW, policy_path
from tools.embedded_policy.build import CURRICULA, RECORD, build
from tools.embedded_policy.lookups import LookupCurriculum
from tools.embedded_policy.model import build_model

pytestmark = pytest.mark.slow


def figures(folder):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return playing(folder, 300, 4)
    finally:
        torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def shipped():
    return figures(EMBEDDED_FLOW)


def test_its_name_is_resolved():
    assert policy_path("embedded_flow") == str(EMBEDDED_FLOW)
    assert EMBEDDED_FLOW.name == "embedded_flow"
    assert CURRICULA["embedded_flow"] == LookupCurriculum()


def test_it_is_small_and_names_no_place():
    assert (EMBEDDED_FLOW / "model.safetensors").stat().st_size < 2_000_000
    for file in EMBEDDED_FLOW.iterdir():
        assert not re.search(rb"/(?:home|root|tmp|usr|Users)/", file.read_bytes()), file.name


def test_its_record_is_of_its_weights():
    record = json.loads((EMBEDDED_FLOW / RECORD).read_text())
    weights = (EMBEDDED_FLOW / "model.safetensors").read_bytes()
    assert record["seed"] == 0
    assert record["weights"] == hashlib.sha256(weights).hexdigest()


def test_its_tokenizer_and_architecture_are_those_of_the_code():
    built, loaded = LookupCurriculum().tokenizer(), AutoTokenizer.from_pretrained(EMBEDDED_FLOW)
    assert json.loads(loaded.backend_tokenizer.to_str()) == json.loads(
        built.backend_tokenizer.to_str()
    )
    assert loaded.chat_template == built.chat_template
    ours = build_model(built, 0).config.to_dict()
    theirs = AutoConfig.from_pretrained(EMBEDDED_FLOW).to_dict()
    for config in (ours, theirs):
        for key in ("transformers_version", "dtype", "architectures", "_name_or_path"):
            config.pop(key, None)
    assert ours == theirs


def test_transformers_loads_it():
    model = AutoModelForCausalLM.from_pretrained(EMBEDDED_FLOW)
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED_FLOW)
    assert type(model).__name__ == "Qwen2ForCausalLM"
    assert model.dtype == torch.bfloat16
    assert model.config.eos_token_id == tokenizer.eos_token_id
    assert GenerationConfig.from_pretrained(EMBEDDED_FLOW).eos_token_id == tokenizer.eos_token_id


def test_there_is_room_to_learn(shipped):
    """Every kind of question is answered now and then, and none of them well."""
    assert 0.2 <= shipped["success"] <= 0.4
    assert shipped["pass@4"] >= shipped["success"] + 0.2
    for kind in ("count", "price", "pair", "hops"):
        assert 0.04 <= shipped[f"kind {kind}"] <= 0.75
    assert 0.05 <= shipped["tool errors per call"] <= 0.2
    assert 2.5 <= shipped["turns"] <= 3.5


@pytest.mark.rebuild
def test_rebuilt_it_behaves_the_same(shipped, tmp_path):
    """As another seed would: no processor gives the shipped bytes, see `test_embedded.py`."""
    build(tmp_path / "rebuilt", curriculum=CURRICULA["embedded_flow"])
    rebuilt = figures(tmp_path / "rebuilt")
    print({name: (shipped[name], rebuilt[name]) for name in shipped})
    assert rebuilt["success"] == pytest.approx(shipped["success"], abs=0.1)
    assert rebuilt["turns"] == pytest.approx(shipped["turns"], abs=0.3)
    assert rebuilt["tool errors per call"] == pytest.approx(
        shipped["tool errors per call"], abs=0.05
    )
