"""One truth: what `rejuice check` passes, `rejuice train` takes, and of what is wrong they say the
same line."""

import json
from pathlib import Path

import pytest
import yaml
from command import heavy_after, runner
from fake_run import PROCESS, write_recipe

from rejuice.operators.agents.tools.http_search import HttpSearch
from rejuice.operators.servers import client, judged_mapper
from rejuice.pipelines.cli import training as cli
from rejuice.pipelines.demo.datasets import write_dataset
from rejuice.pipelines.demo.problems import DemoOptions
from rejuice.pipelines.engine.trial import unmatched_warnings
from rejuice.pipelines.recipe.recipe import load
from rejuice.trainer.cpu import fork_server
from rejuice.trainer.launch import checks, prompts, training, verl_config
from rejuice.trainer.launch import checks as launch_preflight

_FOLDER = Path(__file__).resolve().parents[2] / "recipes"
RECIPES = sorted([*_FOLDER.glob("*.yaml"), *_FOLDER.glob("small_model/*.yaml")])
TEMPLATE, ROLLOUT, VERIFY, FORMAT, SUM = PROCESS
ADVANTAGE = {"grpo_advantage_mapper": {}}
ADDED = "No step writes the advantage: in training, grpo_advantage_mapper is added."
ASK, JUDGE = {"self_verification_mapper": {}}, {"judgement_reward_mapper": {}}
SECOND = {"policy_rollout_mapper": {"n": 2, "max_tokens": 16, "task": "verify"}}
SUM_JUDGED = {"reward_sum_mapper": {"task": "verify", "weights": {"verification": 1.0}}}


@pytest.fixture
def rejuice(monkeypatch, capsys, tmp_path):
    """The command; whatever takes long is not done."""
    monkeypatch.setattr(training, "launch", launched)
    monkeypatch.setattr(fork_server, "is_supported", lambda: False)
    monkeypatch.setattr(training, "of_run", lambda folder: [])
    for module in (prompts, launch_preflight):
        monkeypatch.setattr(module, "chat_encoder", lambda *_: lambda messages: [0] * 3)
    monkeypatch.setattr(verl_config, "validate", lambda run, resume: None)
    monkeypatch.setattr(cli, "needs", lambda *_: None)
    return runner(monkeypatch, capsys, tmp_path)


def launched(run, **_):
    """verl begins, and ends."""
    (run.folder / "verl.log").touch()
    return 1


def changed(step, **fields):
    ((name, before),) = step.items()
    return {name: {**before, **fields}}


GRADED = changed(TEMPLATE, reference_pattern="#### (.*)")
JUDGED = [TEMPLATE, ROLLOUT, VERIFY, SUM, ASK, SECOND, JUDGE, SUM_JUDGED]
WRONG = {
    "a filter after the advantage": (
        {"process": [*PROCESS, ADVANTAGE, {"length_filter": {"max": 9}}]},
        ", line 16, step 7: length_filter drops rows that were compared with their group already; leave it out of training",
    ),
    "a pattern without a group": (
        {"process": [changed(TEMPLATE, reference_pattern="#### .*"), *PROCESS[1:]]},
        ", line 5, step 1 prompt_template_mapper: of the first 20 rows of data.jsonl, none has a reference that can be graded against: '#### 0' (the reference is a worked solution, not a bare answer); let the first group of reference_pattern be the bare answer, as in '#### (.*)'",
    ),
    "no pattern": (
        {"process": PROCESS},
        ", line 5, step 1 prompt_template_mapper: of the first 20 rows of data.jsonl, none has a reference that can be graded against: '0 it is. #### 0' (the reference is a worked solution, not a bare answer); let the first group of reference_pattern be the bare answer, as in '#### (.*)'",
    ),
    "a group of something else": (
        {"process": [changed(TEMPLATE, reference_pattern="(####).*"), *PROCESS[1:]]},
        ", line 5, step 1 prompt_template_mapper: of the first 20 rows of data.jsonl, none has a reference that can be graded against: '####' (the reference is a worked solution, not a bare answer); let the first group of reference_pattern be the bare answer, as in '#### (.*)'",
    ),
    "a pattern that matches nothing, of rows that may be dropped": (
        {"process": [changed(TEMPLATE, reference_pattern="A: (.*)", on_bad_row="drop_row"), *PROCESS[1:]]},
        ", line 5, step 1 prompt_template_mapper: of the first 20 rows of data.jsonl, none matches reference_pattern 'A: (.*)' in column 'answer'; change the pattern, or put rows that match it first",
    ),
    "a pattern that matches nothing": (
        {"process": [changed(TEMPLATE, reference_pattern="A: (.*)"), *PROCESS[1:]]},
        ", line 5, step 1 prompt_template_mapper: of the first 20 rows of data.jsonl, none matches reference_pattern 'A: (.*)' in column 'answer'; change the pattern, or put rows that match it first",
    ),
    "a pattern that does not match a row": (
        {"process": [changed(TEMPLATE, reference_pattern="#### ([1-9])"), *PROCESS[1:]]},
        "data.jsonl, step 1 prompt_template_mapper: no reference in column 'answer': '0 it is. #### 0', '#### ([1-9])' not found (its question: '0 + 0?'); fix the row, or set on_bad_row: drop_row to leave such rows out",
    ),
    "a column that is not there": (
        {"process": [changed(TEMPLATE, question="title"), *PROCESS[1:]]},
        ", line 5, step 1 prompt_template_mapper: column 'title' is missing; there are: answer, level, question",
    ),
    "no reward": (
        {"process": PROCESS[:4]},
        ": no step after policy_rollout_mapper writes the column reward; add a reward_sum_mapper",
    ),
    "no sampling": (
        {"process": [TEMPLATE, {"recorded_rollout_mapper": {"columns": ["answer"]}}, *PROCESS[2:]]},
        ": no step samples responses; training needs one policy_rollout_mapper or agent_rollout_mapper, and a second where the policy judges",
    ),
    "recorded responses beside those that are sampled": (
        {"process": [GRADED, ROLLOUT, {"recorded_rollout_mapper": {"columns": ["answer"]}}, *PROCESS[2:]]},
        ", line 10, step 3: recorded_rollout_mapper makes responses that training has not sampled; leave it out, or train on recorded responses by train.replay",
    ),
    "two policies": (
        {"process": [*JUDGED[:5], changed(SECOND, temperature=0.5, on_policy=False), *JUDGED[6:]]},
        ", line 15, step 6: the two policy_rollout_mappers differ in temperature; training has one policy, which answers and judges",
    ),
    "a schedule without judgements": (
        {"process": PROCESS, "train": {"schedule": "mixed"}},
        ": schedule mixed trains on judgements, of which the recipe has none; add self_verification_mapper, policy_rollout_mapper: {task: verify} and their reward, or choose schedule generate",
    ),
    "a validation without a grade": (
        {"process": [TEMPLATE, ROLLOUT, FORMAT, {"reward_sum_mapper": {"weights": {"format": 1.0}}}]},
        ": no step writes reward_accuracy, by which validation grades; add a verifier, such as math_verify_mapper, or leave the validation sets out",
    ),
    "a validation set of other columns": (
        {"train": {"validation_path": "other.jsonl"}},
        "train.validation_path, try.yaml, line 5, step 1 prompt_template_mapper: column 'question' is missing; there are: answer, problem",
    ),
    "a named validation set of other columns": (
        {"train": {"validation_path": None, "validation": {"other": "other.jsonl"}}},
        "train.validation.other, try.yaml, line 5, step 1 prompt_template_mapper: column 'question' is missing; there are: answer, problem",
    ),
    "a validation set that overrides a step that is not there": (
        {"train": {"validation_path": None, "validation": {"other": {"path": "other.jsonl", "overrides": {"prompt_template": {}}}}}},
        ", train.validation.other.overrides: no step 'prompt_template' before sampling; did you mean 'prompt_template_mapper'?",
    ),
    "a validation set that overrides a field that is not there": (
        {"train": {"validation_path": None, "validation": {"other": {"path": "other.jsonl", "overrides": {"prompt_template_mapper": {"qestion": "problem"}}}}}},
        ", train.validation.other.overrides, prompt_template_mapper: unknown field 'qestion'; did you mean 'question'?",
    ),
    "a validation in parts": (
        {"train": {"verl": {"data.val_batch_size": 8}}},
        "train.verl: 'data.val_batch_size' cannot be 8: the recipe decides 'data.val_batch_size', which is None; leave it out, and set it by a field of the recipe",
    ),
    "a replay of responses that were not trained on": (
        {"train": {"replay": "data.jsonl"}},
        "data.jsonl has no column 'prompt_id'; replay needs what policy_rollout_mapper and reward_sum_mapper write",
    ),
    "a replay at another temperature": (
        {"process": [TEMPLATE, changed(ROLLOUT, temperature=0.7, on_policy=False), *PROCESS[2:]], "train": {"replay": "data.jsonl"}},
        ": temperature is 0.7, and stored log-probabilities are those of the policy itself; set the temperature of policy_rollout_mapper to 1",
    ),
    "a key that verl does not have": (
        {"train": {"verl": {"data.shufle": True}}},
        "verl has no key 'data.shufle'; did you mean 'data.shuffle'?",
    ),
    "a single response to each prompt": (
        {"process": [GRADED, changed(ROLLOUT, n=1), *PROCESS[2:]]},
        ": policy_rollout_mapper has n: 1, and grpo_advantage_mapper compares the responses of a group: no step would train; set n of policy_rollout_mapper to 2 or more",
    ),
    "responses that no pass has room for": (
        {"process": [GRADED, changed(ROLLOUT, max_tokens=16384), *PROCESS[2:]], "train": {"profile": "gpu"}},
        ": a prompt and its response may have 512 + 16,384 tokens, and train.gpu.tokens_per_gpu is 16,384; set it to 16896 or more, or lower max_tokens of policy_rollout_mapper",
    ),
    "fewer prompts than a step takes": (
        {"train": {"prompts_per_step": 64}},
        "data.jsonl gives 20 prompts, a step takes 64; set prompts_per_step lower",
    ),
    "prompts that are all too long": (
        {"train": {"max_prompt_tokens": 2}},
        "no prompt of validation.jsonl fits train.max_prompt_tokens, 2; set it higher: the longest has 17 tokens or more",
    ),
    "a filter that keeps no prompt": (
        {"process": [GRADED, {"column_range_filter": {"column": "level", "min": 9}}, *PROCESS[1:]], "train": {"validation_path": None}},
        "data.jsonl gives no prompt (below_min 20); change the steps before sampling, or the dataset",
    ),
    "a stage without a prompt": (
        {"process": [GRADED, {"curriculum_filter": {"column": "level", "stages": {0: {"max": 2}, 0.5: {"min": 5}}}}, *PROCESS[1:]]},
        ", line 7, step 2 curriculum_filter: the stage from 0.5 on matches none of 20 rows: level at least 5 in no row, but from 0 to 4; change the stage, or leave it out",
    ),
    "a validation set of which no prompt is left": (
        {"process": [changed(GRADED, where={"level": {"min": 1}}), *PROCESS[1:]], "train": {"validation_path": "easy.jsonl"}},
        "easy.jsonl gives no prompt (no_prompt 1; prompt_template_mapper: `where` matches none of 1 rows: level at least 1 in no row, but from 0 to 0); change the steps before sampling, or the dataset",
    ),
    "a tokenizer that cannot be read": (
        {"train": {"policy": "broken"}},
        "cannot load the tokenizer 'broken'; Model missing. at line 1 column 2",
    ),
    "an export onto its dataset": (
        {"export_path": "data.jsonl"},
        ": export_path data.jsonl would write over the dataset, or into its folder; give another export_path",
    ),
}  # fmt: skip


def write(tmp_path, process=None, train=None, **head):
    """The recipe, over worked solutions; right where no field is given."""
    process = [GRADED, *PROCESS[1:]] if process is None else process
    train = {"validation_path": "validation.jsonl", **(train or {})}
    path = write_recipe(tmp_path / "try.yaml", process=process, train=train, **head)
    data = tmp_path / "data.jsonl"
    text = "".join(
        f'{{"question": "{a} + {b}?", "answer": "{a + b} it is. #### {a + b}", "level": {a}}}\n'
        for a in range(5)
        for b in range(4)
    )
    data.write_text(text)
    for name in ("validation", "easy"):
        row = {"question": f"What are 90 and {name}?", "answer": "#### 91", "level": 0}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "tokenizer.json").write_text("{}")
    (tmp_path / "other.jsonl").write_text('{"problem": "1 + 1?", "answer": "#### 2"}\n')
    return path


@pytest.mark.slow
@pytest.mark.parametrize("what", WRONG)
def test_check_and_train_refuse_the_same_in_the_same_line(rejuice, tmp_path, what):
    fields, line = WRONG[what]
    path = write(tmp_path, **fields)
    code, out, err = rejuice("check", path)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err == f"rejuice: {'' if line[0] not in ',:' else 'try.yaml'}{line}\n"
    assert rejuice("train", path) == (2, "", err)
    assert rejuice("train", path, "--dry-run") == (2, "", err)
    assert not (tmp_path / "outputs").exists(), "nothing is made"


@pytest.mark.parametrize("what", [name for name in WRONG if "pattern" in name or "group" in name])
def test_run_refuses_what_cannot_be_graded_in_the_same_line(rejuice, tmp_path, what):
    path = write(tmp_path, **WRONG[what][0])
    assert rejuice("run", path, "-q") == rejuice("check", path)


def test_a_right_recipe_passes_both(rejuice, tmp_path):
    path = write(tmp_path)
    right = f"try.yaml: 5 steps, all fields and columns are right.\n{ADDED}\n"
    assert rejuice("check", path) == (0, right, "")
    code, _, err = rejuice("train", path, "-q")
    assert (code, err.splitlines()[0][:24]) == (1, "rejuice: training failed")


def test_an_export_may_be_selected_after_the_advantage(rejuice, tmp_path):
    """Training refuses it; `rejuice run` does not, and neither a check without `train:`."""
    path = write(tmp_path, process=[GRADED, *PROCESS[1:], ADVANTAGE, {"length_filter": {"max": 9}}])
    document = yaml.safe_load(path.read_text())
    del document["train"]
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    assert rejuice("check", path)[0] == 0


def test_what_is_not_there_yet_is_left_out_and_reported(rejuice, tmp_path, monkeypatch):
    path = write(tmp_path, train={"validation_path": "later.jsonl", "verl": {"data.shuffle": True}})
    right = f"try.yaml: 5 steps, all fields and columns are right.\n{ADDED}\n"
    line = "later.jsonl does not exist yet, so columns were not checked.\n"
    assert rejuice("check", path) == (0, right + line, "")
    assert rejuice("train", path, "--dry-run")[0] == 0
    code, _, err = rejuice("train", path)
    assert (code, err.splitlines()[-1][:36]) == (2, "rejuice: later.jsonl does not exist;")
    monkeypatch.setattr(checks, "find_spec", lambda name: None)
    _, out, _ = rejuice("check", path)
    assert out.endswith("verl is not installed, so the keys of train.verl were not checked.\n")


def test_a_validation_set_in_which_problems_repeat(rejuice, tmp_path):
    path = write(tmp_path, train={"validation_path": "aime.jsonl"})
    lines = [json.dumps({"question": text, "answer": "#### 1"}) + "\n" for text in "abc"]
    (tmp_path / "aime.jsonl").write_text("".join(lines * 4))
    code, out, _ = rejuice("check", path)
    assert (code, out.splitlines()[1:]) == (
        0,
        [
            ADDED,
            "validation: 9 of the first 12 rows repeat an earlier prompt and are left out; "
            "validation_n says how many responses each prompt gets",
        ],
    )


def test_the_split_is_not_of_the_validation_set(rejuice, tmp_path):
    path = write(tmp_path, split="train", train={"validation_path": "sets/test-*.jsonl"})
    (tmp_path / "sets").mkdir()
    for name in ("train-0.jsonl", "test-0.jsonl"):
        row = {"question": name, "answer": "#### 1"}
        (tmp_path / "sets" / name).write_text(json.dumps(row))
    assert rejuice("check", path)[0] == 0
    path.write_text(path.read_text().replace("sets/test-*.jsonl", "sets"))
    code, _, err = rejuice("check", path)
    found = "train.validation_path: sets has the splits test, train; let the path name its files"
    assert (code, err.count(found)) == (2, 1)
    assert "say `split" not in err  # The validation reads none.


def test_validation_prompts_that_train_are_reported(rejuice, tmp_path):
    path = write(tmp_path, train={"validation_path": "data.jsonl"})
    line = (
        "validation: 20 of 20 validation prompts are also in the dataset that trains; leave "
        "them out of one of the two\n"
    )
    assert line in rejuice("check", path)[1]
    assert f"rejuice: warning: {line}" in rejuice("train", path)[2]
    assert line not in rejuice("train", path, "-q", "--output", tmp_path / "quiet")[2]


def test_a_condition_that_no_row_matches_is_reported_before_anything_is_sampled(rejuice, tmp_path):
    verify = {"math_verify_mapper": {"where": {"level": 7}}}
    path = write(tmp_path, process=[GRADED, ROLLOUT, verify, *PROCESS[3:]])
    warning = (
        "rejuice: warning: try.yaml, line 10, step 3 math_verify_mapper: `where` matches none of "
        "20 rows: level is 7 in no row, but from 0 to 4\n"
    )
    assert rejuice("check", path)[2] == warning
    assert warning in rejuice("train", path)[2]
    assert warning in rejuice("train", path, "--dry-run")[2]
    assert warning not in rejuice("train", path, "-q", "--output", tmp_path / "quiet")[2]
    (line,) = unmatched_warnings(load(path).offline())
    assert line.endswith(warning[18:-1]), "`rejuice run` says it, too"


def test_a_condition_of_the_first_step_that_no_row_matches(rejuice, tmp_path):
    path = write(tmp_path, process=[changed(GRADED, where={"level": 7}), *PROCESS[1:]])
    code, _, err = rejuice("check", path, "--train.validation_path", "null")
    assert (code, err) == (
        2,
        "rejuice: data.jsonl gives no prompt (no_prompt 20; prompt_template_mapper: `where` "
        "matches none of 20 rows: level is 7 in no row, but from 0 to 4); change the steps "
        "before sampling, or the dataset\n",
    )


@pytest.mark.recommended("pipelines/cli/main.py", "but `rejuice run` refuses it")
def test_a_replay_does_not_read_the_dataset_and_check_says_so(rejuice, tmp_path):
    path = write(tmp_path, dataset_path="other.jsonl", train={"replay": "replay.jsonl"})
    replayed = dict.fromkeys(prompts._REPLAYED, "x")
    (tmp_path / "replay.jsonl").write_text(json.dumps(replayed) + "\n")
    code, out, err = rejuice("check", path)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "try.yaml: 5 steps, all fields are right.",
        ADDED.replace("training, ", "training, the stored one is taken, or if there is none, "),
        "other.jsonl is not read in training, but `rejuice run` refuses it: try.yaml, line 5, step "
        "1 prompt_template_mapper: column 'question' is missing; there are: answer, problem",
    ]
    assert rejuice("train", path, "--dry-run")[0] == 0
    refused = out.splitlines()[2].partition("refuses it: ")[2]
    assert rejuice("run", path) == (2, "", f"rejuice: {refused}\n")


@pytest.mark.slow
@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_our_own_recipes_pass_both(rejuice, monkeypatch, tmp_path, path):
    for module in (client, judged_mapper):
        monkeypatch.setattr(module, "check_server", lambda *_: None)
    monkeypatch.setattr(HttpSearch, "preflight", lambda _: None)
    document = yaml.safe_load(path.read_text())
    data = tmp_path / "problems.parquet"
    write_dataset(data, "arithmetic", DemoOptions(prompts=8))
    held_out = tmp_path / "held_out.parquet"
    write_dataset(held_out, "arithmetic", DemoOptions(prompts=8, split="validation"))
    # Documents, or tests of code, which other problems lack.
    generated = any(
        kind in path.read_text()
        for kind in ("documents: documents", "type: mixed", "type: numbers")
    )
    words = [] if generated else ["--dataset_path", data]
    if "dapo" in path.stem:
        words += ["--prompt_template_mapper.question", "question"]
        words += ["--prompt_template_mapper.reference", "level"]
    if "train" not in document:
        if "recorded_rollout_mapper" not in path.read_text():
            assert rejuice("check", path, *words)[0] == 0
        assert rejuice("check", path)[0] == 0
        return
    words += ["--train.prompts_per_step", 4, "--train.updates_per_step", 1]
    if document["train"].get("validation_path") and not generated:
        words += ["--train.validation_path", held_out]
    for name in document["train"].get("validation", {}):
        words += [f"--train.validation.{name}", f"{{path: {held_out}, n: 1}}"]
    code, out, err = rejuice("check", path, *words)
    assert (code, err) == (0, "")
    places = sum("on" in {str(k).replace("True", "on") for k in (fields or {})}
                  for each in document["process"] for fields in each.values())  # fmt: skip
    assert "he advantage " in out.splitlines()[1]
    assert len(out.splitlines()) == 2 + places
    assert rejuice("train", path, *words, "--dry-run")[0] == 0
    code, _, err = rejuice("train", path, *words, "-q")
    assert (code, err.splitlines()[0][:24]) == (1, "rejuice: training failed")


@pytest.mark.slow
def test_a_check_of_a_recipe_that_trains_is_light(tmp_path):
    path = write(tmp_path, train={"verl": {"data.shuffle": True}})
    # Arrow loads pandas where it makes arrays of the rows on which the first steps are tried.
    assert heavy_after(["check", path]) in ([], ["pandas"])
