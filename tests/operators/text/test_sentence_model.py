"""A tiny GTE-Qwen2 against what plain transformers computes of its weights by hand."""

import importlib.util
import json
import shutil

import numpy as np
import pytest
from tiny_embedder import LONGEST, edit_json, save_embedder
from tiny_policy import END

from rejuice.operators import RecipeError
from rejuice.operators.text import embedding
from rejuice.operators.text.embedding import EmbeddingFields, SentenceEmbedder, load_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("sentence_transformers") is None,
        reason="needs sentence-transformers",
    ),
]

TEXTS = ["It is 4.", "so 2 + 2 makes 4, and the answer is 4", "five", "x" * 300]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return save_embedder(tmp_path_factory.mktemp("models") / "gte")


@pytest.fixture
def folder(saved, tmp_path):
    """A copy that a test may edit."""
    return shutil.copytree(saved, tmp_path / "gte")


def of_model(folder, **options):
    model = {"backend": "sentence_transformers", "model": str(folder), "device": "cpu"}
    return EmbeddingFields(**model, **options)


def loaded(folder, **options):
    return load_model(of_model(folder, **options))


def embedder(folder, **options):
    return SentenceEmbedder(of_model(folder, **options))


def by_hand(folder, texts, *, causal=False, pool=lambda vectors: vectors[-1]):
    """Unit vectors: bytes as tokens and the EOS token, one text at a time, every mask written out."""
    import torch
    from transformers import Qwen2Model

    model = Qwen2Model.from_pretrained(folder, dtype=torch.float32).eval()
    vocab = json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    found = []
    for text in texts:
        ids = [*(vocab[each.replace(" ", "Ġ")] for each in text[: LONGEST - 1]), vocab[END]]
        mask = torch.zeros(len(ids), len(ids))
        if causal:
            mask += torch.full_like(mask, torch.finfo(mask.dtype).min).triu(1)
        with torch.inference_mode():
            made = model(torch.tensor([ids]), attention_mask=mask[None, None])
        vector = pool(made.last_hidden_state[0]).numpy()
        found.append(vector / np.linalg.norm(vector))
    return np.stack(found)


@pytest.mark.parametrize("batching", ["of_fixed_shape", "of_similar_length"])
def test_the_vectors_are_those_of_the_last_token_of_a_model_without_a_causal_mask(folder, batching):
    embed = embedder(folder, attention="bidirectional")
    embed.batching = getattr(embedding, batching)
    right = by_hand(folder, TEXTS)
    assert np.abs(embed(TEXTS) - right).max() < 1e-4
    assert np.abs(by_hand(folder, TEXTS, causal=True) - right).max() > 0.01


@pytest.mark.parametrize(
    ("config", "options", "kind"),
    [
        ({}, {"attention": "bidirectional"}, "bidirectional"),
        ({"is_causal": True}, {"attention": "bidirectional"}, "bidirectional"),
        ({"is_causal": False}, {}, "bidirectional"),
        ({"is_causal": False}, {"attention": "causal"}, "causal"),
        ({}, {}, "causal"),
    ],
)
def test_attention_is_what_the_recipe_says_or_else_the_config(folder, config, options, kind):
    edit_json(folder / "config.json", **config)
    found = embedder(folder, **options)(TEXTS)
    assert np.abs(found - by_hand(folder, TEXTS, causal=kind == "causal")).max() < 1e-4


@pytest.mark.parametrize("kind", ["bidirectional", "causal"])
def test_a_vector_does_not_depend_on_whether_others_in_the_batch_are_padded(folder, kind):
    """transformers leaves out the mask of a batch without padding."""
    texts = ["x" * n for n in (15, 10, 31, 20, 63, 50, 300, 70)]
    together = embedder(folder, attention=kind)(texts)
    for text, vector in zip(texts, together, strict=True):
        assert (embedder(folder, attention=kind)([text])[0] == vector).all()


OWN_CLASS = {"AutoModel": "modeling_own.OwnModel"}


def test_a_class_of_transformers_in_place_of_the_models_own_is_an_error(folder):
    edit_json(folder / "config.json", auto_map=OWN_CLASS)
    with pytest.raises(RecipeError) as error:
        loaded(folder)
    for fact in (str(folder), "Qwen2Model", "modeling_own.OwnModel", "set attention"):
        assert fact in str(error.value)
    assert np.abs(
        embedder(folder, attention="bidirectional")(TEXTS) - by_hand(folder, TEXTS)
    ).max() < 1e-4  # fmt: skip


@pytest.fixture
def own_code(folder, tmp_path, monkeypatch):
    """Makes the code that comes with the model."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", tmp_path / "modules")
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    edit_json(folder / "config.json", auto_map=OWN_CLASS)
    return (folder / "modeling_own.py").write_text


def test_the_models_own_code_runs_if_it_is_trusted(folder, own_code):
    own_code(
        "from transformers import Qwen2Model\n"
        "class OwnModel(Qwen2Model):\n"
        "    def forward(self, *args, **kwargs):\n"
        "        return super().forward(*args, **{**kwargs, 'is_causal': False})\n"
    )
    found = embedder(folder, trust_remote_code=True)(TEXTS)
    assert np.abs(found - by_hand(folder, TEXTS)).max() < 1e-4


def test_code_that_needs_another_version_of_transformers_is_one_line(folder, own_code):
    own_code("from transformers import Qwen2ModelOfLongAgo as OwnModel\n")
    with pytest.raises(RecipeError) as error:
        loaded(folder, trust_remote_code=True)
    line = str(error.value)
    assert line.startswith(f"embedding model '{folder}' does not load: cannot import name")
    assert line.endswith(
        "; its own code may need another version of transformers; trust_remote_code: false"
    )


@pytest.mark.parametrize("stated", ["in the recipe", "in the tokenizer's config", "nowhere"])
def test_the_eos_token_is_appended_where_it_is_stated(folder, stated):
    edit_json(folder / "tokenizer_config.json", add_eos_token=stated == "in the tokenizer's config")
    tokenizer = loaded(folder, append_eos=stated == "in the recipe").tokenizer
    long = tokenizer("x" * 300, truncation=True, max_length=LONGEST)["input_ids"]
    assert len(long) == LONGEST
    ends = [ids[-1] == tokenizer.eos_token_id for ids in (tokenizer("It")["input_ids"], long)]
    assert ends == [stated != "nowhere"] * 2


def test_a_tokenizer_without_an_eos_token_is_an_error(folder):
    edit_json(folder / "tokenizer_config.json", eos_token=None, add_eos_token=False)
    with pytest.raises(RecipeError) as error:
        loaded(folder, append_eos=True)
    assert str(error.value) == (
        f"the tokenizer of embedding model '{folder}' cannot append an EOS token; set append_eos: "
        "false, or trust_remote_code: true if it has code of its own"
    )


def test_pooling_can_be_set(folder):
    found = embedder(folder, attention="bidirectional", pooling="mean")(TEXTS)
    assert np.abs(found - by_hand(folder, TEXTS, pool=lambda v: v.mean(0))).max() < 1e-4


def test_a_model_without_a_longest_text_takes_any(folder):
    """As that of T5: its config.json has no number of positions, and its tokenizer no limit."""
    found = embedder(folder, attention="bidirectional")
    found._model.max_seq_length = int(1e30)
    vectors = found(["x" * 300, "x" * (LONGEST - 1)])
    assert (vectors[1] == embedder(folder, attention="bidirectional")(["x" * 300])[0]).all()
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-3


def test_a_model_without_pooling_is_an_error_where_pooling_is_set(folder):
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps(modules[:1]))
    with pytest.raises(RecipeError) as error:
        loaded(folder, pooling="mean")
    assert str(error.value) == (
        f"embedding model '{folder}' has no pooling module, which pooling: mean would change; "
        "leave pooling out"
    )


PROMPTS = {"query": "Instruct: compare\nQuery: ", "document": ""}


def test_a_prompt_is_put_before_each_text_and_that_of_the_model_is_the_default(folder):
    texts, prompt = TEXTS[:3], PROMPTS["query"]
    plain = embedder(folder)([prompt + text for text in texts])
    assert (embedder(folder, prompt=prompt)(texts) == plain).all()
    assert (embedder(folder)(texts) != plain).any(axis=1).all()
    edit_json(
        folder / "config_sentence_transformers.json", prompts=PROMPTS, default_prompt_name="query"
    )
    assert (embedder(folder)(texts) == plain).all()
    assert (embedder(folder, prompt="")(texts) != plain).any(axis=1).all()


def test_a_prompt_that_the_pooling_leaves_out_is_left_out(folder):
    edit_json(
        folder / "1_Pooling" / "config.json",
        include_prompt=False,
        pooling_mode_lasttoken=False,
        pooling_mode_mean_tokens=True,
    )
    prompt, texts = PROMPTS["query"], TEXTS[:3]
    embed = embedder(folder, prompt=prompt)
    theirs = embed._model.encode(texts, prompt=prompt, normalize_embeddings=True)
    assert np.abs(embed(texts) - theirs).max() < 1e-4
    whole = embedder(folder)([prompt + text for text in texts])
    assert np.abs(whole - theirs).max() > 0.01
