"""Files that are meant to break what reads them: one line for each, and no traceback."""

import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import runner
from each import check_each
from fuzzed_inputs import RIGHT, FuzzedInputs
from tiny_run import ROWS, run_tiny, write_tiny

from rejuice.operators import LengthFilter, RejuiceError
from rejuice.operators.errors import shown
from rejuice.operators.json_text import is_very_deep, parse_json
from rejuice.operators.sampling.recording import Recording
from rejuice.pipelines.analysis.page.build import embedded_json
from rejuice.pipelines.dataset.write import written_columns
from rejuice.pipelines.engine.finished_export import _checksum, read_manifest
from rejuice.pipelines.engine.report import Report, decided_rows
from rejuice.pipelines.recipe.recipe import Recipe, load

DIGITS, DEEP = "9" * 5_000, 20_000
LISTS = "[" * DEEP + "]" * DEEP


@pytest.fixture
def line_of(monkeypatch, capsys, tmp_path):
    """The one line on stderr with which a command ends, with status 2."""
    rejuice = runner(monkeypatch, capsys, tmp_path)

    def run(*words):
        status, _, line = rejuice(*words)
        assert status == 2, line
        assert line.startswith("rejuice: ")
        assert line.count("\n") == 1
        assert len(line) < 600
        return line

    return run


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (DIGITS, "is not of the type int"),
        (f"0x{'f' * 5_000}", "more than 1,023 bits"),
        ("1" + "0" * 400, "more than 1,023 bits"),
        ("[\n" * DEEP, "nested too deeply"),
        ("{a: " * DEEP, "nested too deeply"),
        ('"\\ud800"', "half of a surrogate pair"),
        ('"\\UFFFFFFFF"', "not YAML"),
        ("!!int x", "'x' is not of the type int"),
        ("!!float ''", "'' is not of the type float"),
        ("!!bool maybe", "'maybe' is not of the type bool"),
        ("!!map x", "'x' is not of the type map"),
        ("!!set {a, b}", "tag:yaml.org,2002:set' is not allowed"),
        ("!!omap [a: 1]", "tag:yaml.org,2002:omap' is not allowed"),
        ("!!binary aGFsbG8=", "tag:yaml.org,2002:binary' is not allowed"),
        ("!!timestamp 2001-99-99", "tag:yaml.org,2002:timestamp' is not allowed"),
        ("!mine x", "tag '!mine' is not allowed"),
        ("&a [*a]", "recursive"),
        ("*nowhere", "undefined alias"),
        ("{<<: 1}", "not YAML"),
        ("{[a]: 1}", "a key is a list or a mapping"),
        ("{a: 1, a: 2}", "key 'a' is given twice"),
    ],
)
def test_values_that_are_no_values_of_yaml(tmp_path, value, expected):
    path = tmp_path / "recipe.yaml"
    path.write_text(f"np: {value}\n")
    with pytest.raises(RejuiceError) as caught:
        load(path)
    assert expected in str(caught.value)


def test_numbers_that_no_field_takes(line_of, tmp_path):
    path = write_tiny(tmp_path)

    def check(key, value):
        with pytest.raises(RejuiceError) as caught:
            load(path, {key: value})
        assert len(str(caught.value)) < 500

    fields = ("np", "max_rows_per_file", "pass_rate_filter.max", "grpo_advantage_mapper.epsilon")
    values = (".nan", ".inf", "-.inf", "-1", "1e400", "[1, 2]", "9" * 300)
    cases = [(key, value) for key in fields for value in values]
    check_each([case for case in cases if case != (fields[-1], values[-1])], check)
    for kind in ("length_filter", "text_length_filter"):  # Ours, and Data-Juicer's.
        named = write_tiny(tmp_path, [{kind: {1.5: 2}}])
        assert f"{kind} has 1.5 for the name of a field" in line_of("check", named)
    write_tiny(tmp_path)
    line = line_of("check", path, f"--np=0x{'f' * 3_000}")
    assert line.startswith("rejuice: --np: '0xfff")
    assert line.endswith("is not YAML; quote the value\n")


def test_a_recipe_in_python_has_the_same_limits(tmp_path):
    for settings in ({"np": 10**5_000}, {"project_name": "\ud800"}, {"export_path": "a\0b.jsonl"}):
        with pytest.raises(RejuiceError) as caught:
            Recipe([LengthFilter(min=1)], tmp_path / "data.jsonl", **settings)
        assert len(str(caught.value)) < 300
    assert shown(10**5_000) == "a int that is too large to be shown"
    assert len(shown(list(range(10_000)))) < 300


def test_paths_that_the_system_does_not_take(line_of, tmp_path):
    (tmp_path / "loop.jsonl").symlink_to("loop.jsonl")
    cases = {
        "a\0b.jsonl": "no NUL character",
        "loop.jsonl": "levels of symbolic links",
        f"{'x' * 300}.jsonl": "file name too long",
    }

    def check(key, name, expected):
        path = write_tiny(tmp_path, **{key: str(tmp_path / name)})
        assert expected in line_of("check" if key == "dataset_path" else "explain", path)

    check_each(
        [(k, *each) for k in ("dataset_path", "export_path") for each in cases.items()], check
    )
    assert "o d.parquet does not exist" in line_of("report", tmp_path / "o\nd.parquet")


def test_what_is_no_file_is_not_opened(line_of, tmp_path):
    def fifo(path):
        os.mkfifo(path)

    def zeros(path):
        path.symlink_to("/dev/zero")

    def folder(path):
        path.mkdir()

    def check(make, suffix):
        odd = tmp_path / f"{make.__name__}{suffix}"
        make(odd)
        assert (
            "holds no dataset file"
            if make is folder
            else "is not a file" in line_of("check", write_tiny(tmp_path), "--dataset_path", odd)
        )
        if make is not folder:
            with pytest.raises(RejuiceError, match="is not a file"):
                Recording(odd, ["response"], [], wants_exact=False)
            assert "cannot be read: it is not a file" in line_of("check", odd)
            own = f"--custom_operator_paths=[{odd}]"
            assert "does not exist" in line_of("check", write_tiny(tmp_path), own)

    kinds = (fifo, zeros, folder)
    check_each([(make, suffix) for make in kinds for suffix in (".jsonl", ".parquet")], check)


def test_json_that_is_nested_too_deeply(line_of, tmp_path):
    path = write_tiny(tmp_path)
    data = path.with_name("data.jsonl")
    spread = "[\n" * DEEP + "]\n" * DEEP
    objects = '{"a":\n' * DEEP + "1" + "}\n" * DEEP

    def check(value):
        data.write_text(f'{json.dumps(ROWS[0])}\n{{"question": {value}}}\n')
        assert "data.jsonl, line 2: " in line_of("check", path)
        with pytest.raises(RejuiceError, match="nested too deeply"):
            Recording(data, ["response"], [], wants_exact=False)

    check_each([LISTS, '{"a":' * DEEP + "1" + "}" * DEEP, spread, objects], check)
    lines = "".join(f'{{"a": "[[[", "b": [{number}]}}\n' for number in range(5_000))
    assert not is_very_deep(lines.encode())
    assert is_very_deep(lines.encode() + f'{{"a": {spread}}}'.encode())
    for text in (LISTS, DIGITS, "1" + "0" * 400, "["):
        with pytest.raises(ValueError, match=r"deep|digits|Expecting"):
            parse_json(text)


def test_files_of_a_run_that_anybody_may_have_written(line_of, tmp_path):
    run_tiny(tmp_path)
    export, folder = tmp_path / "curated.parquet", tmp_path / "curated.run"
    text = (folder / "report.json").read_text()
    steps = json.loads(text)["steps"]

    def check(found):
        (folder / "report.json").write_text(found)
        assert "report.json is damaged; run the recipe again" in line_of("report", export)
        assert written_columns(export)  # The export names them, too.

    wrong = [
        {**steps[2], "columns": {"reward": {"mean": "x"}}},
        {**steps[2], "columns": {"verdict": {"counts": {"a": []}}}},
        {**steps[2], "columns": {"verdict": []}},
    ]
    texts = [json.dumps({**json.loads(text), "steps": [each]}) for each in wrong]
    number = text.replace('"rows_in": 3', f'"rows_in": {DIGITS}', 1)
    check_each([LISTS, DIGITS, "[]", '"x"', number, *texts], check)
    with pytest.raises(RejuiceError, match="is damaged"):
        Report.read(export)

    (decisions,) = (folder / "06_pass_rate_filter").glob("*.parquet")
    whole = decisions.read_bytes()
    (folder / "report.json").write_text(text)
    for content in (whole[:-9] + b"\xff" + whole[-8:], b"", whole[:-8] + b"\xff" * 4 + whole[-4:]):
        decisions.write_bytes(content)
        assert "decisions.parquet is damaged" in line_of("report", export)
    pq.write_table(pa.table({"a": [1.5]}), decisions)
    with pytest.raises(RejuiceError, match="is damaged"):
        list(decided_rows(folder))

    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["checksum"]
    for key, value in (("uses", [[]]), ("uses", "x"), ("cache", 1), ("files", {"a": ["b", 1]})):
        content = {**manifest, key: value}
        signed = {**content, "checksum": _checksum(content)}
        (folder / "manifest.json").write_text(json.dumps(signed))
        assert read_manifest(folder) is None


def test_metadata_of_parquet_that_anybody_may_have_written(tmp_path):
    file = tmp_path / "data.parquet"

    def check(key, value):
        pq.write_table(pa.Table.from_pylist(list(ROWS)).replace_schema_metadata({key: value}), file)
        assert written_columns(file) == frozenset()

    values = ("", "{", LISTS, DIGITS, "[[]]", "{}", "null", "1", "[7]")
    keys = ("rejuice.written", "pandas", "huggingface")
    check_each([(k, v) for k in keys for v in values if (k, v) != (keys[0], "[[]]")], check)


def test_lists_of_files_that_anybody_may_have_written(line_of, tmp_path):
    path, saved = write_tiny(tmp_path), tmp_path / "saved"
    saved.mkdir()
    for name in ("../nothing.jsonl", "a\0b", "x" * 200, 7, None, [1]):
        (saved / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}]}))
        assert "which is no file there" in line_of("check", path, "--dataset_path", saved)
    for text in (LISTS, DIGITS, "[]", '{"_data_files": 1}'):
        (saved / "state.json").write_text(text)
        assert "state.json is damaged" in line_of("check", path, "--dataset_path", saved)


def test_a_number_of_more_bits_than_the_page_holds():
    with pytest.raises(RejuiceError, match="cannot hold what the report says: Integer exceeds"):
        embedded_json({"rows": 2**64})


def test_long_names_are_cut_off_in_messages(line_of, tmp_path):
    path = tmp_path / "recipe.yaml"
    for entry in (
        "{long}", "? {long}\n  : {{}}", "? {long}\n  : 1", "{long}: {{}}",
        "length_filter: {{{long}: 1}}", "length_filter\n{long}: 1",
    ):  # fmt: skip
        text = entry.format(long="x" * 20_000)
        path.write_text(f"dataset_path: a.jsonl\nexport_path: b.parquet\nprocess:\n- {text}\n")
        assert len(line_of("check", path)) < 2_000


@pytest.mark.slow
def test_mutated_inputs(tmp_path):
    wrong = [each for each in FuzzedInputs(tmp_path).draws(range(200)) if each.outcome not in RIGHT]
    assert not wrong, wrong[0].details
