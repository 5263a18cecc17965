"""What an extra installs and is not here is one line with the command, before anything runs."""

import sys

import pytest

from rejuice.operators import RecipeError, errors
from rejuice.operators.agents.tools.mcp import Mcp
from rejuice.operators.agents.tools.search import Search
from rejuice.operators.mapper.llm_quality_reward_mapper import _texts
from rejuice.operators.registry import build, get
from rejuice.pipelines.cli.main import main
from rejuice.pipelines.data_juicer import catalogue
from rejuice.pipelines.dataset.spec import HubDataset, download
from rejuice.trainer.export import huggingface


def step(name, **fields):
    operator = build(get(name), fields)
    return operator.check_files, operator.preflight


MODEL = {"backend": "sentence_transformers", "model": "m"}
SERVED = {"engine": "openai", "model": "m", "openai": {"base_url": "http://127.0.0.1:9/v1"}}
CASES = [
    ("torch", "policy", lambda path: step("policy_rollout_mapper", engine="transformers", model="embedded")),
    ("transformers", "policy", lambda path: step("policy_rollout_mapper", **SERVED)),
    ("torch", "policy", lambda path: step("reward_model_mapper", folder=path)),
    ("sentence_transformers", "embed", lambda path: step("diversity_reward_mapper", **MODEL)),
    ("sentence_transformers", "embed", lambda path: step("semantic_deduplicator", **MODEL)),
    ("mcp", "mcp", lambda path: [Mcp(url="http://127.0.0.1:9/mcp").check]),
    ("bm25s", "agents", lambda path: [Search(documents="d").check]),
    ("data_juicer", "data-juicer", lambda path: [lambda: _texts.__wrapped__("x")]),
    ("datasets", "hub", lambda path: [lambda: download(HubDataset("a/b"), path / "a.parquet")]),
    ("datasets", "hub", lambda path: [lambda: huggingface.export_hf(path, path / "out")]),
    ("huggingface_hub", "hub", lambda path: [huggingface._check_token]),
]  # fmt: skip


@pytest.mark.parametrize(("module", "extra", "checks_of"), CASES)
def test_a_missing_extra_is_named(monkeypatch, tmp_path, module, extra, checks_of):
    is_there = errors.find_spec
    monkeypatch.setattr(
        errors, "find_spec", lambda name: None if name == module else is_there(name)
    )
    for check in checks_of(tmp_path):
        with pytest.raises(RecipeError) as error:
            check()
        assert f"needs {module}, which is not installed" in error.value.found
        assert error.value.right == f"pip install 'rejuice[{extra}]'"


def test_a_folder_of_that_name_here_is_no_package(monkeypatch, tmp_path):
    here, installed = tmp_path / "here", tmp_path / "installed"
    for folder in (here / "faiss_of_mine", installed / "megatron_of_mine" / "core"):
        folder.mkdir(parents=True)
    (here / "megatron_of_mine").mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", ["", str(installed), *sys.path])
    with pytest.raises(RecipeError, match="needs faiss_of_mine, which is not installed"):
        errors.needs("x", "rejuice[x]", "faiss_of_mine")
    errors.needs("x", "rejuice[x]", "megatron_of_mine")  # A namespace package.


def test_ray_and_data_juicer_are_named_by_check(monkeypatch, tmp_path, capsys):
    recipe = tmp_path / "recipe.yaml"
    find = errors.find_spec
    monkeypatch.setattr(errors, "find_spec", lambda name: None if name in ("ray", "data_juicer") else find(name))  # fmt: skip
    monkeypatch.setattr(catalogue, "is_installed", lambda: False)
    for text, extra in (
        ("executor_type: ray\nprocess: [group_stats_mapper]", "ray"),
        ("process: [no_such_mapper]", "data-juicer"),
    ):
        recipe.write_text(f"dataset_path: a.jsonl\nexport_path: b.parquet\n{text}\n")
        for command in ("check", "run"):
            monkeypatch.setattr(sys, "argv", ["rejuice", command, str(recipe)])
            with pytest.raises(SystemExit) as end:
                main()
            line = capsys.readouterr().err
            assert (end.value.code, line.count("\n")) == (2, 1)
            assert f"pip install 'rejuice[{extra}]'" in line
