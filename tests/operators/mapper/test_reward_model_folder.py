"""A reward model in a folder computes what transformers and TRL compute, in any batch."""

import json
import math

import numpy as np
import pyarrow as pa
import pytest
from tiny_policy import save_policy
from tiny_reward_model import save_reward_model

from rejuice.operators import EngineError
from rejuice.operators.check import check_operator
from rejuice.operators.columns import MESSAGES
from rejuice.operators.mapper.reward_model_mapper import RewardModelMapper

pytestmark = pytest.mark.slow


@pytest.fixture
def make():
    """Operators that are closed in the end."""
    made = []

    def make(**fields):
        made.append(RewardModelMapper(**fields))
        return made[-1]

    yield make
    for operator in made:
        operator.close()


def table_of(*texts):
    """Rows with these responses."""
    chat = [{"role": "user", "content": "Why?"}]
    return pa.table(
        {
            "prompt_id": ["p"] * len(texts),
            "prompt": pa.array([chat] * len(texts), MESSAGES),
            "response": pa.array(texts, pa.string()),
        }
    )


def rewards(change):
    """The rewards, and why they are missing."""
    return [change.columns[f"reward_model{end}"].to_pylist() for end in ("", "_missing")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_reward_model(tmp_path_factory.mktemp("reward_model"))


def responses(count):
    """Responses of many lengths."""
    return table_of(*("x" * (number * 7 % 97) + str(number) for number in range(count)))


def by_transformers(folder, table):
    """The model's own outputs, each text alone and without padding, float64[N, K]."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32)
    found = []
    for row in table.to_pylist():
        chat = [*row["prompt"], {"role": "assistant", "content": row["response"]}]
        ids = tokenizer.apply_chat_template(chat, return_tensors="pt", return_dict=True)
        with torch.inference_mode():
            found.append(model(**ids).logits[0].double().numpy())
    return np.stack(found)


@pytest.mark.parametrize(
    ("kind", "config"), [("qwen2", {}), ("qwen2", {"pad_token_id": None}), ("bert", {})]
)
def test_a_folder_gives_what_transformers_computes(make, tmp_path, kind, config):
    folder = save_reward_model(tmp_path / "rm", kind=kind, **config)
    table = responses(40)
    operator = make(folder=folder)
    operator.preflight()
    found = np.array(rewards(operator.apply(table))[0])
    expected = by_transformers(folder, table)[:, 0]
    assert np.ptp(expected) > 0.1
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)


def test_it_is_what_trl_would_train_on(make, folder):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    from trl.data_utils import apply_chat_template

    table = responses(12)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    messages = [
        {"messages": [*row["prompt"], {"role": "assistant", "content": row["response"]}]}
        for row in table.to_pylist()
    ]
    texts = [apply_chat_template(each, tokenizer)["text"] for each in messages]
    # As GRPOTrainer._calculate_rewards of TRL 1.16 does.
    inputs = tokenizer(
        text=texts,
        return_tensors="pt",
        padding=True,
        padding_side="right",
        add_special_tokens=False,
    )
    expected = model(**inputs).logits[:, 0].detach().double().numpy()
    found = np.array(rewards(make(folder=folder).apply(table))[0])
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)


def test_a_reward_is_the_same_in_any_chunk_to_the_bit(make, folder):
    operator, table = make(folder=folder), responses(40)
    whole = rewards(operator.apply(table))[0]
    for size in (1, 7):
        parts = [operator.apply(table.slice(start, size)) for start in range(0, 40, size)]
        assert [each for part in parts for each in rewards(part)[0]] == whole
    rows = dict(operator.process_rows(table, [5, 31, 2]))
    assert {row: rewards(change)[0] for row, change in rows.items()} == {
        row: [whole[row]] for row in (2, 5, 31)
    }


def test_equal_texts_go_through_the_model_once(make, folder):
    change = make(folder=folder).apply(table_of("a", "a", "b"))
    assert change.notes["asked"] == 2
    assert change.notes["same_as_another"] == 1


def test_a_text_beyond_the_model_is_missing_in_any_chunk(make, folder):
    table = table_of("a" * 200, "b", "c" * 60)
    operator = make(folder=folder)
    whole = rewards(operator.apply(table))
    assert whole[1] == ["too_long", None, None]
    assert rewards(operator.apply(table.slice(0, 1)))[1] == ["too_long"]
    assert rewards(make(folder=folder, max_length=50).apply(table))[1] == [
        "too_long",
        None,
        "too_long",
    ]


def test_labels_of_a_folder(make, tmp_path):
    folder, table = save_reward_model(tmp_path / "rm", outputs=3), responses(5)
    operator = make(folder=folder)
    found = f"the reward model '{folder}' has 3 outputs; set label to the one that is the reward"
    for call in (operator.preflight, lambda: operator.apply(table)):
        with pytest.raises(EngineError) as error:
            call()
        assert found in str(error.value)
    with pytest.raises(EngineError, match=r"label is 3, and the reward model .* has 3 outputs"):
        make(folder=folder, label=3).preflight()
    named = {"id2label": {0: "helpful", 1: "harmless"}, "label2id": {"helpful": 0, "harmless": 1}}
    named = save_reward_model(tmp_path / "named", outputs=2, **named)
    with pytest.raises(EngineError) as error:
        make(folder=named, label=2).preflight()
    found = f"label is 2, and the reward model '{named}' has 2 outputs: 0 helpful, 1 harmless"
    assert str(error.value) == f"{found}; count from 0"
    one = save_reward_model(tmp_path / "one")
    with pytest.raises(EngineError, match=r" has 1 output; leave label out$"):
        make(folder=one, label=1).preflight()
    third = rewards(make(folder=folder, label=2, activation="sigmoid").apply(table))[0]
    expected = 1 / (1 + np.exp(-by_transformers(folder, table)[:, 2]))
    np.testing.assert_allclose(third, expected, atol=1e-5, rtol=0)


def test_nan_of_a_folder_is_missing(make, tmp_path):
    import torch
    from safetensors.torch import load_file, save_file

    folder = save_reward_model(tmp_path / "rm")
    weights = load_file(folder / "model.safetensors")
    weights["score.weight"] = torch.full_like(weights["score.weight"], math.nan)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    change = make(folder=folder).apply(table_of("a", None))
    assert rewards(change) == [[None, None], ["not_a_number", "no_response"]]


def test_folders_that_are_no_reward_models(make, tmp_path, capfd):
    save_policy(tmp_path / "policy", num_hidden_layers=1)
    (tmp_path / "empty").mkdir()
    with pytest.raises(EngineError, match=r"has no weights of score.weight; name one of a model"):
        capfd.readouterr()
        make(folder=tmp_path / "policy", label=0).apply(table_of("a"))
    assert capfd.readouterr() == ("", "")
    with pytest.raises(EngineError) as error:  # transformers says that it has two outputs.
        make(folder=tmp_path / "policy").preflight()
    assert str(error.value) == (
        f"the folder '{tmp_path}/policy', a Qwen2ForCausalLM by its config.json, has no layer that "
        "gives a reward; name one of a model for sequence classification, "
        "...ForSequenceClassification"
    )
    with pytest.raises(EngineError, match="there is no folder"):
        make(folder=tmp_path / "nothing").preflight()
    with pytest.raises(EngineError, match=r"does not load: .*; name a folder that save_pretrained"):
        make(folder=tmp_path / "empty").preflight()


def test_a_change_in_a_folder_is_another_key(make, tmp_path):
    folder = save_reward_model(tmp_path / "rm")
    operator = make(folder=folder)
    key = operator.cache_key_fields()
    assert key == make(folder=folder).cache_key_fields()
    save_reward_model(folder, seed=1)
    assert operator.cache_key_fields() != key
    assert str(tmp_path) not in json.dumps(key)


def test_the_contract_of_a_folder(make, folder):
    check_operator(make(folder=folder), table_of("a", "bc" * 20, None, "a"))
