"""Keys of Data-Juicer's configuration in `rejuice run`: each is obeyed, without effect or refused."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from command import runner
from each import check_each
from exact import written

from rejuice.operators import RejuiceError
from rejuice.pipelines import Recipe, load, run
from rejuice.pipelines.data_juicer import catalogue, settings

pytest.importorskip("data_juicer")

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
ROWS = [{"text": f"text {'of a row ' * n}{n}"} for n in range(6)]
STEPS = [{"text_length_filter": {"min_len": 20}}]


def message(path, overrides=None):
    with pytest.raises(RejuiceError) as raised:
        load(path, overrides)
    return str(raised.value).replace(str(path), "recipe.yaml")


DJ_PROCESS = "or run this recipe with dj-process"


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("export_shard_size", 1000, f"'export_shard_size' cuts the export into several files, which rejuice does not do; leave it out, {DJ_PROCESS}"),
        ("load_jsonl_lenient", True, f"'load_jsonl_lenient' skips lines that are not JSON, which rejuice does not do; leave it out, {DJ_PROCESS}"),
        ("load_dataset_kwargs", {"columns": ["text"]}, f"'load_dataset_kwargs' changes how the dataset is read, which rejuice does not do; leave it out, {DJ_PROCESS}"),
        ("encrypt_before_export", True, f"'encrypt_before_export' encrypts the export, which rejuice does not do; leave it out, {DJ_PROCESS}"),
        ("decrypt_after_reading", True, f"'decrypt_after_reading' decrypts the dataset, which rejuice does not do; leave it out, {DJ_PROCESS}"),
        ("export_extra_args", {"a": 1}, f"'export_extra_args' changes how the export is written, which rejuice does not do; leave it out, {DJ_PROCESS}"),
        ("validators", [{"type": "required_fields"}], f"'validators' check the dataset, which rejuice does not do; leave it out, {DJ_PROCESS}"),
        ("generated_dataset_config", {"type": "EmptyFormatter"}, f"'generated_dataset_config' makes a dataset, which rejuice does not do; leave it out, {DJ_PROCESS}"),
        ("eoc_special_token", "<eoc>", f"'eoc_special_token' is '<eoc>', and rejuice knows '<|__dj__eoc|>'; leave it out, {DJ_PROCESS}"),
        ("export_type", "jsonl", "'export_type' is 'jsonl', and export_path ends in '.parquet'; leave it out, or end export_path in .jsonl"),
        ("suffixes", [".jsonl", "TXT"], "suffixes: '.txt' is not one of .jsonl, .json, .parquet, .arrow, .jsonl.gz, .json.gz, .jsonl.zst, .json.zst"),
    ],
)  # fmt: skip
def test_a_key_that_would_change_rows_is_refused_where_it_is_set(recipe_file, key, value, expected):
    path = recipe_file(STEPS, ROWS, **{key: value})
    line = 1 + path.read_text().splitlines().index(next(
        text for text in path.read_text().splitlines() if text.startswith(key)
    ))  # fmt: skip
    assert message(path).removeprefix(f"recipe.yaml, line {line}").lstrip(",: ") == expected
    with pytest.raises(RejuiceError, match=key):
        Recipe(STEPS, "data.jsonl", export_path="a.parquet", **{key: value})


def test_a_key_without_a_value_is_not_refused_and_not_mentioned(recipe_file):
    for nothing in (None, False):
        head = dict.fromkeys([*settings.REFUSED, *settings.WITHOUT_EFFECT], nothing)
        read = load(recipe_file(STEPS, ROWS, **head, **settings.SPECIAL_TOKENS))
        assert settings.setting_warnings(read.for_data_juicer) == []
    assert load(recipe_file(STEPS, ROWS, load_dataset_kwargs={"num_proc": 2}))


def test_a_dataset_has_a_path_or_a_block(tmp_path):
    path = tmp_path / "recipe.yaml"

    def written_as(**head):
        path.write_text(yaml.safe_dump({**head, "export_path": "b.jsonl", "process": STEPS}))
        return message(path)

    assert written_as() == "recipe.yaml: 'dataset_path' is missing; add `dataset_path: …`"
    for empty in ("", None):  # It is to be given on the command line.
        expected = "recipe.yaml, line 1, dataset_path: a path is empty; give a path"
        assert written_as(dataset_path=empty) == expected
        assert load(path, {"dataset_path": "a.jsonl"}).head.dataset_path == Path("a.jsonl")
    assert written_as(dataset_path="https://host/a.jsonl") == (
        "recipe.yaml, line 1, dataset_path: 'https://host/a.jsonl' is in no store that rejuice "
        f"reads or writes; give a path on disk, or s3://BUCKET/..., {DJ_PROCESS}"
    )
    path.write_text(yaml.safe_dump({"dataset_path": "a", "export_path": "oss://b/c.jsonl", "process": STEPS}))  # fmt: skip
    assert message(path) == (
        "recipe.yaml, line 2, export_path: 'oss://b/c.jsonl' is in no store that rejuice "
        f"reads or writes; give a path on disk, or s3://BUCKET/..., {DJ_PROCESS}"
    )


def test_keys_without_effect_are_reported_in_one_line(recipe_file, tmp_path, monkeypatch, capsys):
    rejuice = runner(monkeypatch, capsys, tmp_path)
    head = {"open_tracer": True, "use_cache": False, "op_fusion": True, "np": 1}
    head |= {"partition": {"mode": "manual"}, "checkpoint": {"enabled": True}}
    head |= {"skip_op_error": False, "ray_address": "local", "ds_cache_dir": "cache"}
    head |= {"executor_type": "ray_partitioned"}
    step = {"exact_deduplicator": {"column": "text", "within": "all"}}
    path = str(recipe_file([step], ROWS, **head))
    line = (
        "rejuice: warning: these keys have an effect in dj-process only: checkpoint, "
        "op_fusion, open_tracer, partition\n"
    )
    assert rejuice("check", path)[2] == line
    assert rejuice("run", path, "--engine", "local")[2].endswith(line)


def test_no_shipped_recipe_has_a_key_without_effect():
    def check(path):
        assert settings.setting_warnings(load(path).for_data_juicer) == []

    check_each(sorted((ROOT / "recipes").glob("*.yaml")), check)


def test_names_of_media_columns_reach_each_operator(recipe_file):
    process = [*STEPS, {"clean_links_mapper": {"image_key": "own"}}, {"clean_email_mapper": {"image_key": None}}]  # fmt: skip
    recipe = load(recipe_file(process, ROWS, image_key="pictures", video_key="videos"))
    keys = [step.operator.model_extra.get("image_key") for step in recipe.steps]
    assert keys == ["pictures", "own", "pictures"]
    for name in catalogue.names():
        assert set(settings.PASSED_ON) <= set(catalogue.find(name).fields), name


@pytest.fixture
def both(tmp_path):
    """A recipe under `rejuice run` and `dj-process`: the rows of both."""

    def make(process, **head):
        document = {"np": 1, "skip_op_error": False, "process": process, **head}
        exports = []
        for name in ("ours", "theirs"):
            path = tmp_path / f"{name}.yaml"
            exports.append(tmp_path / name / "curated.parquet")
            path.write_text(yaml.safe_dump({**document, "export_path": str(exports[-1])}))
        with pytest.warns(UserWarning, match="in dj-process only: open_tracer, turbo"):
            run(load(tmp_path / "ours.yaml"))
        command = [Path(sys.executable).with_name("dj-process"), "--config", path]
        environment = {**os.environ, "UV_OFFLINE": "1", "PIP_NO_INDEX": "1"}
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, errors="replace"
        )
        assert done.returncode == 0, done.stderr
        return [pq.read_table(export) for export in exports]

    return make


def test_keys_that_are_obeyed_give_the_rows_of_dj_process(both, tmp_path):
    from PIL import Image

    folder = tmp_path / "data"
    folder.mkdir()
    pictures = []
    for at, size in enumerate((20, 40, 60)):
        pictures.append(str(tmp_path / f"{at}.png"))
        Image.new("RGB", (size, size)).save(pictures[-1])
    rows = [
        {"response": f"row {n}", "pictures": [pictures[n % 3]], "score": n / 7} for n in range(9)
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "a.parquet")
    (folder / "b.jsonl").write_text('{"response": "not this one", "pictures": [], "score": 0}\n')
    (folder / "c.jsonl").write_text('{"response": "nor this one", "pictures": [], "score": 0}\n')
    ours, theirs = both(
        [{"image_shape_filter": {"min_width": 30}}, {"text_length_filter": {"min_len": 1}}],
        dataset_path=str(folder),
        suffixes="parquet",
        export_type="parquet",
        text_keys=["response", "response"],
        image_key="pictures",
        open_tracer=True,
        turbo=True,
    )
    assert ours["score"].to_pylist() == [n / 7 for n in range(9) if n % 3]
    assert written(ours) == written(theirs)
