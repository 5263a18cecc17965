"""The table of samples: which rows are in it, what they show, and where it is logged."""

import re
import string
import sys
import types
from importlib.machinery import ModuleSpec
from types import SimpleNamespace

import pyarrow as pa
import pytest
from trained_run import tiny_rollouts
from training_stage import PLAIN, summed

from rejuice.pipelines.analysis.stored import open_stored
from rejuice.pipelines.recipe.steps import number_steps
from rejuice.trainer.verl.curation import curate, values_table
from rejuice.trainer.verl.figures import LONGEST, SampleRow, as_markdown, sample_rows

pytestmark = pytest.mark.slow

HOSTILE = [
    "<script>window.hit=1</script>",
    "<img src=https://example.org/pixel.png onerror=alert(1)>",
    "![x](https://example.org/pixel.png) [a](javascript:alert(1)) <https://example.org>",
    "[x]: https://example.org\n[x]\n\n# head\n\n---\n\n    code\n\n```\nfence\n```\n",
    "a | b |\n| --- |\n| **c** | _d_ | `e` | ~~f~~",
    "&lt;b&gt; &#60;b&#62; \\| \\<b> \\[x\\](y)",
    "\u202eabc\u200b \x1b[31m\x00 \u2028 \ud800",
]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A part of TINY's rows, by the steps after sampling; `steps` replaces them."""
    folder = tmp_path_factory.mktemp("tiny")
    rollouts = tiny_rollouts(folder)
    (one,) = open_stored(folder / "curated.parquet").sets
    steps = number_steps([step.operator for step in one.steps])

    def make(rollouts=rollouts, steps=steps, trains=True):
        curated = curate(steps, rollouts)
        values = values_table(rollouts, steps, curated.written)
        return SimpleNamespace(
            rollouts=rollouts, curated=curated, values=values, recipe=steps, trains=trains
        )

    make.rollouts = rollouts
    return make


def rows_of(part, step=3):
    return sample_rows(step, part)


def test_rows_go_from_the_greatest_spread_to_the_least_and_from_best_to_worst(tiny):
    rows = rows_of(tiny())
    assert [row.prompt[-6:-1] for row in rows[::4]] == ["5 + 5", "3 + 4", "1 + 1"]
    assert [row.response for row in rows[4:8]] == [r"\boxed{7}", "It is 7.", r"\boxed{8}", "It is 9."]  # fmt: skip
    second = rows[5]
    assert second[:6] == (3, "user: What is 3 + 4?", "It is 7.", "7", "correct", "accuracy 1, format -0.1")  # fmt: skip
    assert (second.reward, second.fate) == (0.9, "kept")
    assert second.advantage == pytest.approx(0.679365, abs=1e-6)
    # Dropped before there were rewards.
    assert {(row.reward, row.advantage, row.fate) for row in rows[8:]} == {
        (None, None, "pass_rate_filter: too_easy")
    }


def test_of_more_groups_and_rows_those_at_equal_distances_are_taken(tiny):
    first, copies = tiny.rollouts, []
    for at in range(6):  # 18 groups, of which six each are alike.
        ids = pa.array([f"{at}-{each}" for each in first["prompt_id"].to_pylist()])
        copies.append(first.set_column(first.column_names.index("prompt_id"), "prompt_id", ids))
    many = pa.concat_tables(copies)
    ids = pa.array([str(row) for row in range(many.num_rows)])
    many = many.set_column(many.column_names.index("response_id"), "response_id", ids)
    steps = tiny().recipe[:2] + tiny().recipe[4:]
    part = tiny(many, steps)
    rows = rows_of(part)
    assert len(rows) == 16
    assert rows == rows_of(part)
    assert [row.prompt[-6:-1] for row in rows[::4]] == ["5 + 5", "3 + 4", "3 + 4", "1 + 1"]
    for start in range(0, 16, 4):
        rewards = [row.reward for row in rows[start : start + 4]]
        assert rewards == sorted(rewards, reverse=True)


def test_what_is_missing_is_named_and_what_does_not_train_has_no_advantage(tiny):
    column = tiny.rollouts.column_names.index("response")
    texts = [None, *tiny.rollouts["response"].to_pylist()[1:]]
    rollouts = tiny.rollouts.set_column(column, "response", pa.array(texts, pa.string()))
    steps = tiny().recipe[:2]
    rows = rows_of(tiny(rollouts, steps, trains=False))
    assert {row.advantage for row in rows} == {row.reward for row in rows} == {None}
    (without,) = [row for row in rows if not row.response]
    assert without.components.endswith("format missing: no_response")


def test_nothing_was_sampled(tiny):
    assert rows_of(tiny(tiny.rollouts.slice(0, 0), steps=())) == []


def test_of_a_long_text_the_middle_is_left_out(tiny):
    long = ["a" * LONGEST + "b" * LONGEST] * tiny.rollouts.num_rows
    column = tiny.rollouts.column_names.index("response")
    part = tiny(tiny.rollouts.set_column(column, "response", pa.array(long)))
    text = rows_of(part)[0].response
    assert text == f"{'a' * (LONGEST // 2)} [4,000 characters left out] {'b' * (LONGEST // 2)}"


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_is_markup_in_tensorboard(text):
    """By the converter of TensorBoard itself, which allows links, images and what not."""
    from tensorboard.plugin_util import markdown_to_safe_html

    row = SampleRow(1, text, text, text, text, text, 1.0, None, text)
    html = markdown_to_safe_html(as_markdown([row, row]))
    tags = re.findall(r"</?([a-zA-Z]+)", html)
    assert set(tags) == {"table", "thead", "tbody", "tr", "th", "td"}
    assert (tags.count("tr"), tags.count("td"), tags.count("th")) == (6, 36, 18)
    assert "href" not in re.sub(r">[^<]*<", "><", html)
    assert not set("\u202e\u200b\x1b\x00\u2028") & set(html)


def test_every_punctuation_mark_is_shown_as_it_is():
    from html import unescape

    from tensorboard.plugin_util import markdown_to_safe_html

    row = SampleRow(1, string.punctuation, "", "", "", "", None, -0.25, "")
    cells = re.findall(r"<td>(.*?)</td>", markdown_to_safe_html(as_markdown([row])))
    assert [unescape(cell) for cell in cells] == ["1", string.punctuation, "", "", "", "", "", "-0.25", ""]  # fmt: skip


def test_wandb_takes_the_table(tiny):
    """The real one, where it is installed; a table needs no network."""
    wandb = pytest.importorskip("wandb")
    rows = rows_of(tiny())
    table = wandb.Table(columns=list(SampleRow._fields), data=list(map(list, rows)))
    assert len(table.data) == 12


# --------------------------------------------------------------------------- where it is logged


@pytest.fixture
def wandb(monkeypatch):
    """W&B, as far as verl and we use it; `logged` are the steps and what was logged."""
    made = types.ModuleType("wandb")
    made.__spec__ = ModuleSpec("wandb", None)  # accelerate looks for it.
    made.logged = []
    made.init = lambda **_: None
    made.finish = lambda **_: None
    made.Table = lambda columns, data: (columns, data)
    made.log = lambda data, step: made.logged.append((step, data))
    monkeypatch.setitem(sys.modules, "wandb", made)
    return made


@pytest.fixture
def tracked(stage, wandb, monkeypatch, tmp_path):
    """A factory of stages whose trainer has verl's own loggers, by their names."""

    def make(loggers, after=PLAIN, **train):
        from verl.utils.tracking import Tracking

        monkeypatch.setenv("TENSORBOARD_DIR", str(tmp_path / "events"))
        made = stage(after, loggers=[], **train)
        made.trainer.logger = Tracking("rejuice", "run", loggers)
        return made

    return make


def texts_of(folder):
    """Name, step and text of each text that was logged to TensorBoard."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"tensors": 0}).Reload()
    return [
        (tag.removesuffix("/text_summary"), each.step, each.tensor_proto.string_val[0].decode())
        for tag in events.Tags()["tensors"]
        for each in events.Tensors(tag)
    ]


def test_both_trackers_get_it_at_validated_steps_and_the_last(tracked, wandb, tmp_path):
    after = [PLAIN[0], summed("drop_row"), PLAIN[-1]]
    made = tracked(["wandb", "tensorboard"], after, steps=5, validate_every=2)
    for step in range(1, 6):
        made.answer({0: ["1", "0"], 1: ["1", "<b>0.5</b>", "0.5"]}, step=step)
        made.sample(step, 2)
        made.queue.partitions.clear()
    made.trainer.logger.finish()
    assert [step for step, _ in wandb.logged] == [2, 4, 5]
    columns, data = wandb.logged[0][1]["rejuice/samples"]
    assert columns == ["step", "prompt", "response", "reference", "verdict", "components", "reward", "advantage", "fate"]  # fmt: skip
    assert [row[2] for row in data] == ["1", "0", "1", "0.5", "<b>0.5</b>"]
    last = ["accuracy missing: <b>0.5</b>", None, None, "reward_sum_mapper: missing_component"]
    assert data[-1][5:] == last
    texts = texts_of(tmp_path / "events")
    assert [(name, step) for name, step, _ in texts] == [("rejuice/samples", k) for k in (2, 4, 5)]
    assert "| &#60;b&#62;0&#46;5&#60;&#47;b&#62; |" in texts[0][2]


def test_without_either_tracker_nothing_is_made(tracked, wandb, tmp_path, capsys):
    made = tracked(["console"], steps=1)
    made.answer({0: ["1", "0"], 1: ["1", "0"]})
    made.sample(1, 2)
    assert wandb.logged == []
    assert not (tmp_path / "events").exists()
    assert "samples" not in capsys.readouterr().out


def test_a_table_that_cannot_be_logged_is_a_warning_once(tracked, wandb, tmp_path, capsys):
    """And the other tracker gets its own."""
    made = tracked(["wandb", "tensorboard"], steps=3, validate_every=1)

    def refuse(columns, data):
        raise ConnectionError("no network")

    wandb.Table = refuse
    for step in (1, 2, 3):
        made.answer({0: ["1", "0"], 1: ["1", "0"]}, step=step)
        _, figures = made.sample(step, 2)
        assert figures["rejuice/rows_trained"] == 4
        made.queue.partitions.clear()
    made.trainer.logger.finish()
    assert [step for _, step, _ in texts_of(tmp_path / "events")] == [1, 2, 3]
    warnings = [text for text in capsys.readouterr().out.splitlines() if "warning" in text]
    assert warnings == [
        "step 1: warning: wandb got no table of samples: ConnectionError('no network')"
    ]
