"""Every slow test is in one slot, and CI runs the slots that a change touches."""

import re

import pytest
import slots
from slots import ROOT, SLOW, Slot, choose, reached, slot_of
from tiers import NOT_FAST

ALL = slots.slots()
BY_NAME = {slot.name: slot for slot in ALL}
ABOUT_MARKS = ("test_slots.py", "test_tiers.py")
"""Files that name marks and have none."""


def files_with(mark):
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    word = re.compile(rf"\bpytest\.mark\.{mark}\b")
    return [
        str(file.relative_to(ROOT))
        for file in files
        if file.name not in ABOUT_MARKS and word.search(file.read_text("utf-8"))
    ]


def test_every_file_with_slow_tests_is_in_a_slot():
    outside = [file for file in files_with("slow") if slot_of(file) is None]
    assert outside == [], "give them a slot in tests/slots.yaml"


@pytest.mark.parametrize("slot", [slot for slot in ALL if slot.mark != SLOW], ids=lambda s: s.name)
def test_every_file_with_a_mark_of_its_own_is_in_its_slot(slot):
    outside = [
        file
        for file in files_with(slot.mark)
        if not any(file == path or file.startswith(f"{path}/") for path in slot.paths)
    ]
    assert outside == []


def test_every_mark_has_a_slot_or_a_target_of_its_own():
    assert {slot.mark for slot in ALL} == {SLOW, *NOT_FAST} - {"slow", "real_model"}


def test_paths_and_what_is_started_are_there():
    for slot in ALL:
        assert slot.paths
        for path in slot.paths:
            assert (ROOT / path).exists(), path
        for module in slot.starts:
            assert slots._module_file(module), module


def test_a_slot_leaves_out_what_is_in_another():
    words = BY_NAME["engine"].command(ALL)
    assert "tests/pipelines" in words
    left_out = [words[k + 1] for k, word in enumerate(words) if word == "--deselect"]
    assert "tests/pipelines/dj_process" in left_out
    assert not any(path.startswith("tests/trainer") for path in left_out)
    assert slot_of("tests/pipelines/dj_process/test_plugin.py").name == "dj-process"


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("browser", "pipelines/analysis/page/build.py"),
        ("ray", "pipelines/engine/workers_on_ray.py"),
        ("operators", "operators/mapper/unit_test_mapper.py"),
        ("operators", "tests/support/fake_server.py"),
        ("faults", "trainer/verl/training.py"),
        ("vllm", "operators/sampling/vllm_engine.py"),
        ("pages", "recipes/quickstart.yaml"),
        ("pages", "README.md"),
        ("browser", "pipelines/analysis/page/assets/page.js"),
        ("ray", "constraints.txt"),
    ],
)
def test_a_slot_reaches_what_decides_its_tests(name, file):
    assert ROOT / file in reached(BY_NAME[name])


def test_a_test_file_is_of_the_slot_that_runs_it():
    file = ROOT / "tests/trainer/main_ppo/test_replay.py"
    near = [slot.name for slot in ALL if reached(slot).get(file) == 0]
    assert near == ["replay"]


def test_what_a_package_exports_again_leads_to_where_it_is_defined():
    (found,) = slots._resolve("rejuice.operators", "Filter")
    assert found == ROOT / "operators" / "operator.py"


def some(*names):
    return [Slot(name, (f"tests/{name}",), minutes=5) for name in names]


def test_without_a_change_it_is_the_turn_of_the_next():
    three = some("a", "b", "c")
    assert [choose(three, {}, turn)[0].name for turn in range(4)] == ["a", "b", "c", "a"]
    rare = [three[0]._replace(only_if_touched=True), *three[1:]]
    assert [choose(rare, {}, turn)[0].name for turn in range(4)] == ["b", "b", "c", "b"]


def test_the_nearest_comes_first_and_others_as_far_as_time_allows():
    four = some("a", "b", "c", "d")
    distances = {"a": 2, "b": 3, "c": 0}
    chosen = [choose(four, distances, turn, minutes=10) for turn in range(4)]
    assert [[slot.name for slot in each] for each in chosen] == [
        ["c", "a"], ["c", "b"], ["c", "a"], ["c", "a"],
    ]  # fmt: skip
    assert [slot.name for slot in choose(four, distances, 0, minutes=15)] == ["c", "a", "b"]
    assert [slot.name for slot in choose(four, {"d": 1}, 0, minutes=1)] == ["d"]


def test_without_history_one_slot_is_chosen(monkeypatch, capsys):
    monkeypatch.setattr(slots, "_git", lambda *_: None)
    assert len(slots.chosen_by_ci()) == 1
    assert "no full pass" in capsys.readouterr().err


def test_a_change_is_what_differs_from_the_last_full_pass(monkeypatch, tmp_path, capsys):
    printed = {"diff": "pipelines/analysis/page/assets/page.js\n", "rev-list": "3\n"}
    monkeypatch.setattr(slots, "_git", lambda word, *_: printed[word])
    (tmp_path / "last").write_text("0123abc\n")
    monkeypatch.setattr(slots, "LAST_FULL_PASS", tmp_path / "last")
    assert "browser" in [slot.name for slot in slots.chosen_by_ci()]
    assert "1 files changed" in capsys.readouterr().err
    printed["diff"] = "docs/agents.md\n"
    assert [slot.name for slot in slots.chosen_by_ci()] == ["pages"]
    printed["diff"] = "LICENSE\n"
    assert [slot.name for slot in slots.chosen_by_ci()] == [ALL[3].name]


def test_a_slot_that_does_not_exist_is_named(capsys):
    with pytest.raises(SystemExit):
        slots.main(["run", "ry"])
    assert "there is no slot ry; there are engine, " in capsys.readouterr().err


def test_a_failure_says_which_command_runs_it_again(monkeypatch, capsys):
    class Done:
        returncode = 1

    monkeypatch.setattr(slots.subprocess, "run", lambda *_, **__: Done)
    assert slots.main(["run", "ray"]) == 1
    assert "`make slot SLOT=ray` runs it again" in capsys.readouterr().out
