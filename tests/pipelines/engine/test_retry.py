"""`--retry_missing`: what failed in a step is computed again, and nothing else."""

from functools import partial
from pathlib import Path

import pyarrow.json
import pyarrow.parquet as pq
import pytest
from command import runner
from fake_judge import FakeJudge, Trouble
from fake_server import FakeServer

from rejuice.operators import EngineError, RecipeError, RejuiceError, verifier
from rejuice.operators.groups import hash_each
from rejuice.operators.verifier import verify_batch
from rejuice.operators.verifier.pool import Verdict
from rejuice.pipelines import api
from rejuice.pipelines.dataset import files
from rejuice.pipelines.dataset.remote import to_path
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.engine.cache import remove, select_unused
from rejuice.pipelines.engine.steps import run_in_memory
from rejuice.pipelines.recipe.recipe import load

PROMPTS = 9
QUICK = {"back_off_s": 0.002, "timeout_s": 60, "patience_s": 0.1, "attempts": 2}
JUDGE, SUM = "llm_quality_reward_mapper", "reward_sum_mapper"
SCORER = '''
import pathlib
import pyarrow as pa
from rejuice.operators import Change, ResumableOperator
from rejuice.operators.columns import component

class ScorerMapper(ResumableOperator):
    """Fails for the rows that a file names; stops where it says so."""
    folder: str
    def reads(self): return ("response_id",)
    def writes(self): return ("reward_x", "reward_x_missing")
    def apply(self, table): return self._change(table["response_id"].to_pylist())
    def process_rows(self, table, rows):
        ids = table["response_id"].to_pylist()
        for row in rows:
            if ids[row] in self._named("stop"): raise KeyboardInterrupt
            with open(f"{self.folder}/log", "a") as log:
                log.write(f"{ids[row]}\\n")
            yield row, self._change([ids[row]])
    def _named(self, name):
        file = pathlib.Path(self.folder) / name
        return file.read_text().split() if file.exists() else []
    def _change(self, ids):
        missing = ["busy" if each in self._named("fail") else None for each in ids]
        values = component("x", [1.0] * len(ids), pa.array(missing, pa.string()))
        return Change(values, notes={"computed": len(ids)})
'''
DROPPER = '''
from rejuice.operators import Change, ResumableOperator, drop

class DropperMapper(ResumableOperator):
    """Drops the rows that a file names."""
    file: str
    reasons = {"down": "the server was down"}
    def reads(self): return ("response_id",)
    def writes(self): return ()
    def apply(self, table):
        with open(self.file) as file:
            named = file.read().split()
        ids = table["response_id"].to_pylist()
        return Change(reasons=drop({"down": [each in named for each in ids]}))
    def process_rows(self, table, rows):
        for row in rows:
            yield row, self.apply(table.slice(row, 1))
'''


@pytest.fixture
def recipe_of(recipe_file):
    """A recipe that samples one response to each prompt, and has them judged."""

    def make(policy, judge):
        options = {"api": "chat", "base_url": policy.url, **QUICK}
        sampling = {"engine": "openai", "model": "m", "n": 1, "max_tokens": 9, "openai": options}
        server = {"base_url": judge.url, **QUICK}
        cache = str(recipe_file.folder / "scores.sqlite")
        return recipe_file(
            [
                {"prompt_template_mapper": {}},
                {"policy_rollout_mapper": sampling},
                {JUDGE: {"model": "m", "server": server, "cache": cache}},
                {"length_filter": {"min": 1}},
                {SUM: {"weights": {"quality": 1.0}, "on_missing": "drop_row"}},
            ],
            [{"question": f"{k}?", "answer": str(k)} for k in range(PROMPTS)],
        )

    return make


@pytest.fixture
def recipe_file(recipe_file, tmp_path):
    recipe_file.folder = tmp_path
    return recipe_file


@pytest.fixture
def servers():
    with FakeServer() as policy, FakeJudge() as judge:
        yield policy, judge


def seeds_of(recipe):
    """The seeds of the prompts, by which the judge knows their responses."""
    table = pyarrow.json.read_json(recipe.head.dataset_path)
    prompt_ids = run_in_memory([recipe.steps[0].operator], table)["prompt_id"]
    return [int(seed) % 2**62 for seed in hash_each(prompt_ids)]


def exported(recipe):
    return pq.read_table(recipe.head.export_path)


def counts(report, step, column):
    return report.steps[step].columns[column]["counts"]


@pytest.mark.parametrize("named", [JUDGE, "3", 3])
def test_only_what_failed_is_judged_again(recipe_of, servers, named):
    policy, judge = servers
    recipe = load(recipe_of(policy, judge))
    failing = seeds_of(recipe)[2:4]
    judge.script = {seed: [Trouble.ERROR_500] * QUICK["attempts"] for seed in failing}
    first = engine.run(recipe)
    assert counts(first, 2, "reward_quality_missing") == {"scorer_error": 2}
    assert exported(recipe).num_rows == PROMPTS - 2
    sampled, asked = policy.attempts.copy(), judge.attempts.copy()

    again = engine.run(recipe, overwrite=True)
    assert judge.attempts == asked, "a failure is final"
    assert again.steps[2].retried == 0

    report = engine.run(recipe, retry_missing=named)
    assert policy.attempts == sampled
    assert judge.attempts - asked == dict.fromkeys(failing, 1)
    assert [step.retried for step in report.steps] == [0, 0, 2, 0, 0]
    assert [step.cached for step in report.steps] == [True, True, False, False, False]
    assert counts(report, 2, "reward_quality_missing") == {}
    table = exported(recipe)
    assert table.num_rows == PROMPTS
    assert table["reward"].null_count == 0

    after = engine.run(recipe)
    assert all(step.cached and not step.retried for step in after.steps)
    assert exported(recipe).equals(table)


def test_samples_are_not_touched(recipe_of, servers):
    policy, judge = servers
    recipe = load(recipe_of(policy, judge))
    judge.script = {seed: [Trouble.ERROR_500] * QUICK["attempts"] for seed in seeds_of(recipe)[2:4]}
    engine.run(recipe)
    cache = recipe.head.export_path.parent / ".rejuice"

    def samples():
        files = [path for kept in cache.glob("kept-policy_rollout_mapper-*") for path in kept.iterdir()]  # fmt: skip
        return {p.name: (p.stat().st_ino, p.stat().st_mtime_ns, p.read_bytes()) for p in files}

    before = samples()
    assert before
    report = engine.run(recipe, retry_missing=JUDGE)
    assert report.steps[2].retried == 2
    assert samples() == before
    assert all(step.cached for step in report.steps[:2])
    assert not any(step.cached for step in report.steps[2:]), "what follows sees the new judgements"


def test_where_nothing_failed_nothing_is_retried(recipe_of, servers):
    policy, judge = servers
    recipe, warnings = load(recipe_of(policy, judge)), list[str]()
    first = engine.run(recipe)
    judge.kill()
    report = engine.run(recipe, retry_missing=JUDGE, warn=warnings.append)
    assert report.key == first.key
    assert all(step.cached for step in report.steps)
    assert f"{JUDGE} has no result that failed: nothing is retried" in warnings


def test_a_server_that_is_down_is_found_before_anything_is_opened(recipe_of, servers):
    policy, judge = servers
    recipe = load(recipe_of(policy, judge))
    judge.script = {seeds_of(recipe)[4]: [Trouble.REFUSED]}
    engine.run(recipe)
    cache = recipe.head.export_path.parent / ".rejuice"
    files = set(cache.rglob("*.arrow"))
    judge.kill()
    with pytest.raises(EngineError, match=rf", step 3 {JUDGE}: .* could not be reached for 0.1 s"):
        engine.run(recipe, retry_missing=JUDGE)
    assert set(cache.rglob("*.arrow")) == files


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("llm_quality_mapper", f"no step 'llm_quality_mapper' in the recipe; did you mean '{JUDGE}'?"),
        ("9", "no step '9' in the recipe; its steps are: prompt_template_mapper, "),
        ("length_filter", f"length_filter cannot leave a result missing; steps that may: {JUDGE}"),
        (
            "policy_rollout_mapper",
            "policy_rollout_mapper cannot leave a result missing; "
            "--retry_dropped retries the rows that policy_rollout_mapper dropped",
        ),
    ],
)  # fmt: skip
def test_a_step_that_cannot_be_retried(recipe_of, servers, step, message):
    with pytest.raises(RecipeError) as error:
        engine.run(load(recipe_of(*servers)), retry_missing=step)
    assert str(error.value).startswith(f"--retry_missing: {message}")


# a resumable operator of one's own


@pytest.fixture
def scorer(recipe_file, rollouts, tmp_path):
    """A recipe with a scorer, and functions to say where it fails and what it computed."""
    (tmp_path / "scorer.py").write_text(SCORER)
    path = recipe_file(
        [{"group_size_filter": {"min": 1}}, {"scorer_mapper": {"folder": str(tmp_path)}}],
        rollouts(8).to_pylist(),
        custom_operator_paths=[str(tmp_path / "scorer.py")],
    )

    class Scorer:
        ids = rollouts(8)["response_id"].to_pylist()

        def run(self, **more):
            report = engine.run(load(path), chunk_rows=6, **more)
            return report, exported(load(path)).to_pylist()

        def name(self, file, *ids):
            (tmp_path / file).write_text(" ".join(ids))

        def computed(self):
            """Since this was called last."""
            log = tmp_path / "log"
            found = log.read_text().split() if log.exists() else []
            log.unlink(missing_ok=True)
            return found

    return Scorer()


@pytest.fixture
def rejuice(monkeypatch, capsys, tmp_path):
    return runner(monkeypatch, capsys, tmp_path)


def missing(rows):
    return [row["response_id"] for row in rows if row["reward_x_missing"] is not None]


def test_failures_of_all_chunks_are_retried_and_the_rest_is_kept(scorer):
    failing = [scorer.ids[0], scorer.ids[7], scorer.ids[-1]]
    scorer.name("fail", *failing)
    first, rows = scorer.run()
    assert missing(rows) == failing
    assert sorted(scorer.computed()) == sorted(scorer.ids)
    scorer.name("fail", failing[1])
    report, rows = scorer.run(retry_missing="scorer_mapper")
    assert missing(rows) == [failing[1]]
    assert sorted(scorer.computed()) == sorted(failing)
    assert report.steps[1].retried == 3
    assert report.key != first.key, "what was found before is still there, for other exports"
    assert [row["reward_x"] for row in rows].count(1.0) == len(rows) - 1
    scorer.name("fail")
    report, rows = scorer.run(retry_missing="scorer_mapper")
    assert missing(rows) == []
    assert scorer.computed() == [failing[1]]
    assert report.steps[1].retried == 1


def test_two_steps_are_retried_at_once(scorer, recipe_file, rollouts, tmp_path):
    (tmp_path / "dropper.py").write_text(DROPPER)
    steps = [
        {"dropper_mapper": {"file": str(tmp_path / "drop")}},
        {"scorer_mapper": {"folder": str(tmp_path)}},
    ]
    files = [str(tmp_path / name) for name in ("dropper.py", "scorer.py")]
    recipe_file(steps, rollouts(8).to_pylist(), custom_operator_paths=files)
    dropped, failed, *others = scorer.ids
    scorer.name("drop", dropped)
    scorer.name("fail", failed)
    _, rows = scorer.run()
    assert missing(rows) == [failed]
    assert [row["response_id"] for row in rows] == [failed, *others]
    scorer.computed()
    scorer.name("drop")
    scorer.name("fail")
    report, rows = scorer.run(retry_missing="scorer_mapper", retry_dropped=True)
    assert missing(rows) == []
    assert [row["response_id"] for row in rows] == scorer.ids
    assert sorted(scorer.computed()) == sorted([dropped, failed])
    assert [step.retried for step in report.steps] == [0, 1]


def test_failures_of_a_run_that_was_stopped_are_retried_too(scorer):
    scorer.name("fail", scorer.ids[1])
    scorer.name("stop", scorer.ids[4])
    with pytest.raises(KeyboardInterrupt):
        scorer.run()
    done = scorer.computed()
    assert scorer.ids[1] in done
    scorer.name("fail")
    scorer.name("stop")
    report, rows = scorer.run(retry_missing="scorer_mapper")
    assert missing(rows) == []
    assert set(scorer.computed()) & set(done) == {scorer.ids[1]}
    assert report.steps[1].retried == 1
    assert report.steps[1].rows_out == len(scorer.ids)


def test_a_retry_that_is_stopped_goes_on_without_the_option(scorer):
    failing = [scorer.ids[0], scorer.ids[2], scorer.ids[9]]
    scorer.name("fail", *failing)
    scorer.run()
    scorer.computed()
    scorer.name("fail")
    scorer.name("stop", failing[1])
    with pytest.raises(KeyboardInterrupt):
        scorer.run(retry_missing="scorer_mapper")
    assert scorer.computed() == [failing[0]]
    scorer.name("stop")
    _, rows = scorer.run()
    assert missing(rows) == []
    assert sorted(scorer.computed()) == sorted(failing[1:])


def test_pruning_after_a_retry_does_not_undo_it(scorer, tmp_path):
    scorer.name("fail", scorer.ids[0])
    scorer.run()
    scorer.name("fail")
    _, rows = scorer.run(retry_missing="scorer_mapper")
    cache = load(tmp_path / "recipe.yaml").head.export_path.parent / ".rejuice"
    assert remove(cache, partial(select_unused, cache, samples=False), again=False).removed
    scorer.computed()
    report, again = scorer.run()
    assert (again, missing(again), scorer.computed()) == (rows, [], [])
    assert report.steps[1].cached


def test_what_a_retry_gave_is_found_by_other_steps_and_its_failures_are_not(scorer, tmp_path):
    scorer.name("fail", *scorer.ids[:2])
    scorer.run()
    scorer.name("fail", scorer.ids[1])
    scorer.run(retry_missing="scorer_mapper")
    scorer.computed()
    scorer.name("fail")
    other = load(tmp_path / "recipe.yaml", {"group_size_filter.min": "2"})
    engine.run(other, overwrite=True)
    assert missing(exported(other).to_pylist()) == [scorer.ids[1]]
    engine.run(other, retry_missing="scorer_mapper")
    assert missing(exported(other).to_pylist()) == []
    assert scorer.computed() == [scorer.ids[1]]


def test_what_another_chunking_knows_as_failed_is_not_found_again(scorer, recipe_file, tmp_path):
    scorer.name("fail", scorer.ids[3])
    scorer.run()
    recipe = load(tmp_path / "recipe.yaml")
    engine.run(recipe, chunk_rows=1000)
    scorer.computed()
    scorer.name("fail")
    engine.run(recipe, chunk_rows=1000, retry_missing="scorer_mapper")
    assert missing(exported(recipe).to_pylist()) == []
    assert scorer.computed() == [scorer.ids[3]]


@pytest.mark.slow
def test_with_a_cache_in_a_store_failures_of_all_chunks_are_retried_in_one_pass(
    scorer, store, tmp_path
):
    failing, warned = [scorer.ids[0], scorer.ids[7], scorer.ids[-1]], []
    recipe = load(tmp_path / "recipe.yaml")
    options = {"chunk_rows": 6, "cache": to_path(f"{store}/cache"), "warn": warned.append}
    scorer.name("fail", *failing)
    engine.run(recipe, **options)
    scorer.computed()
    scorer.name("fail")
    report = engine.run(recipe, retry_missing="scorer_mapper", **options)
    assert missing(exported(recipe).to_pylist()) == []
    assert (sorted(scorer.computed()), report.steps[1].retried) == (sorted(failing), 3)
    assert not [line for line in warned if "damaged" in line]


def test_on_the_command_line(scorer, rejuice):
    scorer.name("fail", scorer.ids[1], scorer.ids[2])
    assert "retried" not in rejuice("run", "recipe.yaml")[1]
    scorer.name("fail")
    code, out, _ = rejuice("run", "recipe.yaml", "--retry_missing", "2")
    (line,) = [line for line in out.splitlines() if line.startswith("scorer_mapper")]
    assert (code, "  retried: 2; " in line) == (0, True)
    assert rejuice("run", "recipe.yaml", "--retry_missing", "3") == (
        2,
        "",
        "rejuice: --retry_missing: no step '3' in the recipe; "
        "its steps are: group_size_filter, scorer_mapper\n",
    )


def test_from_python(scorer, tmp_path):
    scorer.name("fail", scorer.ids[1])
    recipe = load(tmp_path / "recipe.yaml")
    assert missing(api.run(recipe).table.to_pylist()) == [scorer.ids[1]]
    scorer.name("fail")
    found = api.run(recipe, retry_missing="scorer_mapper")
    assert missing(found.table.to_pylist()) == []
    assert found.report.steps[1].retried == 1


def explained(rejuice, name):
    """What `explain` says of a row, and the bytes of the export and of its run folder."""
    code, out, err = rejuice("explain", f"out/{name}.parquet", "response-0000-0")
    assert code == 0, err
    files = sorted(p for p in Path("out").glob(f"{name}.*/**/*") if p.is_file())
    return out, {path: path.read_bytes() for path in files}


def test_a_retry_of_one_export_leaves_another_on_the_same_cache_as_it_is(
    scorer, rejuice, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    scorer.name("fail", *scorer.ids[:2])
    for name in ("one", "two"):
        assert rejuice("run", "recipe.yaml", "--export_path", f"out/{name}.parquet")[0] == 0
    before = explained(rejuice, "two")
    assert "busy" in before[0]
    scorer.name("fail")
    scorer.computed()
    again = ("run", "recipe.yaml", "--export_path", "out/one.parquet")
    assert rejuice(*again, "--retry_missing", "2")[0] == 0
    assert scorer.computed() == scorer.ids[:2]
    assert "busy" not in explained(rejuice, "one")[0]
    assert explained(rejuice, "two") == before


# a step that is not resumable


@pytest.mark.parametrize("damaged", [False, True])
def test_a_verification_that_timed_out_is_repeated(recipe_file, monkeypatch, damaged):
    rows = [
        {"prompt_id": str(k), "response": f"The answer is {k}.", "reference": str(k)}
        for k in range(12)
    ]
    rows.append({"prompt_id": "x", "response": "The answer is 1.", "reference": None})
    late, verified = {"The answer is 3.", "The answer is 7."}, []

    def verify(responses, references, **options):
        verified.extend(responses)
        found = verify_batch(responses, references, **options)
        return [
            Verdict("timeout", None) if response in late else verdict
            for response, verdict in zip(responses, found, strict=True)
        ]

    monkeypatch.setattr(verifier, "verify_batch", verify)
    recipe = load(
        recipe_file(
            [
                {"math_verify_mapper": {}},
                {SUM: {"weights": {"accuracy": 1.0}, "on_missing": "drop_row"}},
            ],
            rows,
        )
    )
    first = engine.run(recipe, chunk_rows=5)
    missing = {"timeout": 2, "no_reference": 1}
    assert counts(first, 0, "reward_accuracy_missing") == missing
    late.clear()
    verified.clear()
    again, warned = ["The answer is 3.", "The answer is 7."], []
    if damaged:  # It is found after the failures of the chunks before it were computed again.
        *_, last = sorted((recipe.head.export_path.parent / ".rejuice").glob("math_*/*.arrow"))
        last.write_bytes(last.read_bytes()[:-1])
        files._verified.clear()
        again = ["The answer is 1.", "The answer is 10.", "The answer is 11.", *again]
    run = {"chunk_rows": 5, "retry_missing": "math_verify_mapper", "warn": warned.append}
    report = engine.run(recipe, **run)
    assert sorted(verified) == again
    assert [line.rpartition(" is damaged")[1] != "" for line in warned] == [True] * damaged
    assert counts(report, 0, "reward_accuracy_missing") == {"no_reference": 1}
    assert [(step.retried, step.cached) for step in report.steps] == [(2, False), (0, False)]
    table = exported(recipe)
    assert table["reward"].to_pylist() == [1.0] * 12
    assert table["extracted_answer"].to_pylist() == [str(k) for k in range(12)]
    after = engine.run(recipe, chunk_rows=5)
    assert all(step.cached for step in after.steps)
    assert exported(recipe).equals(table)


JUDGED = '''
import pathlib
import pyarrow as pa
from rejuice.operators import Mapper
from rejuice.operators.columns import component

class DrawMapper(Mapper):
    """Asks a server: another answer each time that a chunk is computed."""
    folder: str
    @property
    def asks_server(self): return True
    def reads(self): return ("response_id",)
    def writes(self): return ("draw",)
    def map(self, table):
        log = pathlib.Path(self.folder) / "draws"
        draws = log.read_text() if log.exists() else ""
        log.write_text(draws + "x")
        return {"draw": pa.array([len(draws)] * table.num_rows)}

class JudgeMapper(Mapper):
    """Gives the draw as a reward; fails for the rows that a file names."""
    folder: str
    def reads(self): return ("response_id", "draw")
    def writes(self): return ("reward_x", "reward_x_missing")
    def map(self, table):
        ids = table["response_id"].to_pylist()
        if set(self._named("raise")) & set(ids): raise ValueError("an odd row")
        if set(self._named("stop")) & set(ids): raise KeyboardInterrupt
        missing = ["busy" if each in self._named("fail") else None for each in ids]
        values = table["draw"].cast(pa.float64()).to_pylist()
        return component("x", values, pa.array(missing, pa.string()))
    def _named(self, name):
        file = pathlib.Path(self.folder) / name
        return file.read_text().split() if file.exists() else []
'''


@pytest.fixture
def judged(recipe_file, rollouts, tmp_path):
    """Runs a recipe with a judge that is not resumable, in chunks of 6 rows."""
    (tmp_path / "judged.py").write_text(JUDGED)
    fields = {"folder": str(tmp_path)}
    path = recipe_file(
        [{"draw_mapper": fields}, {"judge_mapper": fields}],
        rollouts(8).to_pylist(),
        custom_operator_paths=[str(tmp_path / "judged.py")],
    )

    def run(**more):
        report = engine.run(load(path), chunk_rows=6, **more)
        return report, exported(load(path)).to_pylist()

    run.ids = rollouts(8)["response_id"].to_pylist()
    run.cache = load(path).head.export_path.parent / ".rejuice"
    run.name = lambda file, *ids: (tmp_path / file).write_text(" ".join(ids))
    return run


def test_a_retry_does_not_go_on_with_results_about_other_answers(judged):
    judged.name("fail", judged.ids[0])
    judged()
    judged.name("fail")
    judged(retry_missing="judge_mapper")
    (draws,) = judged.cache.glob("draw_mapper-*")
    (draws / "000000.arrow").unlink()
    _, rows = judged(overwrite=True)
    assert rows[0]["draw"] > 1
    assert all(row["reward_x"] == row["draw"] for row in rows)


def test_a_retry_that_was_stopped_is_retried_again(judged):
    failing = [judged.ids[0], judged.ids[-1]]
    judged.name("fail", *failing)
    judged()
    judged.name("fail")
    judged.name("stop", failing[1])
    with pytest.raises(KeyboardInterrupt):
        judged(retry_missing="judge_mapper")
    judged.name("stop")
    warned = []
    report, rows = judged(retry_missing="judge_mapper", warn=warned.append)
    assert warned == []
    assert missing(rows) == []
    assert report.steps[1].retried == 1


def test_an_error_of_a_row_that_is_retried_names_the_row(judged):
    judged.name("fail", judged.ids[2])
    judged()
    judged.name("raise", judged.ids[2])
    with pytest.raises(RejuiceError, match=f"at row 3, response_id '{judged.ids[2]}'") as error:
        judged(retry_missing="judge_mapper")
    assert str(error.value).count("step 2 judge_mapper") == 1


def test_a_damage_that_is_found_while_a_retry_is_counted_counts_it_once(judged):
    judged.name("fail", judged.ids[0])
    judged()
    (folder,) = judged.cache.glob("judge_mapper-*")
    folder.with_name(f"{folder.name}-1").write_text("no folder")
    judged.name("fail")
    report, rows = judged(retry_missing="judge_mapper")
    assert missing(rows) == []
    assert report.steps[1].retried == 1
    assert [path.name for path in folder.glob("retry-*")] == ["retry-1-missing"]
