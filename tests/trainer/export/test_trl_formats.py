"""Completions and pairs: which rows they have, and that TRL reads them."""

import importlib
import json
import subprocess
import sys
from collections import Counter, defaultdict

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trajectories import action, call

from rejuice.operators import DataError
from rejuice.operators.columns import MESSAGES, TURNS
from rejuice.trainer.export.huggingface import export_hf
from rejuice.trainer.export.trl_formats import Completions, Pairs

VERDICTS = ("correct", "wrong_answer", "no_answer", "timeout", "verifier_error", None)
FAILED = ("timeout", "verifier_error", None)


def chat(text, role="user"):
    return [{"role": role, "content": text}]


def rows(**columns):
    """A table of rollouts; of `prompt` and `response`, what is not given is made up."""
    n = len(next(iter(columns.values())))
    columns = {
        "prompt": pa.array([chat(name) for name in columns.get("prompt_id", "p" * n)], MESSAGES),
        "response": pa.array([f"response {k}" for k in range(n)], pa.string()),
        **columns,
    }
    types = {"prompt_id": pa.string(), "verdict": pa.string(), "reward": pa.float64()}
    return pa.table(
        {
            name: values if isinstance(values, pa.Array) else pa.array(values, types.get(name))
            for name, values in columns.items()
        }
    )


def group(rewards, responses=None, **columns):
    """The responses to one prompt."""
    responses = {} if responses is None else {"response": responses}
    return rows(prompt_id=["a"] * len(rewards), reward=rewards, **responses, **columns)


def texts(table, *names):
    """The texts of one-message chats, row by row."""
    columns = [[each[0]["content"] for each in table[name].to_pylist()] for name in names]
    return list(zip(*columns, strict=True))


# ------------------------------------------------------------------ completions


def test_only_correct_responses_are_completions():
    made = Completions().convert(rows(verdict=VERDICTS))
    assert made.table.to_pylist() == [
        {"prompt": chat("p"), "completion": chat("response 0", "assistant")}
    ]
    assert (made.rows, made.left_out) == (6, {"wrong": 2, "ungraded": 3})
    assert list(made.sentences()) == ["Rows left out: wrong 2, ungraded 3."]


@given(st.lists(st.tuples(st.sampled_from(VERDICTS), st.sampled_from(["x", None]))), st.booleans())
def test_every_row_is_a_completion_or_counted(found, correct_only):
    table = rows(
        verdict=[verdict for verdict, _ in found],
        response=pa.array([response for _, response in found], pa.string()),
    )
    expected = Counter(
        "no_response" if response is None
        else "written" if verdict == "correct" or not correct_only
        else "ungraded" if verdict in FAILED
        else "wrong"
        for verdict, response in found
    )  # fmt: skip
    form = Completions(correct_only=correct_only)
    if not expected["written"]:
        with pytest.raises(DataError, match=f"no completion is left of {len(found)} rows"):
            form.convert(table)
        return
    made = form.convert(table)
    assert {"written": made.table.num_rows, **made.left_out} == dict(expected)


@pytest.mark.recommended(
    "trainer/export/trl_formats.py", "give --all to write wrong and ungraded ones too"
)
def test_all_completions_are_counted_by_verdict():
    made = Completions(correct_only=False).convert(rows(verdict=VERDICTS))
    assert made.table.num_rows == 6
    assert list(made.sentences()) == ["Completions by verdict: correct 1, wrong 2, ungraded 3."]


@pytest.mark.recommended(
    "trainer/export/trl_formats.py",
    "run math_verify_mapper on them, or give --all to write them ungraded",
)
def test_rows_without_a_verdict_are_refused_unless_all_are_requested():
    table = rows(response=["x", "y"])
    with pytest.raises(DataError) as caught:
        Completions().convert(table)
    assert str(caught.value) == (
        "there is no column 'verdict', so nothing says which responses are correct; run "
        "math_verify_mapper on them, or give --all to write them ungraded"
    )
    made = Completions(correct_only=False).convert(table)
    assert made.table.num_rows == 2
    assert list(made.sentences()) == ["Completions by verdict: none is graded."]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            rows(verdict=["no_answer", None, "timeout"]),
            "no completion is left of 3 rows (wrong 1, ungraded 2); "
            "give --all to write wrong and ungraded ones too",
        ),
        (
            rows(verdict=["correct"], response=pa.nulls(1)),
            "no completion is left of 1 rows (no_response 1); sample responses",
        ),
        (
            rows(verdict=pa.array([True])),
            "column 'verdict' is bool, not text; give it as math_verify_mapper does",
        ),
        (rows(response=[1]), "column 'response' is int64, not text; give texts"),
        (rows(prompt=pa.array([1])), "column 'prompt' is int64; give chats or texts"),
        (
            pa.table({"response": ["x"]}),
            "column 'prompt' is missing; there are: response",
        ),
    ],
)
def test_what_gives_no_completion_is_an_error(table, message):
    with pytest.raises(DataError) as caught:
        Completions().convert(table)
    assert str(caught.value) == message


@pytest.mark.parametrize("prompts", [pa.array([[], None], MESSAGES), pa.array([None, None], pa.string())])  # fmt: skip
def test_a_response_without_its_prompt_is_no_completion(prompts):
    with pytest.raises(DataError, match=r"no completion is left of 2 rows \(no_prompt 2\)"):
        Completions().convert(rows(verdict=["correct"] * 2, prompt=prompts))


# ------------------------------------------------------------------ pairs

REWARDS = st.sampled_from([0.0, 0.1, 0.2, 0.1 + 0.2, 0.3, 1.0, -1.0, None, float("nan"), float("inf")])  # fmt: skip
ROLLOUTS = st.lists(
    st.tuples(st.sampled_from("abc"), REWARDS, st.sampled_from(["", "x", "yy", "zzzz", "w" * 9, None])),
    max_size=12,
)  # fmt: skip
OPTIONS = st.builds(
    Pairs,
    min_margin=st.sampled_from([0.0, 0.1, 0.2, 0.5, 1.0]),
    pairs_per_group=st.integers(1, 4),
    match_length=st.booleans(),
)


def table_of(rollouts):
    names, rewards, responses = zip(*rollouts, strict=True) if rollouts else ((), (), ())
    return rows(
        prompt_id=list(names), reward=list(rewards), response=pa.array(responses, pa.string())
    )


def pairs_of(form, rollouts):
    """Pairs by group, and what was counted; no pair at all is an error."""
    try:
        made = form.convert(table_of(rollouts))
    except DataError as error:
        if not error.found.startswith(f"no pair is left of {len(rollouts)} rows"):
            raise
        return {}, None
    found = defaultdict(list)
    columns = texts(made.table, "prompt", "chosen", "rejected")
    scores = zip(*(made.table[f"score_{side}"].to_pylist() for side in ("chosen", "rejected")), strict=True)  # fmt: skip
    for (name, chosen, rejected), pair in zip(columns, scores, strict=True):
        found[name].append(((chosen, rejected), pair))
    return dict(found), made


def finite(reward):
    return reward is not None and abs(reward) < float("inf")


@given(ROLLOUTS, OPTIONS)
def test_chosen_beats_rejected_of_the_same_group_by_the_margin(rollouts, form):
    usable = {row for row in rollouts if finite(row[1]) and row[2] is not None}
    for name, pairs in pairs_of(form, rollouts)[0].items():
        assert len(pairs) <= form.pairs_per_group
        for (chosen, rejected), (best, worst) in pairs:
            assert {(name, best, chosen), (name, worst, rejected)} <= usable
            assert best - worst > 1e-9  # 0.1 + 0.2 does not beat 0.3.
            assert best - worst >= form.min_margin - 1e-9
        used = [text for pair, _ in pairs for text in pair]
        assert len(used) == len(set(used))


@given(ROLLOUTS, OPTIONS)
def test_a_group_without_a_pair_has_none_and_is_counted(rollouts, form):
    found, made = pairs_of(form, rollouts)
    reasons, left_out = Counter(), Counter()
    for _, reward, response in rollouts:
        left_out["no_response" if response is None else "no_reward" if not finite(reward) else ""] += 1  # fmt: skip
    for name in {row[0] for row in rollouts}:
        group = [(r, t) for n, r, t in rollouts if n == name and finite(r) and t is not None]
        gaps = [a - b for a, text in group for b, other in group if text != other]
        if any(gap > 1e-9 and gap >= form.min_margin - 1e-9 for gap in gaps):
            assert name in found
        elif not group:
            reasons["no_row_left"] += 1
        elif not gaps:
            reasons["one_response"] += 1
        else:
            reasons["below_margin" if max(gaps) > 1e-9 else "equal_rewards"] += 1
    if made is not None:
        assert made.unpaired == dict(reasons)
        assert made.left_out == {name: count for name, count in left_out.items() if name}
        assert f"{len(found)} of {len(found) + reasons.total()} groups gave pairs." in made.notes


TIES = st.lists(st.tuples(st.just("a"), st.sampled_from([0.0, 1.0]), st.sampled_from("uvwxyz")), min_size=3, max_size=8)  # fmt: skip


@pytest.mark.slow
@given((ROLLOUTS | TIES).flatmap(lambda rows: st.tuples(st.just(rows), st.permutations(rows))), OPTIONS)  # fmt: skip
def test_pairs_do_not_depend_on_the_order_of_rows(orders, form):
    found, shuffled = (pairs_of(form, rollouts)[0] for rollouts in orders)
    assert found == shuffled


@given(ROLLOUTS, st.integers(1, 4))
def test_the_first_pair_has_the_largest_difference(rollouts, most):
    for name, pairs in pairs_of(Pairs(pairs_per_group=most), rollouts)[0].items():
        group = [(r, t) for n, r, t in rollouts if n == name and finite(r) and t is not None]
        widest = max(a - b for a, text in group for b, other in group if text != other)
        gaps = [best - worst for _, (best, worst) in pairs]
        assert gaps[0] == widest
        assert gaps == sorted(gaps, reverse=True)


def test_several_pairs_have_different_responses():
    table = group([1.0, 0.0, 0.9, 0.1], ["best", "worst", "good", "bad"])
    expected = [("best", "worst"), ("good", "bad")]
    for most in (1, 2, 3):
        made = Pairs(pairs_per_group=most).convert(table)
        assert texts(made.table, "chosen", "rejected") == expected[:most]


def test_matched_pairs_are_the_closest_in_length():
    responses = ["right", "a long wrong answer", "wrong", "a right answer"]
    table = group([1.0, 0.0, 0.1, 1.0], responses)
    made = Pairs(match_length=True).convert(table)
    assert texts(made.table, "chosen", "rejected") == [("right", "wrong")]
    assert made.notes[1] == "Mean length in characters: chosen 5.0, rejected 5.0."
    made = Pairs(match_length=True, pairs_per_group=2).convert(table)
    assert texts(made.table, "chosen", "rejected")[1] == ("a right answer", "a long wrong answer")


def test_length_is_in_tokens_where_all_responses_have_them():
    def made(*tokens):
        ids = pa.array(tokens, pa.list_(pa.int32()))
        table = group([1.0, 0.0, 0.0], ["xx", "yy", "zzzz"], response_token_ids=ids)
        return Pairs(match_length=True).convert(table)

    counted = made([1], [1, 2, 3], [1, 2])
    assert texts(counted.table, "rejected") == [("zzzz",)]
    assert counted.notes[1] == "Mean length in tokens: chosen 1.0, rejected 2.0."
    partly = made([1], None, [1, 2])
    assert texts(partly.table, "rejected") == [("yy",)]
    assert partly.notes[1] == "Mean length in characters: chosen 2.0, rejected 2.0."


@pytest.mark.recommended("trainer/export/trl_formats.py", "give a smaller --min_margin")
def test_a_margin_is_met_in_spite_of_rounding():
    made = Pairs(min_margin=0.1).convert(
        group([0.3, 0.2])
    )  # Their difference is 0.09999999999999998.
    assert made.table.num_rows == 1
    single = pa.array([0.3, 0.2], pa.float32())
    assert Pairs(min_margin=0.1).convert(group(single)).table.num_rows == 1


def test_chosen_responses_are_counted_by_verdict():
    made = Pairs().convert(group([0.6, 0.1], verdict=["wrong_answer", "no_answer"]))
    assert made.notes[-1] == "Chosen by verdict: correct 0, wrong 1, ungraded 0."


def test_rows_of_no_known_prompt_are_in_no_pair():
    table = rows(prompt_id=["a", "a", None, None], prompt=pa.array([chat("a")] * 4, MESSAGES), reward=[1.0, 0.0, 2.0, -2.0])  # fmt: skip
    made = Pairs().convert(table)
    assert made.left_out == {"no_prompt": 2}
    assert made.table["score_chosen"].to_pylist() == [1.0]


@pytest.mark.parametrize(
    ("form", "table", "message"),
    [
        (Pairs(), group([1.0, 1.0]), "no pair is left of 2 rows (equal_rewards 1); give rows with different rewards to one prompt"),
        (Pairs(), group([1.0, None]), "no pair is left of 2 rows (no_reward 1, one_response 1); give rows with different rewards to one prompt"),
        (Pairs(), group([1.0, 0.0], ["x", "x"]), "no pair is left of 2 rows (one_response 1); give rows with different rewards to one prompt"),
        (Pairs(2.0), group([1.0, 0.0]), "no pair is left of 2 rows (below_margin 1); give a smaller --min_margin"),
        (Pairs(), rows(prompt_id=["a"]), "column 'reward' is missing; there are: prompt, response, prompt_id"),
        (Pairs(), group(pa.array([b"1"])), "column 'reward' is binary, not numeric; name a column of numbers"),
    ],
)  # fmt: skip
def test_what_gives_no_pair_is_an_error(form, table, message):
    with pytest.raises(DataError) as caught:
        form.convert(table)
    assert str(caught.value) == message


PICTURE = {"type": "image", "image": "cat.png", "text": None}
SHOWN = [{"role": "user", "content": [PICTURE, {"type": "text", "image": None, "text": "What?"}]}]


@pytest.mark.parametrize("form", [Completions(), Pairs()])
def test_pictures_are_kept(form):
    table = group([1.0, 0.0], prompt=pa.array([SHOWN] * 2), verdict=["correct", "wrong_answer"])
    assert form.convert(table).table["prompt"].to_pylist() == [SHOWN]
    beside = group([1.0, 0.0], verdict=["correct", "wrong_answer"], images=[["a.png"], ["a.png"]])
    assert form.convert(beside).table["images"].to_pylist() == [["a.png"]]


# ------------------------------------------------------------------ TRL

GRADED = {"verdict": ["correct", "wrong_answer"], "reward": [1.0, 0.0], "prompt_id": ["a", "a"]}


@pytest.fixture
def data_utils(monkeypatch):
    """TRL's functions for datasets, also where verl was imported, to which TRL is not there."""
    if sys.modules.get("trl", ...) is None:
        monkeypatch.delitem(sys.modules, "trl")
    return importlib.import_module("trl.data_utils")


@pytest.mark.slow  # It loads TRL.
@pytest.mark.parametrize("form", [Completions(), Pairs()])
def test_trl_knows_the_conversational_format(data_utils, form):
    from transformers import AutoTokenizer

    from rejuice.operators.sampling.engines import EMBEDDED

    example = form.convert(rows(**GRADED)).table.to_pylist()[0]
    assert data_utils.is_conversational(example)
    text = data_utils.apply_chat_template(example, AutoTokenizer.from_pretrained(EMBEDDED))
    assert text["prompt"].endswith("<|im_start|>assistant\n")
    answers = {name: text[name] for name in ("completion", "chosen", "rejected") if name in text}
    expected = {"completion": "response 0", "chosen": "response 0", "rejected": "response 1"}
    assert answers == {name: f"{expected[name]}<|im_end|>\n" for name in answers}


@pytest.mark.slow  # It loads TRL.
@pytest.mark.parametrize("form", [Completions(), Pairs()])
def test_prompts_that_are_texts_give_the_standard_format(data_utils, form):
    example = form.convert(rows(**GRADED, prompt=["p", "p"])).table.to_pylist()[0]
    assert not data_utils.is_conversational(example)
    answers = {"prompt": "p", "completion": "response 0", "chosen": "response 0", "rejected": "response 1"}  # fmt: skip
    assert all(example[name] == answers[name] for name in answers.keys() & example.keys())


TRAIN = """
import json, sys
from datasets import load_dataset
import trl
from rejuice.operators.sampling.engines import EMBEDDED

folder, cache, name = sys.argv[1:]
kind, config = getattr(trl, f"{name}Trainer"), getattr(trl, f"{name}Config")
trainer = kind(
    model=str(EMBEDDED), train_dataset=load_dataset(folder, split="train", cache_dir=cache),
    args=config(
        output_dir=cache, per_device_train_batch_size=2, max_steps=1, use_cpu=True, bf16=False,
        gradient_checkpointing=False, model_init_kwargs={"dtype": "float32"}, logging_steps=1,
        report_to="none", save_strategy="no", disable_tqdm=True))
trainer.train()
print(json.dumps(trainer.state.log_history[0]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "form", "agents"),
    [("SFT", Completions(), False), ("SFT", Completions(), True), ("DPO", Pairs(), True)],
)
def test_trl_trains_on_what_was_written(name, form, agents, tmp_path):
    import pyarrow.parquet as pq

    table = rows(**GRADED)
    if agents:
        turns = [[action([1]), call(), action([2], text=text)] for text in ("4", "5")]
        cells = [[turn._asdict() for turn in each] for each in turns]
        table = table.append_column("turns", pa.array(cells, TURNS))
    pq.write_table(table, tmp_path / "curated.parquet")
    export_hf(tmp_path / "curated.parquet", tmp_path / "hf", form)
    words = [sys.executable, "-c", TRAIN, tmp_path / "hf", tmp_path / "cache", name]
    done = subprocess.run(words, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1])["loss"] > 0
