"""verl's configuration as a file: Hydra reads the values that were meant, and wrong keys are errors."""

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rejuice.operators import RecipeError
from rejuice.trainer.launch.verl_config import (
    _keys,
    _listing,
    _verls_folder,
    arguments,
    check_keys,
    config_yaml,
    write_config,
)

pytestmark = pytest.mark.slow

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(st.characters(exclude_categories=["C", "Z"]) | st.just(" ")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.from_regex(r"[a-z_]{1,5}", fullmatch=True), inner, max_size=3),
    max_leaves=4,
)  # fmt: skip
NUMBER = re.compile(r"[-+]?[0-9._]+([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


def texts(value):
    if isinstance(value, dict):
        return [text for each in value.values() for text in texts(each)]
    if isinstance(value, list):
        return [text for each in value for text in texts(each)]
    return [value] if isinstance(value, str) else []


@settings(deadline=None)
@given(VALUES)
def test_hydra_reads_what_was_meant(tmp_path_factory, value):
    from omegaconf import OmegaConf

    # Interpolations are resolved, and numbers of YAML 1.2 are numbers: see the next test.
    assume(not any("${" in text or text == "???" for text in texts(value)))
    assume(not any(NUMBER.fullmatch(text) for text in texts(value)))
    path = tmp_path_factory.getbasetemp() / "verl.yaml"
    path.write_text(config_yaml({"+a.b": value}), "utf-8")
    found = OmegaConf.to_container(OmegaConf.load(path))["a"]["b"]
    assert (type(found), found) == (type(value), value)


def test_a_number_that_pyyaml_reads_as_text_is_a_number(tmp_path):
    from omegaconf import OmegaConf

    learning_rate = yaml.safe_load("1e-6")
    assert isinstance(learning_rate, str)
    write_config(tmp_path, {"actor_rollout_ref.actor.optim.lr": learning_rate})
    found = OmegaConf.load(tmp_path / "verl.yaml").actor_rollout_ref.actor.optim.lr
    assert (type(found), found) == (float, 1e-6)


def test_later_keys_win_and_groups_stand_in_the_defaults():
    found = yaml.safe_load(
        config_yaml(
            {
                "a.b": 1,
                "a": {"c": 2},
                "model_engine": "megatron",
                "+a.b": 3,
                "hydra/job_logging": "none",
            }
        )
    )
    assert found["a"] == {"b": 3, "c": 2}
    assert found["defaults"] == [
        "ppo_trainer",
        {"override model_engine": "megatron"},
        {"override hydra/job_logging": "none"},
        "_self_",
    ]


def test_hydra_composes_from_a_folder_of_any_name(tmp_path):
    """As `main_ppo` would, by our arguments; verl itself is not imported."""
    from hydra import compose, initialize_config_dir

    folder = tmp_path / "o'brien's \"own\", $x=1"
    folder.mkdir()
    write_config(folder, {"data.train_files": str(folder / "x"), "hydra.run.dir": str(folder)})
    option, path, _, name = arguments(folder)
    assert (option, Path(path)) == ("--config-dir", folder)
    with initialize_config_dir(path, version_base=None):
        assert compose(name).data.train_files == f"{folder}/x"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"actor_rollout_ref.actor.optim.beta": [0.9, 0.95]},
            "verl has no key 'actor_rollout_ref.actor.optim.beta'; "
            "did you mean 'actor_rollout_ref.actor.optim.betas'?",
        ),
        (
            {"actor_rollout_ref.actor.optim": {"beta": 1}},
            "verl has no key 'actor_rollout_ref.actor.optim.beta'; "
            "did you mean 'actor_rollout_ref.actor.optim.betas'?",
        ),
        (
            {"model_engine": "megatron", "actor_rollout_ref.actor.fsdp_config.param_offload": True},
            "verl has no key 'actor_rollout_ref.actor.fsdp_config.param_offload' with model_engine "
            "megatron; did you mean 'actor_rollout_ref.actor.megatron.param_offload'?",
        ),
        ({"zzz": {0: 1}}, "verl has no key 'zzz.0'; to add it all the same write +zzz.0"),
        ({"zzz": 1}, "verl has no key 'zzz'; to add it all the same write +zzz"),
        ({"hydraa.x": 1}, "verl has no key 'hydraa.x'; to add it all the same write +hydraa.x"),
        (
            {"actor_rollout_ref.actor.ppo_epochs": "${nothing"},
            "verl's key 'actor_rollout_ref.actor.ppo_epochs': no viable alternative at input '${nothing'",
        ),
        (
            {"+trainer.device": "cpu"},
            "verl has the key 'trainer.device' already; write it without +",
        ),
        (
            {"trainer.device": "cpu", "+trainer.device": "cpu"},
            "verl has the key 'trainer.device' already; write it without +",
        ),
        (
            {"~trainer.device": None},
            "verl's key 'trainer.device' cannot be removed; set it to null",
        ),
    ],
)
def test_a_wrong_key_is_an_error_of_one_line(values, message):
    with pytest.raises(RecipeError) as error:
        check_keys(values)
    assert str(error.value) == message


def test_right_keys():
    check_keys(
        {
            "trainer.device": "cpu", "+trainer.mine": {"a": 1}, "trainer.mine.a": 2,
            "++trainer.project_name": "x", "model_engine": "dp", "hydra/job_logging": "stdout",
            "hydra.run.dir": "x", "data.train_files": ["a", "b"], "data.gen_batch_size": None,
            "actor_rollout_ref.actor.optim": {"betas": [0.9, 0.95]},
            "actor_rollout_ref.actor": {"optim.lr": 1e-3},
            "trainer.experiment_name": "${trainer.project_name}",
        }
    )  # fmt: skip


@pytest.mark.parametrize("engine", ["dp", "megatron"])
def test_the_keys_that_verl_lists_are_those_that_hydra_composes(engine):
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    with initialize_config_dir(str(_verls_folder()), version_base=None):
        composed = compose("ppo_trainer", overrides=[f"model_engine={engine}"])
    keys = {*dict(_keys(OmegaConf.to_container(composed)))}
    assert {*dict(_keys(_listing(engine)))} == keys - {"model_engine"}
    assert len(keys) > 1000


def test_keys_of_a_file_of_the_users_own_are_not_checked():
    check_keys({"actor/engine@actor_rollout_ref.actor.engine": "mine", "actor_rollout_ref.actor.engine.x": 1})  # fmt: skip
