"""Recorded responses stand in for a policy, exactly as they were sampled."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rejuice.operators import EngineError
from rejuice.operators.columns import ROW_CONTRACT
from rejuice.operators.sampling import Failure, Group, Prompt, Sample, Settings, recording
from rejuice.operators.sampling.recording import RecordedEngine

TWO = Settings(n=2, max_tokens=9)
NAMES = (
    "prompt", "response", "finish_reason", "prompt_token_ids", "response_token_ids",
    "response_logprobs", "policy", "policy_version", "sampling",
)  # fmt: skip


def chat(text):
    return [{"role": "system", "content": "s"}, {"role": "user", "content": text}]


def prompt(text, seed=5):
    return Prompt((("system", "s"), ("user", text)), seed)


def row(text, k, **other):
    return {
        "prompt": chat(text),
        "response": f"{text}{k}",
        "finish_reason": "length",
        "prompt_token_ids": [1, 2],
        "response_token_ids": [3, k],
        "response_logprobs": [-0.5, -k],
        "policy": "p",
        "policy_version": 4,
        "sampling": {"temperature": 1.0, "top_p": 1.0, "max_tokens": 9, "seed": 77},
        **other,
    }


def write(path, rows, *without):
    schema = pa.schema([(name, ROW_CONTRACT[name]) for name in NAMES])
    pq.write_table(pa.Table.from_pylist(rows, schema=schema).drop_columns(list(without)), path)
    return path


@pytest.fixture
def record(tmp_path):
    return lambda rows, *without: write(tmp_path / "run.parquet", rows, *without)


def given_back(path, text="a", exact=True, n=2):
    """What is given for one prompt."""
    ((_, found),) = RecordedEngine(path, exact=exact).sample([prompt(text)], TWO._replace(n=n))
    return found


def refused(path, **settings):
    with pytest.raises(EngineError) as caught:
        given_back(path, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def texts(group):
    return [sample.text for sample in group.samples]


def test_what_was_sampled_comes_back(record):
    path = record([row("a", 0), row("b", 0), row("a", 1), row("a", 2)])
    found = dict(RecordedEngine(path, exact=True).sample([prompt("a"), prompt("b")], TWO))
    assert found == {
        0: Group(
            "p", 4, 77, (1, 2),
            (
                Sample("a0", (3, 0), (-0.5, 0.0), "length"),
                Sample("a1", (3, 1), (-0.5, -1.0), "length"),
            ),
        ),
        1: Failure("too_few_samples", "1 of 2 responses were recorded"),
    }  # fmt: skip


def test_a_prompt_that_is_not_there(record):
    path = record([row("a", 0), row("a", 1)])
    # The whole chat counts, not its last message alone.
    other = Prompt((("user", "a"),), 0)
    ((_, found),) = RecordedEngine(path, exact=True).sample([other], TWO)
    assert found == Failure("not_recorded", f"{path} does not contain the prompt")


def test_text_alone_is_enough_where_it_is_not_for_training(tmp_path):
    path = tmp_path / "run.jsonl"
    line = '{"prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}]'
    path.write_text(f'{line}, "response": "x"}}\n{line}, "response": "y"}}\n')
    ((_, found),) = RecordedEngine(path, exact=False).sample([prompt("a")], TWO)
    samples = (Sample("x", None, None, "stop"), Sample("y", None, None, "stop"))
    assert found == Group("recorded", 0, None, None, samples)
    with pytest.raises(EngineError, match="has no column 'prompt_token_ids'"):
        RecordedEngine(path, exact=True)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"max_tokens": 8}, "was sampled with max_tokens: 9; not with 8"),
        ({"temperature": 0.5}, "was sampled with temperature: 1; not with 0.5"),
    ],
)
def test_other_settings_than_it_was_sampled_with(record, setting, message):
    path = record([row("a", 0), row("a", 1)])
    with pytest.raises(EngineError) as caught:
        list(RecordedEngine(path, exact=True).sample([prompt("a")], TWO._replace(**setting)))
    assert str(caught.value) == f"{path} {message}"


def test_files_that_are_no_recording(record, tmp_path):
    with pytest.raises(EngineError, match=r"no\.parquet does not exist; name the export of a run"):
        RecordedEngine(tmp_path / "no.parquet", exact=True)
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(EngineError, match=r"notes\.txt has an unknown format"):
        RecordedEngine(tmp_path / "notes.txt", exact=True)
    (tmp_path / "bad.parquet").write_text("x")
    with pytest.raises(EngineError, match=r"bad\.parquet cannot be read"):
        RecordedEngine(tmp_path / "bad.parquet", exact=True)
    with pytest.raises(EngineError, match="has no column 'response'"):
        RecordedEngine(record([row("a", 0)], "response"), exact=True)
    (tmp_path / "none").mkdir()
    with pytest.raises(EngineError, match=r"none contains no file of \.parquet, \.arrow, \.jsonl"):
        RecordedEngine(tmp_path / "none", exact=True)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("batch_rows", [1, 2, 100])
def test_rows_of_a_prompt_may_be_anywhere(record, monkeypatch, batch_rows, n):
    monkeypatch.setattr(recording, "_BATCH_ROWS", batch_rows)
    path = record([row(text, k) for k in range(3) for text in "abc"])
    prompts = [prompt(text) for text in "cab"]
    found = dict(RecordedEngine(path, exact=True).sample(prompts, TWO._replace(n=n)))
    wanted = [[f"{text}{k}" for k in range(n)] for text in "cab"]
    assert [texts(found[index]) for index in range(3)] == wanted
    ids = [[sample.token_ids for sample in found[index].samples] for index in range(3)]
    assert ids == [[(3, k) for k in range(n)]] * 3


CHATS = st.lists(
    st.tuples(st.sampled_from(["u", "1:u"]), st.text("1:u", max_size=4)), min_size=1, max_size=3
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@example(chats=[[("u", "1"), ("u", "u")], [("u", "1:u:u")]])
@example(chats=[[("1:u", "1")], [("1", "u:1")]])
@given(chats=st.lists(CHATS, min_size=1, max_size=8))
def test_no_chat_is_taken_for_another(tmp_path_factory, chats):
    rows = [
        {**row("", k), "prompt": [{"role": role, "content": text} for role, text in chat]}
        for k, chat in enumerate(chats)
    ]
    path = write(tmp_path_factory.getbasetemp() / "chats.parquet", rows)
    prompts = [Prompt(tuple(chat), 0) for chat in chats]
    for index, found in RecordedEngine(path, exact=True).sample(prompts, TWO._replace(n=1)):
        assert texts(found) == [str(chats.index(chats[index]))]


@pytest.mark.parametrize("name", ["prompt_token_ids", "response_token_ids", "response_logprobs"])
def test_for_training_no_value_may_be_missing(record, name):
    long = "What is  twelve\ntimes twelve? Explain each of your steps."
    rows = [row(long, 0), row(long, 1, **{name: None}), row("b", 0), row("b", 1)]
    path = record(rows)
    assert refused(path, text=long) == (
        f"{path} lacks {name} of a response to 'What is twelve times twelve? Explain eac...'; "
        "set on_policy: false, or record it with on_policy: true"
    )
    # Rows that are not taken do not matter, nor do values where nobody trains on them.
    assert texts(given_back(path, text=long, n=1)) == [f"{long}0"]
    assert texts(given_back(path, text="b")) == ["b0", "b1"]
    if name != "prompt_token_ids":  # One row has it and one not: of two runs, then.
        assert texts(given_back(path, text=long, exact=False)) == [f"{long}0", f"{long}1"]


def test_for_training_each_token_has_a_log_probability(record):
    path = record([row("a", 0), row("a", 1, response_logprobs=[-0.5])])
    assert refused(path) == (
        f"{path} has 2 response_token_ids and 1 response_logprobs of a response to 'a'; "
        "set on_policy: false, or record it with on_policy: true"
    )


@pytest.mark.parametrize("name", ["prompt_token_ids", "response_token_ids", "response_logprobs"])
def test_a_list_with_a_null_within(record, name):
    path = record([row("a", 0), row("a", 1, **{name: [1, None]})])
    assert refused(path, exact=False) == f"{path} has nulls within lists of column '{name}'"


SAMPLING = row("a", 0)["sampling"]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"policy_version": 5}, "of policy versions 4 and 5"),
        ({"policy": "q", "policy_version": 5}, "of policies p and q"),
        ({"policy": None}, "of policies p and an unknown one"),
        ({"sampling": {**SAMPLING, "seed": 78}}, "of seeds 77 and 78"),
        ({"sampling": None}, "of seeds 77 and an unknown one"),
        ({"prompt_token_ids": [1, 3]}, "with different prompt_token_ids"),
    ],
)
def test_responses_of_two_runs_make_no_group(tmp_path, other, message):
    write(tmp_path / "1.parquet", [row("a", 0), row("a", 1)])
    write(tmp_path / "2.parquet", [row("a", 2, **other), row("a", 3, **other)])
    assert refused(tmp_path, n=3) == (
        f"{tmp_path} contains responses {message} to one prompt; name a file of one run"
    )
    # The first file's are enough for two.
    assert texts(given_back(tmp_path)) == ["a0", "a1"]


def test_unknown_sampling_parameters(record):
    path = record([row("a", 0, sampling=None), row("a", 1, sampling=None)])
    assert given_back(path).seed is None


def test_rows_that_were_never_sampled_are_left_out(record):
    no_chats = [
        None,
        [],
        [None],
        [{"role": None, "content": "a"}],
        [{"role": "user", "content": None}],
    ]
    rows = [{**row("a", 9), "prompt": chat} for chat in no_chats]
    rows += [row("a", 0), row("a", 1, response=None), row("a", 2), row("b", 0, response=None)]
    path = record(rows)
    assert texts(given_back(path)) == ["a0", "a2"]
    assert given_back(path, n=3) == Failure("too_few_samples", "2 of 3 responses were recorded")
    assert given_back(path, text="b").reason == "not_recorded"
    ((_, found),) = RecordedEngine(path, exact=True).sample([Prompt((), 0)], TWO)
    assert found.reason == "not_recorded"
    path = record(rows[:5])
    assert refused(path) == f"{path} has no row with a prompt and a response"


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("prompt", ["a"], "string; it must be list<item: struct<role: string, content: string>>"),
        (
            "prompt",
            [[{"role": "user", "content": 1}]],
            "list<element: struct<role: string, content: int64>>; "
            "it must be list<item: struct<role: string, content: string>>",
        ),
        ("response", [1], "int64; it must be string"),
        ("response_logprobs", [["x"]], "list<element: string>; it must be list<item: float>"),
        ("response_token_ids", [[0.5]], "list<element: double>; it must be list<item: int32>"),
        ("policy_version", [1.5], "double; it must be int64"),
    ],
)
def test_a_column_of_another_type(tmp_path, name, values, message):
    table = pa.Table.from_pylist(
        [row("a", 0)], schema=pa.schema([(each, ROW_CONTRACT[each]) for each in NAMES])
    )
    path = tmp_path / "run.parquet"
    pq.write_table(table.drop_columns([name]).append_column(name, pa.array(values)), path)
    assert refused(path, n=1) == f"column '{name}' of {path} is {message}"


def test_types_that_mean_the_same(tmp_path):
    """As pandas and `datasets` write them: wider, coded, with fields more and less."""
    rows = [
        {**row("a", k), "sampling": {"max_tokens": 9, "temperature": 1, "by": "me"}, "other": k}
        for k in range(2)
    ]
    table = pa.Table.from_pylist(rows)
    assert table.schema.field("response_token_ids").type == pa.list_(pa.int64())
    table = table.set_column(
        table.column_names.index("policy"), "policy", table["policy"].dictionary_encode()
    )
    with pa.ipc.new_file(tmp_path / "run.arrow", table.schema) as file:
        file.write_table(table)
    assert given_back(tmp_path / "run.arrow") == Group(
        "p", 4, None, (1, 2),
        (
            Sample("a0", (3, 0), (-0.5, 0.0), "length"),
            Sample("a1", (3, 1), (-0.5, -1.0), "length"),
        ),
    )  # fmt: skip


def test_json_lines_are_of_the_types_of_the_contract(tmp_path):
    # By themselves a date would be a timestamp, and -1 an integer.
    rows = [
        {**row("2024-05-01", k), "policy": "2025-01-01", "response_logprobs": [-1, -1]}
        for k in range(2)
    ]
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    found = given_back(path, text="2024-05-01")
    assert (found.policy, found.seed) == ("2025-01-01", 77)
    assert [sample.logprobs for sample in found.samples] == [(-1.0, -1.0)] * 2
    path.write_text(json.dumps({**rows[0], "response": 5}) + "\n")
    message = refused(path)
    assert message.startswith(f"{path} cannot be read: ")
    assert "Column(/response) changed from string to number in row 0" in message


def test_files_of_two_formats(tmp_path):
    write(tmp_path / "run.parquet", [row("a", 0)])
    (tmp_path / "run.jsonl").write_text("{}\n")
    (tmp_path / "notes.txt").write_text("x")
    assert refused(tmp_path) == f"{tmp_path} contains files of .jsonl and .parquet; name one file"


def test_a_file_of_a_folder_lacks_a_column(tmp_path):
    write(tmp_path / "1.parquet", [row("a", 0)])
    write(tmp_path / "2.parquet", [row("a", 0)], "response_logprobs")
    assert refused(tmp_path) == (
        f"{tmp_path / '2.parquet'} has no column 'response_logprobs'; "
        "set on_policy: false, or record it with on_policy: true"
    )
