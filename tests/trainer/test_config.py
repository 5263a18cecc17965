"""The `train:` section: what it takes, and what it says of what it does not take."""

from pathlib import Path

import pytest
import yaml
from each import check_each
from fake_run import write_recipe

from rejuice.operators import RecipeError
from rejuice.operators.config import field_docs
from rejuice.pipelines.analysis.reference import table
from rejuice.pipelines.recipe.recipe import load
from rejuice.pipelines.recipe.train import (
    Cpu,
    Gpu,
    Lora,
    Loss,
    Megatron,
    Train,
    ValidationSet,
    Verification,
)
from rejuice.trainer.run import TrainingRun

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def read(tmp_path):
    def config(overrides=None, **train):
        return load(write_recipe(tmp_path / "try.yaml", train=train), overrides).head.train

    return config


def test_what_is_overridden_comes_before_the_recipe(read):
    found = read({"train.steps": "9", "train.profile": "gpu", "train.gpu.gpus": "2"}, steps=7)
    assert (found.steps, found.profile, found.gpu.gpus) == (9, "gpu", 2)


def test_it_takes_every_field_that_it_documents(read):
    config = read(
        gpu={"gpus": 2},
        loggers=["wandb"],
        verl={"trainer.balance_batch": True},
        schedule="verify_alter",
        verification={"every": 3},
    )
    assert config.gpu == Gpu(gpus=2)
    assert config.verification == Verification(every=3)
    assert config.loggers == ("wandb",)
    assert config.verl == {"trainer.balance_batch": True}
    assert Train.model_validate(config.model_dump(mode="json")) == config


def test_what_is_wrong_is_reported_in_a_line(tmp_path):
    """By whatever reads a recipe: `rejuice check` too."""
    cases = [
        ({"stps": 3}, ", line 16: unknown key 'train.stps'; did you mean 'steps'?"),
        ({"gpu": {"gpu": 3}}, ", line 17: unknown key 'train.gpu.gpu'; did you mean 'gpus'?"),
        ({"op_fusion": True}, ", line 16: unknown key 'train.op_fusion'"),
        ({"steps": 0}, ", line 16: 'train.steps' is 0; input should be greater than 0"),
        ({"steps": {"n": 1}}, ", line 16: 'train.steps' is {'n': 1}; input should be a valid integer"),
        ({"gpu": {"memory": 1.5}}, ", line 17: 'train.gpu.memory' is 1.5; input should be less than 1"),
        ({"gpu": {"strategy": "fsdp3"}}, ", line 17: 'train.gpu.strategy' is 'fsdp3'; input should be 'fsdp2' or 'megatron'"),
        ({"gpu": {"rollout": "trtllm"}}, ", line 17: 'train.gpu.rollout' is 'trtllm'; input should be 'vllm' or 'sglang'"),
        ({"gpu": {"rollout": "sglang", "reproducible": True}}, ", line 16, train.gpu: requests to SGLang take no seed: leave reproducible out, or choose rollout vllm"),
        ({"gpu": {"megatron": {"tensor_model_parallel_size": 2}}}, ", line 16, train.gpu: megatron is for strategy megatron: leave it out, or choose that"),
        ({"gpu": {"strategy": "megatron", "gpus": 6, "megatron": {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2}}}, ", line 16, train.gpu: megatron divides the policy among 4 GPUs, of which 6 are no multiple"),
        (
            {"lora": {"target_modules": ["q_proj", "lm_head"]}},
            ", line 16, train.lora: lm_head and embed_tokens cannot have an adapter: leave them out",
        ),
        (
            {"lora": {"target_modules": ".*(_proj|lm_head)"}},
            ", line 16, train.lora: lm_head and embed_tokens cannot have an adapter: leave them out",
        ),
        (
            {"lora": {"target_modules": ".*(_proj"}},
            ", line 16, train.lora: target_modules '.*(_proj' is no regular expression: missing ), unterminated subpattern at position 2",
        ),
        ({"lora": {}, "profile": "gpu", "gpu": {"strategy": "megatron"}}, ", line 15, train: lora trains by PEFT: leave lora out, or choose strategy fsdp2, not megatron"),
        (
            {"lora": {"target_modules": ".*_proj"}, "profile": "gpu", "gpu": {"rollout": "sglang"}},
            ", line 15, train: SGLang takes no regular expression for lora.target_modules: list the modules, or choose all-linear",
        ),
        ({"gpu": 8}, ", line 16: 'train.gpu' is 8; input should be a valid dictionary or instance of gpu"),
        ({"loggers": ["excel"]}, ", line 17: 'train.loggers' is 'excel'; input should be 'tensorboard', 'wandb', 'mlflow' or 'swanlab'"),
        ({"prompts_per_step": 10, "updates_per_step": 4}, ", line 15, train: prompts_per_step must be a multiple of updates_per_step"),
        ({"replay": "a", "refill": 1}, ", line 15, train: refill samples, and replay does not: leave one of them out"),
        ({"replay": "a", "schedule": "mixed"}, ", line 15, train: schedule mixed samples, and replay does not: leave one of them out"),
        ({"mode": "async"}, ", line 16: 'train.mode' is 'async'; input should be 'sync', 'colocate_async' or 'separate_async'"),
        ({"max_age": 2}, ", line 15, train: max_age is for modes that sample ahead, and mode is sync: leave it out, or choose colocate_async or separate_async"),
        ({"mode": "colocate_async", "sync_every": 2}, ", line 15, train: sync_every is for mode separate_async, and mode is colocate_async: leave it out, or choose that"),
        ({"gpu": {"rollout_gpus": 2}}, ", line 15, train: gpu.rollout_gpus is for mode separate_async, and mode is sync: leave it out, or choose that"),
        ({"mode": "separate_async", "profile": "gpu"}, ", line 15, train: mode separate_async samples on GPUs of its own: say how many in gpu.rollout_gpus"),
        ({"mode": "separate_async", "profile": "gpu", "gpu": {"rollout_gpus": 2}, "lora": {}}, ", line 15, train: mode separate_async leaves the adapter of lora out: choose another, or no lora"),
        ({"mode": "colocate_async", "replay": "a"}, ", line 15, train: mode colocate_async samples, and replay does not: leave one of them out"),
        ({"mode": "separate_async", "schedule": "mixed"}, ", line 15, train: schedule mixed judges what a step has sampled, and mode separate_async samples ahead: choose mode sync, or generate"),
        ({"validation": {"a": {"path": "x", "m": 1}}}, ", line 18: unknown key 'train.validation.a.m'"),
        ({"validation": {"a": {"n": 2}}}, ", line 17: 'train.validation.a.path' is missing; add `train.validation.a.path: …`"),
        ({"validation": {"a": {"path": "x", "n": 2, "temperature": 0}}}, ", line 17, train.validation.a: temperature: 0 always gives the same response: it needs n: 1"),
        ({"validation": {"a/b": "x"}}, ", line 15, train: validation set 'a/b' has a name that is no file name: use letters, digits, - and _"),
        ({"validation": {"a": "x"}, "validation_path": "y"}, ", line 15, train: validation and validation_path both say what is validated on: leave validation_path out, or name its set in validation"),
        ({"validation": {"a": "x"}, "validation_n": 2}, ", line 15, train: validation_n is of validation_path: give each set of validation its own n"),
        ({"keep": "best"}, ", line 15, train: keep: best needs a validation set, and a save_every above 0"),
        ({"keep": "best", "save_every": 0, "validation_path": "y"}, ", line 15, train: keep: best needs a validation set, and a save_every above 0"),
        ({"stop": {"validations_without_gain": 2}}, ", line 15, train: stop.validations_without_gain needs a validation set"),
        ({"stop": {"at": {"accuracy": 1}}}, ", line 15, train: stop.at: no figure of a validation is called accuracy: there are none without a validation set"),
        ({"stop": {"at": {"a": 1}}, "validation": {"a": {"path": "x", "n": 3}}}, ", line 15, train: stop.at: no figure of a validation is called a: there are accuracy, a/mean@3, a/pass@2, a/pass@3, a/maj@3"),
        ({"on_failed_session": "keep"}, ", line 16: 'train.on_failed_session' is 'keep'; input should be 'drop_row' or 'drop_group'"),
        ({"loss": {"policy": "ppo"}}, ", line 17: 'train.loss.policy' is 'ppo'; input should be 'vanilla', 'gspo', 'cispo', 'sapo', 'geo_mean', 'clip_cov' or 'kl_cov'"),
        ({"loss": {"clip": [0.28, 0.2]}}, ", line 16, train.loss: clip [0.28, 0.2] is out of order: first below 1, then above, no less"),
        ({"loss": {"policy": "sapo", "clip": [0.2, 0.28]}}, ", line 16, train.loss: loss sapo clips no ratios: leave clip out"),
        ({"loss": {"policy": "sapo", "aggregate": "token-mean"}}, ", line 16, train.loss: loss sapo is a mean over responses: leave aggregate token-mean out"),
        ({"loss": {"policy": "gspo", "aggregate": "trajectory-turn-token-mean"}}, ", line 16, train.loss: aggregate trajectory-turn-token-mean has a loss of its own: choose policy vanilla, or another"),
        ({"verification": {"init_share": 1}}, ", line 17: 'train.verification.init_share' is 1; input should be less than 1"),
    ]  # fmt: skip

    def check(train, error):
        path = tmp_path / "try.yaml"
        write_recipe(path)
        document = yaml.safe_load(path.read_text())
        path.write_text(yaml.safe_dump({**document, "train": train}))
        with pytest.raises(RecipeError) as caught:
            load(path)
        assert str(caught.value) == f"{path}{error}"

    check_each(cases, check)


def test_where_ratios_are_clipped(read):
    cases = [
        ({}, (0.2, 0.2)),
        ({"loss": {"clip": [0.2, 0.28]}}, (0.2, 0.28)),
        ({"loss": {"policy": "cispo", "clip": [1, 0.28]}}, (1, 0.28)),
        ({"loss": {"policy": "gspo"}}, (0.0003, 0.0004)),
    ]  # fmt: skip
    check_each(cases, lambda train, wanted: _same(read(**train).clip, wanted))
    assert read({"train.loss.clip": "[0.1, 0.3]"}).clip == (0.1, 0.3)


def _same(found, wanted):
    assert found == wanted


def test_keys_of_verl_are_the_same_however_they_are_written(read):
    written = {"a": {"b": {"c": 1}}, "+d.e": 2, "++f": {"g.h": [3]}, "i.j": {}, "+k": {0: "l"}}
    assert read(verl=written).verl_keys == {"a.b.c": 1, "d.e": 2, "f.g.h": [3], "k.0": "l"}


def test_a_path_alone_is_a_validation_set(read):
    sets = {"a": "a.jsonl", "b": {"path": "b.jsonl", "n": 4, "temperature": 0.6}}
    found = read(validation_path=None, validation=sets).validation_sets
    assert found["a"] == ValidationSet(path="a.jsonl")
    assert (found["b"].n, found["b"].temperature, found["b"].top_p) == (4, 0.6, None)
    changed = read({"train.validation.b.n": "8"}, validation_path=None, validation=sets)
    assert changed.validation_sets["b"] == found["b"].model_copy(update={"n": 8})


def test_validation_path_is_one_set(read):
    found = read(validation_path="a.jsonl", validation_n=3).validation_sets
    assert found == {"validation": ValidationSet(path="a.jsonl", n=3)}
    assert read(validation_path=None).validation_sets == {}


def test_a_recipe_without_the_section(tmp_path):
    path = write_recipe(tmp_path / "try.yaml")
    recipe = load(path)
    bare = recipe.replace(head=recipe.head.model_copy(update={"train": None}))
    with pytest.raises(RecipeError, match="there is no `train:` section; add one"):
        TrainingRun.of(tmp_path / "run", bare)


@pytest.mark.parametrize(
    "model", [Train, Cpu, Gpu, Lora, Loss, Megatron, ValidationSet, Verification]
)
def test_every_field_is_documented(model):
    assert list(field_docs(model)) == list(model.model_fields)


def test_the_page_has_every_field_as_it_is():
    page = (ROOT / "docs" / "train-fields.md").read_text("utf-8")
    assert "\n".join(table(Train)) in page, "if this is meant, run `make docs`"


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("grpo_*.yaml")), ids=lambda p: p.stem)  # fmt: skip
def test_our_own_recipes_can_be_trained(tmp_path, path):
    run = TrainingRun.of(tmp_path / "run", load(path))
    on_gpus = "gsm8k" in path.stem and not path.stem.endswith("_cpu")
    assert run.config.profile == ("gpu" if on_gpus else "cpu")
    assert run.split.after
