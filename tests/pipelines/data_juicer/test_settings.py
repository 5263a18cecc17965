"""Keys of Data-Juicer's configuration in `rejuice run`: each is obeyed, without effect or refused."""

import os
import subprocess
import sys
from collections import Counter
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
from rejuice.pipelines.data_juicer import catalogue, settings, static_checks
from rejuice.pipelines.recipe.head import Head

pytest.importorskip("data_juicer")

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
ROWS = [{"text": f"text {'of a row ' * n}{n}"} for n in range(6)]
STEPS = [{"text_length_filter": {"min_len": 20}}]


def test_each_key_of_data_juicer_is_classified_once():
    tables = (
        Head.model_fields, ("process", settings.EXPORT_TYPE), settings.PASSED_ON, settings.SILENT,
        settings.WITHOUT_EFFECT, settings.REFUSED, settings.NOT_YET, settings.SPECIAL_TOKENS,
    )  # fmt: skip
    places = Counter(key for table in tables for key in table)
    keys = catalogue.settings()
    unknown = sorted(keys - places.keys())
    assert not unknown, (
        f"new in Data-Juicer: say in data_juicer/settings.py what to do with {unknown}"
    )
    twice = sorted(key for key, count in places.items() if count > 1)
    assert not twice, f"leave one place in data_juicer/settings.py or Head for {twice}"
    gone = sorted(places.keys() - keys - Head.model_fields.keys())
    assert not gone, f"no longer in Data-Juicer: take it out of data_juicer/settings.py: {gone}"


OURS = ("train", "generated_datasets", "columns", "max_rows_per_file")
"""Keys that the plug-in adds to their parser."""


def test_defaults_are_those_of_data_juicers_parser():
    from data_juicer.config.config import build_base_parser

    theirs = {}
    for action in build_base_parser()._actions:
        key, _, inner = action.dest.partition(".")
        if inner:
            theirs.setdefault(key, {})[inner] = action.default
        elif key not in ("help", "config", *OURS):
            theirs[key] = action.default
    read = {k: v for k, v in settings.defaults().items() if k != "config"}
    assert {**read, **settings.SPECIAL_TOKENS} == theirs


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
        ("validators", [{"type": "required_fields"}], f"'validators' are not supported yet by rejuice; leave them out, {DJ_PROCESS}"),
        ("generated_dataset_config", {"type": "EmptyFormatter"}, f"'generated_dataset_config' is not supported yet by rejuice; give dataset_path, {DJ_PROCESS}"),
        ("export_type", "jsonl", "'export_type' is 'jsonl', and export_path ends in '.parquet'; end export_path in .jsonl"),
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


def test_a_key_with_its_default_is_not_refused_and_not_mentioned(recipe_file):
    every = {k: v for k, v in settings.defaults().items() if k not in Head.model_fields}
    every = {k: v for k, v in every.items() if k not in ("process", "config")}
    assert len(every) > 60
    recipe = load(recipe_file(STEPS, ROWS, **every, **settings.SPECIAL_TOKENS))
    assert settings.setting_warnings(recipe.for_data_juicer) == []
    assert load(recipe_file(STEPS, ROWS, load_dataset_kwargs={"num_proc": 2}))
    nothing = dict.fromkeys([*settings.REFUSED, *settings.NOT_YET, *settings.WITHOUT_EFFECT])
    assert (
        settings.setting_warnings(load(recipe_file(STEPS, ROWS, **nothing)).for_data_juicer) == []
    )


def test_a_dataset_has_a_path_or_a_block(tmp_path):
    path = tmp_path / "recipe.yaml"

    def written_as(**head):
        path.write_text(yaml.safe_dump({**head, "export_path": "b.jsonl", "process": STEPS}))
        return message(path)

    assert written_as() == "recipe.yaml: 'dataset_path' is missing; add `dataset_path: …`"
    for empty in ("", None):  # It is to be given on the command line.
        expected = "recipe.yaml, line 1: 'dataset_path' is empty; give a path"
        assert written_as(dataset_path=empty) == expected
        assert load(path, {"dataset_path": "a.jsonl"}).head.dataset_path == Path("a.jsonl")
    assert written_as(dataset_path="https://host/a.jsonl") == (
        "recipe.yaml, line 1: 'dataset_path' is 'https://host/a.jsonl', which rejuice does not "
        f"read; give a path on disk, or s3://BUCKET/..., {DJ_PROCESS}"
    )
    path.write_text(yaml.safe_dump({"dataset_path": "a", "export_path": "oss://b/c.jsonl", "process": STEPS}))  # fmt: skip
    assert message(path) == (
        "recipe.yaml, line 2: 'export_path' is 'oss://b/c.jsonl', which rejuice does not "
        f"write; give a path on disk, or s3://BUCKET/..., {DJ_PROCESS}"
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
        "rejuice: warning: these keys have an effect in dj-process only: op_fusion, open_tracer, "
        "partition, use_cache\n"
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
    assert "video_key" not in recipe.steps[0].operator.model_extra  # It is the default.


def test_each_operator_has_fields_for_the_names_of_media_columns():
    for name in catalogue.names():
        assert set(settings.PASSED_ON) <= set(catalogue.find(name).known), name


def test_a_special_token_is_refused_where_a_step_looks_for_it(recipe_file, monkeypatch):
    monkeypatch.setattr(static_checks, "find_spec", lambda name: True)
    monkeypatch.setattr(static_checks, "distribution", lambda name: True)
    assert load(recipe_file(STEPS, ROWS, image_special_token="<image>")).steps
    process = [*STEPS, {"image_text_similarity_filter": {}}]
    assert message(recipe_file(process, ROWS, image_special_token="<image>")) == (
        "recipe.yaml, line 6, step 2 image_text_similarity_filter: it looks for '<__dj__image>', "
        "and 'image_special_token' is '<image>'; run this recipe with dj-process"
    )


def test_packages_that_several_steps_need_are_reported_at_once(recipe_file, monkeypatch):
    monkeypatch.setattr(static_checks, "find_spec", lambda name: name == "torch" or None)
    process = [*STEPS, "fix_unicode_mapper", "clean_links_mapper", "perplexity_filter", "fix_unicode_mapper"]  # fmt: skip
    assert message(recipe_file(process, ROWS)) == (
        "recipe.yaml, line 6, step 2 fix_unicode_mapper and 2 more steps: they need ftfy, "
        "sentencepiece and kenlm, which are not installed; pip install ftfy sentencepiece kenlm"
    )
    # Any other mistake goes first: it is one that no installation fixes.
    assert message(recipe_file([*process, {"text_length_filter": {"mim_len": 1}}], ROWS)) == (
        "recipe.yaml, line 10, step 6 text_length_filter: unknown field 'mim_len'; "
        "did you mean 'min_len'?"
    )
    with pytest.raises(RejuiceError, match="Recipe, step 2 fix_unicode_mapper and 2 more steps"):
        Recipe(process, "data.jsonl")


def test_an_operator_in_a_folder_of_its_kinds_folder_is_found():
    name = "human_preference_annotation_mapper"
    assert catalogue.find(name).kind == "mapper"
    assert name in catalogue.names()


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
        eoc_special_token="<eoc>",
        open_tracer=True,
        turbo=True,
    )
    assert ours["score"].to_pylist() == [n / 7 for n in range(9) if n % 3]
    assert written(ours) == written(theirs)
