"""Which prompts a training step samples, where the recipe's steps choose them."""

import json
from collections import Counter
from shutil import rmtree
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
import yaml
from fake_run import save
from rich.console import Console

from rejuice.operators import DataError, RecipeError, build, get
from rejuice.operators.training_step import StepContext
from rejuice.pipelines.recipe.recipe import load
from rejuice.pipelines.recipe.steps import Step
from rejuice.trainer.report.next_step import next_step, show_next_step
from rejuice.trainer.run import TrainingRun
from rejuice.trainer.split import answers_only, split_recipe
from rejuice.trainer.verl.choice import (
    PromptChoice,
    order,
    progress_of,
    read_earlier,
    write_earlier,
)
from rejuice.trainer.verl.history import HISTORY, history_of, read_history, write_history

PROMPTS = pa.table({"prompt_id": [f"p{n}" for n in range(12)], "level": [1, 2, 3] * 4})
NUMBERED = PROMPTS.append_column("prompt_row", pa.array(range(12)))


def steps(*given):
    """Steps, each by its name and its fields."""
    made = ((name, build(get(name), fields)) for each in given for name, fields in each.items())
    return tuple(Step(number, name, operator) for number, (name, operator) in enumerate(made, 1))


def visits(step, rates, tokens=8.0):
    """The history of a step: the pass rates of prompts, by their numbers."""
    rows = [
        {
            "step": step, "prompt_id": f"p{n}", "n": 4, "graded": 4, "pass_rate": rate,
            "trained": 4, "response_tokens": tokens,
        }
        for n, rate in rates.items()
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, HISTORY)


def context(number=1, *, prompts=4, seed=0, progress=0.0, known=()):
    table = pa.concat_tables([HISTORY.empty_table(), *known])
    rows = [int(name[1:]) for name in table["prompt_id"].to_pylist()]
    numbered = table.append_column("prompt_row", pa.array(rows, pa.int64()))
    return StepContext(number, progress, prompts, seed, numbered)


def ordered(given, at):
    """The order of the prompts by some steps, for a training step."""
    made = steps(*given)
    own = [x._replace(operator=getattr(x.operator, "at_step", lambda _, x=x: x.operator)(at)) for x in made]  # fmt: skip
    return order(NUMBERED, own, at)


def test_without_a_rank_what_was_visited_last_comes_last():
    known = [visits(1, {4: 0.5}), visits(2, {2: 0.5}), visits(3, {0: 0.5})]
    found = ordered([{"history_mapper": {}}], context(4, known=known))
    assert len(found.rows) == 12
    assert found.rows[-3:].tolist() == [4, 2, 0]
    assert found.rows[:9].tolist() != sorted(found.rows[:9])
    other = ordered([{"history_mapper": {}}], context(5, known=known))
    assert found.rows.tolist() != other.rows.tolist()


def test_dropped_prompts_are_left_out_for_a_reason():
    known = [visits(1, {0: 1.0, 1: 0.5, 2: 1.0}), visits(2, {0: 1.0, 2: 0.5})]
    given = [{"history_mapper": {}}, {"retire_filter": {"visits": 2}}]
    found = ordered(given, context(3, known=known))
    assert sorted(found.rows) == list(range(1, 12))
    assert found.curated.decisions.to_pylist() == [
        {"row_id": "p0", "step": "retire_filter", "reason": "too_easy"}
    ]


def test_the_rank_decides_and_quotas_keep_its_order():
    known = [visits(1, {n: n / 12 for n in range(12)})]
    given = [
        {"history_mapper": {"discount": 1}},
        {"difficulty_selector": {"explore": 0, "cooldown_steps": 0}},
        {"source_quota_selector": {"column": "level", "quotas": {"1": 1, "2": 1}}},
    ]
    found = ordered(given, context(2, known=known))
    assert Counter(PROMPTS["level"][row].as_py() for row in found.rows[:4]) == {1: 2, 2: 2}
    assert len(found.rows) == 8
    names, ranks = found.curated.table.select(["prompt_id", "choice_rank"]).to_pydict().values()
    rank_of = dict(zip(names, ranks, strict=True))
    assert [rank_of[f"p{row}"] for row in found.rows[:8]] == list(range(8))


# --- In a run -------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path):
    """A factory of runs whose recipe chooses prompts by some steps."""

    def make(*choosing, **train):
        recipe = recipe_of(tmp_path, choosing, train)
        folder = tmp_path / "run"
        (folder / "prompts").mkdir(parents=True, exist_ok=True)
        feather.write_feather(PROMPTS, folder / "prompts" / "train.arrow", "uncompressed")
        return TrainingRun.of(folder, recipe)

    return make


TEMPLATE = {"prompt_template_mapper": {"question": "question", "reference": "answer"}}


def recipe_of(folder, choosing, train=(), after=()):
    pq.write_table(pa.table({"question": ["2+2?"], "answer": ["4"]}), folder / "data.parquet")
    document = {
        "project_name": "choice", "dataset_path": str(folder / "data.parquet"),
        "export_path": str(folder / "out.parquet"),
        "process": [
            TEMPLATE,
            *choosing,
            {"policy_rollout_mapper": {"n": 4, "max_tokens": 16}},
            {"math_verify_mapper": None},
            *after,
            {"reward_sum_mapper": {"weights": {"accuracy": 1.0}, "on_missing": "drop_row"}},
        ],
        "train": {"steps": 9, "prompts_per_step": 4, "max_prompt_tokens": 16, **dict(train)},
    }  # fmt: skip
    (folder / "recipe.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    return load(folder / "recipe.yaml")


CHOOSING = (
    {"history_mapper": None},
    {"retire_filter": {"visits": 1}},
    {"difficulty_selector": {"explore": 0.25}},
)


def trained(choice, run, first, last, seed=3):
    """Take some steps: what each has sampled; rates are those of a policy that nobody has."""
    found = []
    for step in range(first, last + 1):
        rows = choice.take(step, 4)
        found.append(rows)
        rates = np.random.default_rng([seed, step]).integers(0, 5, len(rows)) / 4
        history = visits(step, dict(zip(rows, rates.tolist(), strict=True)))
        write_history(run.step_folder(step), history)
        with (run.folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"step": step, "data": {"timing_s/step": 1.0}}) + "\n")
        choice.add(step, history)
    return found


def test_a_run_that_is_resumed_chooses_the_same(run):
    straight = run(*CHOOSING)
    whole = trained(PromptChoice(straight), straight, 1, 9)
    assert len({tuple(rows) for rows in whole}) == 9
    for at in (1, 4, 8):  # The steps after the checkpoint were taken, and are taken again.
        again = PromptChoice(straight)
        assert trained(again, straight, at + 1, 9) == whole[at:]


def test_the_next_step_is_previewed(run, capsys):
    here = run(*CHOOSING, {"retire_filter": {"max": None, "min": 0.0, "visits": 1}})
    trained(PromptChoice(here), here, 1, 4)
    found = next_step(here)
    assert found.number == 5
    choice = PromptChoice(here)
    rows = choice.take(5, 4)
    assert found.taken["prompt_id"].to_pylist() == [f"p{row}" for row in rows]
    assert found.eligible + sum(found.dropped.values()) == found.prompts == 12
    show_next_step(here.folder, here.recipe, Console(width=200))
    first, heading, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith(
        f"step 5 samples {len(rows)} of {found.eligible} eligible prompts, of 12; dropped: "
    )
    assert heading.split()[:3] == ["prompt_id", "visits", "age"]
    assert [line.split()[0] for line in lines] == [f"p{row}" for row in rows]
    trained(PromptChoice(here), here, 5, 9)
    show_next_step(here.folder, here.recipe, Console(width=200))
    assert capsys.readouterr().out == "all 9 steps are trained; the next one: --train.steps 10\n"
    show_next_step(here.folder, run().recipe, Console())  # Nothing chooses.
    assert not capsys.readouterr().out


def test_the_next_step_leaves_out_what_is_under_way(run, capsys):
    fields = {"mode": "separate_async", "max_age": 1, "prompts_per_step": 2}
    here = run(*CHOOSING, **fields)
    assert next_step(here).taken.num_rows == 4  # Those of the second step, too.
    for number, wanted in ((1, 2), (2, 4), (3, 6)):  # Of a run that has no more steps.
        short = run(*CHOOSING, **{**fields, "max_age": 2, "steps": number})
        assert next_step(short).taken.num_rows == wanted
    choice, ahead = PromptChoice(here), list[int]()
    for step in (1, 2, 3):
        ahead += choice.take(step, 4 if step == 1 else 2, ahead)
        now, ahead = ahead[:2], ahead[2:]
        folder = here.step_folder(step)
        history = visits(step, dict.fromkeys(now, 0.5))
        write_history(folder, history)
        pq.write_table(choice.table, folder / "choice.parquet")
        with (here.folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"step": step, "data": {"timing_s/step": 1.0}}) + "\n")
        choice.add(step, history)
    found, wanted = next_step(here), choice.take(4, 2, ahead)
    assert (found.number, found.under_way, len(ahead)) == (4, 2, 2)
    assert found.taken["prompt_id"].to_pylist() == [f"p{row}" for row in wanted]
    assert not {*wanted} & {*ahead}
    show_next_step(here.folder, here.recipe, Console(width=200))
    assert "step 4 samples 2 of 12 eligible prompts, besides 2 under way, of 12" in (
        capsys.readouterr().out
    )
    last = run(*CHOOSING, **fields, steps=4)
    assert next_step(last).taken.num_rows == 0  # The step before has requested its prompts.
    show_next_step(last.folder, last.recipe, Console(width=200))
    assert "step 4 samples 0 of 12" in capsys.readouterr().out
    # Saved and not logged: what it has trained on is not under way, and is not trained again.
    save(here.folder, 3)
    lines = (here.folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (here.folder / "metrics.jsonl").write_text("".join(lines[:-1]))
    assert next_step(run(*CHOOSING, **fields)).number == 4
    unknown = run(*CHOOSING, **fields, keep_rollouts=False)
    assert next_step(unknown).under_way is None
    show_next_step(unknown.folder, unknown.recipe, Console(width=200))
    assert "not known: keep_rollouts is false" in capsys.readouterr().out


def test_refills_take_the_next_as_long_as_there_are_some(run):
    choice = PromptChoice(run(*CHOOSING))
    first, more = choice.take(1, 8), choice.take(1, 6)
    assert sorted(first + more) == list(range(12))
    assert (choice.taken, choice.left, choice.take(1, 3)) == (12, 0, [])


def test_a_step_takes_what_is_left_and_training_ends_where_nothing_is(run):
    here = run({"history_mapper": None}, {"retire_filter": {"visits": 1}})
    choice = PromptChoice(here)
    choice.add(1, visits(1, dict.fromkeys(range(10), 1.0)))
    rows = choice.take(2, 4)
    assert set(rows) == {10, 11}
    figures = choice.figures()
    assert figures["choice/eligible"] == 2
    assert figures["choice/dropped/too_easy"] == 10
    assert figures["choice/note/history_mapper/never_visited"] == 2
    table = choice.table
    assert table["prompt_id"].to_pylist() == [f"p{row}" for row in rows]
    assert table["history_visits"].to_pylist() == [0, 0]
    choice.add(2, visits(2, dict.fromkeys(rows, 1.0)))
    with pytest.raises(DataError, match=r"step 3: no prompt is left to sample \(too_easy 12\)"):
        choice.take(3, 4)


def test_an_earlier_run_counts_as_it_was_at_the_start(run, tmp_path):
    earlier = tmp_path / "earlier"
    for step in (1, 2):
        write_history(earlier / "steps" / f"{step:06d}", visits(step, {3: 1.0, 4: 0.5}))
    here = run({"history_mapper": {"run": str(earlier)}}, {"retire_filter": {"visits": 2}})
    rmtree(here.folder / "prompts")
    write_earlier(here)
    feather.write_feather(PROMPTS, here.folder / "prompts" / "train.arrow", "uncompressed")
    write_history(earlier / "steps" / "000003", visits(3, {4: 1.0}))
    choice = PromptChoice(here)
    rows = choice.take(1, 12)
    assert sorted(rows) == [0, 1, 2, *range(4, 12)]
    assert rows[-1] == 4
    table = dict(zip(*choice.table.select(["prompt_id", "history_visits"]).to_pydict().values(), strict=True))  # fmt: skip
    assert table["p4"] == 2
    write_earlier(run(*CHOOSING))  # Without `run`.
    assert not read_earlier(here).num_rows


def test_a_rank_of_the_dataset_does_not_count(run):
    here = run({"history_mapper": None})
    ranked = PROMPTS.append_column("choice_rank", pa.array(range(12)))
    feather.write_feather(ranked, here.folder / "prompts" / "train.arrow", "uncompressed")
    assert PromptChoice(here).take(1, 12) != list(range(12))


def test_prompts_without_a_rank_come_last_by_their_visits(run):
    known = [visits(1, {4: 0.5}), visits(2, {2: 0.5})]
    ranked = NUMBERED.append_column("choice_rank", pa.array([None] * 6 + [1.0, 0.0] + [None] * 4))
    at = context(3, known=known)
    found = order(ranked, steps(), at).rows.tolist()
    assert found[:2] == [7, 6]
    assert found[-2:] == [4, 2]
    assert found[2:-2] != sorted(found[2:-2])


def test_a_rank_that_a_step_of_the_recipe_wrote_counts(run, tmp_path):
    here = run({"history_mapper": None})
    step = here.split.before[0]
    ranking = step._replace(operator=SimpleNamespace(writes=lambda: ("choice_rank",)))
    ranked = PROMPTS.append_column("choice_rank", pa.array(range(12, 0, -1)))
    feather.write_feather(ranked, here.folder / "prompts" / "train.arrow", "uncompressed")
    given = here._replace(split=here.split._replace(before=(ranking,)))
    assert PromptChoice(given).take(1, 12) == list(range(11, -1, -1))


def test_a_prompt_without_responses_is_visited_too():
    empty = pa.table({})
    part = SimpleNamespace(
        rollouts=empty, values=empty, trained=empty, curated=SimpleNamespace(decisions=empty)
    )
    found = history_of(3, part, pa.chunked_array([["p1", "p2"]]))
    assert found.select(["step", "prompt_id", "n", "graded", "reason"]).to_pylist() == [
        {"step": 3, "prompt_id": name, "n": 0, "graded": 0, "reason": "failed_prompt"}
        for name in ("p1", "p2")
    ]


def test_a_history_that_is_missing_is_named(run):
    here = run(*CHOOSING)
    trained(PromptChoice(here), here, 1, 3)
    (here.step_folder(2) / "history.parquet").unlink()
    with pytest.raises(DataError, match=r"000002/history.parquet cannot be read.*put the file"):
        PromptChoice(here).take(4, 4)


def test_a_damaged_byte_changes_no_choice(run):
    here = run(*CHOOSING)
    trained(PromptChoice(here), here, 1, 1)
    file = here.step_folder(1) / "history.parquet"
    content, history, refused = file.read_bytes(), read_history(here, 1), 0
    for at in range(0, len(content), 29):
        file.write_bytes(content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :])
        try:
            assert read_history(here, 1).equals(history)
        except DataError:
            refused += 1
    assert refused > 20


# --- Recipes --------------------------------------------------------------------------


def test_steps_before_the_history_run_once_and_those_after_it_at_each_step(tmp_path):
    parts = split_recipe(recipe_of(tmp_path, CHOOSING))
    assert [step.name for step in parts.before] == ["prompt_template_mapper"]
    assert [step.name for step in parts.choosing] == [next(iter(each)) for each in CHOOSING]


@pytest.mark.parametrize(
    ("choosing", "after", "found"),
    [
        (
            [*CHOOSING, {"llm_quality_reward_mapper": {"model": "judge"}}],
            [],
            "llm_quality_reward_mapper would ask a server before each training step, about all",
        ),
        ([*CHOOSING, {"history_mapper": None}], [], "two history_mappers"),
        (
            [{"curriculum_filter": {"column": "level", "stages": {0: 1}}}, TEMPLATE],
            [],
            "prompt_template_mapper_2 writes prompt.* after curriculum_filter, from where on",
        ),
        (
            [{"source_quota_selector": {"quotas": {"a": 1}}}, *CHOOSING[:2]],
            [],
            "retire_filter would change the choice that source_quota_selector has divided",
        ),
        (
            [CHOOSING[0], {"source_quota_selector": {"quotas": {"a": 1}}}, CHOOSING[2]],
            [],
            "put it before source_quota_selector",
        ),
        ([], CHOOSING[:1], "history_mapper is for prompts, and stands after the sampling"),
        (
            CHOOSING,
            [{"column_range_filter": {"column": "history_visits", "min": 1}}],
            "column_range_filter reads history_visits, which is written before each training step",
        ),
    ],
)
def test_what_does_more_than_choose_is_refused(tmp_path, choosing, after, found):
    with pytest.raises(RecipeError, match=found):
        split_recipe(recipe_of(tmp_path, choosing, after=after))


def test_a_validation_has_all_prompts(run, tmp_path):
    overrides = {"difficulty_selector": {"explore": 0.5}}
    validation = {"hard": {"path": str(tmp_path / "data.parquet"), "overrides": overrides}}
    with pytest.raises(RecipeError, match="difficulty_selector chooses the prompts of training"):
        run(*CHOOSING, validation=validation)


def test_the_progress_of_a_choice_is_kept(run):
    stages = {"curriculum_filter": {"column": "level", "stages": {0: 1, 0.5: 2, 0.9: 3}}}
    choice = PromptChoice(run(stages, steps=9))
    choice.add(4, visits(4, {}))
    choice.take(5, 4)
    assert progress_of(choice.table.schema) == 0.5
    assert progress_of(PROMPTS.schema) is None
    # Training goes on for longer, and the step was taken by what it was then.
    longer = PromptChoice(run(stages, steps=90))
    longer.add(4, visits(4, {}))
    [then], [now] = longer.steps(5, 0.5), longer.steps(5)
    assert (then.operator.step.progress, now.operator.step.progress) == (0.5, 4 / 89)


def test_where_nothing_is_sampled_nothing_is_chosen(tmp_path, run):
    with pytest.raises(RecipeError, match="history_mapper chooses prompts at each training step"):
        answers_only(recipe_of(tmp_path, CHOOSING))
    with pytest.raises(RecipeError, match=r"train\.replay has samples"):
        run(*CHOOSING, replay=str(tmp_path / "stored.parquet"))


@pytest.mark.slow
def test_verl_submits_the_prompts_that_are_chosen(verl):
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer
    from verl.utils.dataset.rl_dataset import collate_fn

    from rejuice.trainer.verl.verl_trainer import VerlTrainer

    class Trainer:
        global_steps = 3
        config = SimpleNamespace(data=SimpleNamespace(train_batch_size=2))
        train_dataloader = SimpleNamespace(collate_fn=collate_fn)
        _add_prompts_to_generate = PPOTrainer._add_prompts_to_generate

        def __init__(self):
            self.submitted = []
            self.train_dataset = [{"raw_prompt": f"prompt {n}", "index": n} for n in range(5)]

        def _submit_batch_to_rollout(self, batch):
            self.submitted.append(batch)
            return len(batch)

    trainer, asked = Trainer(), []
    made = VerlTrainer(trainer._add_prompts_to_generate)
    made.choose_prompts(lambda step, n: asked.append((step, n)) or [4, 0, 2][:n])
    assert made.refill(3) == 3
    trainer._submit_batch_to_rollout(trainer._next_train_batch())
    assert asked == [(3, 3), (3, 2)]
    batch = trainer.submitted[0]
    assert list(batch["raw_prompt"]) == ["prompt 4", "prompt 0", "prompt 2"]
    assert len(set(batch["uid"])) == 3
    assert batch["global_steps"] == 3
