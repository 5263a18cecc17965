"""Files that the fields of Data-Juicer's operators name decide what is found in the cache."""

import os

import pyarrow.parquet as pq
import pytest

from rejuice.operators.cache_key import cache_key_json
from rejuice.pipelines.data_juicer import steps
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.recipe.recipe import load

pytest.importorskip("data_juicer")

pytestmark = pytest.mark.slow


def key(name="python_file_mapper", **fields):
    return cache_key_json(steps.step(name, fields))


def test_an_edited_file_is_computed_again_and_an_untouched_one_is_not(recipe_file, tmp_path):
    code = tmp_path / "own.py"
    path = recipe_file([{"python_file_mapper": {"file_path": str(code)}}], [{"text": "a"}])

    def run(suffix):
        code.write_text(
            f"def process_single(sample):\n    return {{**sample, 'text': {suffix!r}}}\n"
        )
        report = engine.run(load(path), overwrite=True)
        texts = pq.read_table(tmp_path / "out" / "curated.parquet")["text"].to_pylist()
        return texts, report.steps[0].cached

    assert run("b") == (["b"], False)
    assert run("b") == (["b"], True)
    assert run("c") == (["c"], False), "of the same size, within the same second"
    assert run("b") == (["b"], True)


def test_the_content_of_a_folder_is_in_the_key(tmp_path):
    def of():
        return key("flagged_words_filter", flagged_words_dir=str(tmp_path / "words"))

    absent = of()
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "flagged_words.json").write_text('{"en": ["a"]}')
    first = of()
    os.utime(tmp_path / "words" / "flagged_words.json", (1, 1))
    assert of() == first, "the time is not the content"
    (tmp_path / "words" / "flagged_words.json").write_text('{"en": ["b"]}')
    second = of()
    (tmp_path / "words" / "sub").mkdir()
    (tmp_path / "words" / "sub" / "more.json").write_text("{}")
    assert len({absent, first, second, of()}) == 4


def test_a_file_within_a_list_or_a_mapping_is_in_the_key(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("1")
    found = steps.digests({"files": ["no", str(file)], "params": {"path": str(file)}})
    assert list(found) == [str(file)]


def test_of_a_large_file_size_and_time_count(tmp_path, monkeypatch):
    monkeypatch.setattr(steps, "WHOLE_BYTES", 3)
    file = tmp_path / "weights"
    file.write_bytes(b"1234")
    os.utime(file, ns=(1, 1))
    assert steps.digests({"hf_model": str(file)}) == {str(file): "4 bytes of 1"}
    os.utime(file, ns=(1, 2))
    assert steps.digests({"hf_model": str(file)}) == {str(file): "4 bytes of 2"}


@pytest.mark.parametrize(
    "fields",
    [
        {"text_key": "here"},
        {"input_keys": ["here"]},
        {"save_dir": "here"},
        {"work_dir": "here"},
        {"stats_export_path": "here"},
        {"frame_dir": "here"},
        {"face_track_bbox_path": "here"},
        {"point_cloud_dir_for_metric": "here"},
        {"template": ""},
        {"delimiter": "/"},
        {"repl": "."},
        {"template": "x" * 10_000},
        {"template": "a\0b"},
        {"hf_model": "no/such"},
    ],
)
def test_what_is_no_file_or_is_not_read(fields, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    assert steps.digests(fields) == {}
    assert steps.digests({"lang": "here"}) != {}


def test_the_key_of_a_step_without_files_is_what_it_was():
    assert key("text_length_filter", max_len=3) == '{"text_length_filter": {"max_len": 3}}'
