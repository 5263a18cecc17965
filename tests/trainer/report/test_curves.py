"""Pictures of runs: what is one curve, and what is drawn of it."""

import re

import numpy as np
import pytest
from fake_run import line, write_run

from rejuice.operators import RejuiceError
from rejuice.trainer.report.curves import band, draw, grouped

pytestmark = pytest.mark.slow


def steps(*accuracies):
    return [line(0, validation=0.1)] + [line(at, a) for at, a in enumerate(accuracies, 1)]


def curve(x, y):
    return np.array(x, float), np.array(y, float)


def test_band_of_one_is_its_curve():
    found = band([curve([0, 10], [1, 3])])
    assert [each.tolist() for each in found] == [[0, 10], [1, 3], [1, 3], [1, 3]]


def test_band_is_mean_and_range():
    found = band([curve([1, 2], [0, 4]), curve([1, 2], [2, 8]), curve([1, 2], [7, 0])])
    assert [each.tolist() for each in found[1:]] == [[3, 4], [0, 0], [7, 8]]


def test_band_is_only_where_all_curves_are():
    found = band([curve([0, 4], [0, 4]), curve([1, 3, 9], [2, 2, 2])])
    assert [each.tolist() for each in found[:2]] == [[1, 3, 4], [1.5, 2.5, 3.0]]


def test_runs_that_differ_in_their_seeds_are_one_curve(tmp_path):
    folders = [
        write_run(
            tmp_path / f"seed{seed}",
            steps(0.1, 0.2),
            train={"seed": seed},
            export_path=f"seed{seed}.parquet",
        )
        for seed in (0, 1)
    ]
    other = write_run(tmp_path / "lr", steps(0.3), train={"learning_rate": 0.1})
    another = write_run(tmp_path / "other", steps(0.3), project_name="other")
    found = grouped([*folders, other, another])
    assert [(runs.name, len(runs.points)) for runs in found] == [
        ("try (seed0), mean and range of 2 seeds", 2),
        ("try (lr)", 1),
        ("other (other)", 1),
    ]


def test_a_picture_of_one_run(tmp_path):
    draw(grouped([write_run(tmp_path / "one", steps(0.1, 0.2))]), tmp_path / "new" / "one.png")
    assert (tmp_path / "new" / "one.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_written_on_it(tmp_path):
    one = write_run(tmp_path / "one", steps(0.1, 0.2))
    two = write_run(tmp_path / "two", steps(0.1, 0.2), train={"seed": 1})
    import matplotlib as mpl

    other = write_run(tmp_path / "other", steps(0.1), project_name="other")
    with mpl.rc_context({"svg.fonttype": "none"}):
        draw(grouped([one, two, other]), tmp_path / "x.svg", against="tokens")
    text = (tmp_path / "x.svg").read_text()
    for word in (
        "try (one), mean and range of 2 seeds", "other (other)", "validation accuracy", "pass rate", "reward",
        "accuracy", "format", "rows dropped", "entropy", "response tokens", "KL", "gradient norm", "tokens generated",
        "share correct", "share of the rows sampled", "nats", "tokens, mean", "before clipping",
    ):  # fmt: skip
        assert f">{word}<" in text, word


def words_of(path, *folders):
    """The texts of the picture of some runs."""
    import matplotlib as mpl

    with mpl.rc_context({"svg.fonttype": "none"}):
        draw(grouped(folders), path)
    return re.findall(r">([^<>\n]+)</text>", path.read_text())


def test_a_run_without_validation_is_in_the_legend(tmp_path):
    validated = write_run(tmp_path / "a", steps(0.1, 0.2), project_name="validated")
    alone = write_run(tmp_path / "b", [line(1, 0.1), line(2, 0.2)], project_name="unvalidated")
    for folders in ((alone, validated), (validated, alone)):
        words = words_of(tmp_path / "x.svg", *folders)
        assert (words.count("validated (a)"), words.count("unvalidated (b)")) == (1, 1)


def test_what_no_run_logs_is_not_drawn(tmp_path):
    metrics = {"timing_s/step": 2.0, "critic/score/mean": 0.5, "actor/entropy": 0.1}
    replays = [write_run(tmp_path / name, [line(1, **metrics)], project_name=name) for name in "ab"]
    words = words_of(tmp_path / "x.svg", *replays)
    assert {"reward", "entropy", "a (a)", "b (b)"} <= {*words}
    unlogged = {
        "validation accuracy",
        "pass rate",
        "rows dropped",
        "response tokens",
        "KL",
        "gradient norm",
    }
    assert {*words} & unlogged == set()
    assert words_of(tmp_path / "x.svg", replays[0]).count("training step") == 2, "two panels"


def test_each_validation_set_is_a_curve(tmp_path):
    def logged(step, gsm8k, aime):
        sets = {"gsm8k/mean@1": gsm8k, "aime/mean@16": aime, "aime/pass@16": 0.5}
        return {f"rejuice/validation/{name}": value for name, value in sets.items()}

    lines = [line(0, **logged(0, 0.1, 0.2)), line(1, 0.1), line(2, 0.2, **logged(2, 0.3, 0.4))]
    words = words_of(tmp_path / "x.svg", write_run(tmp_path / "run", lines))
    assert {"validation accuracy", "validation gsm8k", "validation aime"} <= {*words}
    assert "pass@16" not in words
    assert words.count("share correct") == 2, "of all sets, and of training"
    one = [line(0, **{"rejuice/validation/gsm8k/mean@1": 0.1}), *lines[1:2]]
    assert "validation aime" not in words_of(tmp_path / "y.svg", write_run(tmp_path / "one", one))


def test_errors(tmp_path):
    empty = write_run(tmp_path / "empty", [line(0, validation=0.1)])
    for folders, message in (
        ([tmp_path / "none"], f"{tmp_path}/none holds no training run; give the --output of one"),
        ([empty], f"{empty} has trained no step; wait for the first one"),
    ):  # fmt: skip
        with pytest.raises(RejuiceError) as error:
            grouped(folders)
        assert str(error.value).startswith(message)


def test_curves_of_agents_have_their_turns(tmp_path):
    logged = {"rejuice/agent/turns": 2.5, "rejuice/agent/tool_calls": 1.5}
    logged |= {"rejuice/agent/tool_errors": 0.5}
    run = write_run(tmp_path / "one", [line(1, 0.1, **logged), line(2, 0.2, **logged)])
    import matplotlib as mpl

    with mpl.rc_context({"svg.fonttype": "none"}):
        draw(grouped([run]), tmp_path / "x.svg")
    text = (tmp_path / "x.svg").read_text()
    for word in ("turns", "tool calls", "tool errors"):
        assert f">{word}<" in text, word
