"""The GSM8K recipe against a real server, where the embedded policy stands in for Qwen."""

from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from vllm_server import EMBEDDED, VllmServer, vllm_python

from rejuice.pipelines.demo.datasets import write_dataset
from rejuice.pipelines.demo.problems import DemoOptions
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.recipe.recipe import load

pytestmark = [pytest.mark.slow, pytest.mark.vllm]
RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "gsm8k_qwen.yaml"
MODEL = "Qwen/Qwen2.5-1.5B-Instruct"
PROMPTS = 60


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    vllm_python()
    server = VllmServer(EMBEDDED, MODEL, tmp_path_factory.mktemp("vllm") / "log")
    try:
        server.wait()
        yield server
    finally:
        server.kill()


def overrides(server, folder, **fields):
    """What is another here: data, place, server, tokenizer, and a question without instructions."""
    write_dataset(
        folder / "train.parquet", "arithmetic", DemoOptions(prompts=PROMPTS, levels=(1, 2))
    )
    step = "policy_rollout_mapper"
    return {
        "dataset_path": str(folder / "train.parquet"),
        "export_path": str(folder / "curated.parquet"),
        "prompt_template_mapper.template": '"{question}"',
        f"{step}.max_tokens": "40",
        f"{step}.openai.base_url": server.url,
        f"{step}.openai.tokenizer": str(EMBEDDED),
        **{f"{step}.{name}": value for name, value in fields.items()},
    }


def test_from_prompts_to_a_curated_set(server, tmp_path):
    report = engine.run(load(RECIPE, overrides(server, tmp_path)))
    table = pq.read_table(tmp_path / "curated.parquet")
    sampled = report.steps[1]
    assert (sampled.step, sampled.rows_in, sampled.rows_out) == (
        "policy_rollout_mapper", PROMPTS, 8 * PROMPTS,
    )  # fmt: skip
    generated = table.filter(pc.equal(table["task"], "generate"))
    assert generated.num_rows > 50
    assert set(generated["policy"].to_pylist()) == {MODEL}
    assert generated["advantage"].null_count == 0
    assert set(generated["verdict"].to_pylist()) >= {"correct", "wrong_answer"}
    for row in generated.to_pylist():
        assert len(row["response_token_ids"]) == len(row["response_logprobs"]) > 0
    judged = table.filter(pc.equal(table["task"], "verify"))["label"].to_pylist()
    assert judged.count("Yes") == judged.count("No") > 0


def test_another_endpoint_gives_the_same_samples(server, tmp_path):
    """The server applies the chat template: to the same tokens, and so to the same samples."""
    tables = []
    for endpoint in ("completions", "chat"):
        folder = tmp_path / endpoint
        folder.mkdir()
        engine.run(load(RECIPE, overrides(server, folder, **{"openai.api": endpoint})))
        tables.append(pq.read_table(folder / "curated.parquet"))
    one, other = (table.drop_columns(["response_logprobs"]) for table in tables)
    assert one.to_pylist() == other.to_pylist()


def test_a_model_that_is_not_served_is_named(server, tmp_path):
    fields = overrides(server, tmp_path, model="Qwen/Qwen3-1.7B")
    with pytest.raises(Exception, match=r"Qwen2\.5-1\.5B-Instruct") as caught:
        engine.run(load(RECIPE, fields))
    assert str(caught.value).startswith(f"{RECIPE}, line 26, step 2 policy_rollout_mapper: ")
    assert "\n" not in str(caught.value)
