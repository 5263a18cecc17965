"""Every command that looks at a stored run, on one of them, compared with its files."""

import numpy as np
import pyarrow.compute as pc
import pytest
from page_fixture import Page

from rejuice.pipelines.cli.shared import open_run

WEIGHT = "--reward_sum_mapper.weights.accuracy"


def mean_reward(table):
    return pc.mean(table["reward"]).as_py()


def check_every_command(rejuice, path, table, folder, *, sampled, judged=False):
    """Run them all.

    Args:
        rejuice: runs the command, see `command.runner`.
        path: the stored run.
        table: the rows that are left, as its file has them: answers only.
        folder: where pages and samples may be written.
        sampled: how many responses were sampled.
        judged: whether judgements are trained on, too.
    """

    def checked(*words):
        code, out, err = rejuice(*words)
        assert (code, err) == (0, ""), words
        return out

    rewarded = table.filter(table["reward"].is_valid())
    row = rewarded["response_id"][len(rewarded) // 2].as_py()
    at = rewarded.filter(pc.equal(rewarded["response_id"], row))

    out = checked("explain", path, row)
    assert f"   reward = {at['reward'][0].as_py()}" in out.splitlines()
    assert len(out.splitlines()) <= 42

    left = sum(one.final().num_rows for one in open_run(path).sets if one.kind == "answers")
    assert f"{left:,}" in checked("report", path)

    # The accuracy of a row that is left is 0 or 1, and the new reward that much greater.
    more = checked("whatif", path, WEIGHT, "2.0")
    assert f"{sampled:,} stored rows" in more or judged
    (changed,) = [line for line in more.splitlines() if line.startswith("changed ")]
    assert changed.endswith("reward_sum_mapper.weights.accuracy 1.0 -> 2.0")

    assert "nothing" in checked("whatif", path, "--each")

    out = checked("preview", path)
    (sizes,) = [line for line in out.splitlines() if line.startswith("mean |advantage|")][:1]
    assert float(sizes.split()[2]) > 0

    out = checked("audit", path, "-o", folder / "audit.jsonl")
    assert "graded by math_verify_mapper" in out
    assert "signs  " in out
    assert (folder / "audit.jsonl").read_text().count("\n") >= 20

    out = checked("diff", path, path)
    assert "all with the same fate, reward and advantage" in out

    out = checked("view", path, "--no-open", "-o", folder / "p.html")
    page = Page(folder / "p.html")
    assert sum(each["rows"] for each in page.head["sets"]) >= sampled
    return more


def check_whatif_by_hand(out, table, component="reward_accuracy"):
    """The mean rewards of `whatif` with twice the weight of accuracy, where no row changes fate."""
    (line,) = [line for line in out.splitlines() if line.startswith("mean reward ")]
    before, after = line.split()[2::2]
    rewarded = table.filter(table["reward"].is_valid())
    assert float(before) == pytest.approx(mean_reward(rewarded), abs=5e-4)
    added = np.nanmean(rewarded[component].to_numpy(zero_copy_only=False))
    assert float(after) == pytest.approx(mean_reward(rewarded) + added, abs=1e-3)


def sampled_rows(path):
    """How many responses a stored run sampled."""
    return sum(one.base(part).num_rows for one in open_run(path).sets for part in range(one.parts))
