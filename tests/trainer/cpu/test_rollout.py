"""The embedded sampler as verl's rollouts: without Ray, on a TransferQueue in memory."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rejuice.operators.sampling.protocol import Failure, Group, Sample, Settings
from rejuice.trainer.run import AHEAD_VARIABLE, RUN_VARIABLE, Weights

pytestmark = pytest.mark.slow  # Imports verl.


class Engine:
    """Answers every prompt with its seed, last prompt first; refuses those that say so."""

    def __init__(self, build, workers, threads, launcher):
        self.built, self.workers = build.keywords, workers
        self.requested, self.loaded = [], []

    def sample(self, prompts, settings):
        self.requested.append((list(prompts), settings))
        for index in reversed(range(len(prompts))):
            message = prompts[index].messages[-1][1]
            if message == "die":
                raise RuntimeError("the engine is gone")
            if message == "refuse":
                yield index, Failure("prompt_too_long", "too long")
                continue
            samples = [
                Sample("x", (3, k, 1), (-1.0, -2.0, -3.0), "stop") for k in range(settings.n)
            ]
            yield index, Group("p", 4, prompts[index].seed, (8, 9), tuple(samples))

    def load_weights(self, path, version):
        from safetensors.torch import load_file

        self.loaded.append((load_file(path), version))


@pytest.fixture
def platform(verl):
    from rejuice.trainer.cpu import platform

    return platform


@pytest.fixture
def rollout(queue, monkeypatch, tmp_path):
    from rejuice.trainer.cpu import rollout

    monkeypatch.setenv(RUN_VARIABLE, str(tmp_path))
    monkeypatch.setattr(rollout, "EngineProcesses", Engine)
    monkeypatch.setattr(rollout.tq, "init", lambda: None)
    return rollout


@pytest.fixture
def sampler(rollout):
    return rollout.Sampler("policy", 2, 2, {})


class Remote:
    """A Ray actor in this process."""

    def __init__(self, actor):
        self._actor = actor

    def __getattr__(self, name):
        method = getattr(self._actor, name)
        return SimpleNamespace(remote=lambda *given, **more: lambda: method(*given, **more))


@pytest.fixture
def manager(rollout, sampler, monkeypatch):
    """Groups, whose calls are over when it returns."""
    rollouts = {
        "n": 2, "temperature": 1.0, "top_p": 1.0, "response_length": 7, "seed": 5,
        "val_kwargs": SimpleNamespace(n=1, temperature=0.5, top_p=0.9),
    }  # fmt: skip
    config = SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=SimpleNamespace(**rollouts)))
    monkeypatch.setattr(rollout.ray, "get_actor", lambda name: Remote(sampler))
    monkeypatch.setattr(rollout.ray, "get", lambda work: work())

    def now(target, args, daemon):
        return SimpleNamespace(start=lambda: target(*args))

    monkeypatch.setattr(rollout, "Thread", now)
    return rollout.GroupManager.create(
        config=config, llm_client=None, reward_loop_worker_handles=None
    )


def prompts(texts, step=3, validate=False):
    """As verl hands them to its agent loops."""
    from verl.utils import tensordict_utils as tu

    def column(values):
        made = np.empty(len(values), object)
        made[:] = values
        return made

    rows = range(len(texts))
    batch = tu.get_tensordict(
        {
            "uid": column([f"uid{k}" for k in rows]),
            "raw_prompt": column([[{"role": "user", "content": text}] for text in texts]),
            "extra_info": column([{"index": k, "prompt_id": f"id{k}"} for k in rows]),
            "data_source": column(["test"] * len(texts)),
            "reward_model": column([{"style": "rule", "ground_truth": ""}] * len(texts)),
        }
    )
    tu.assign_non_tensor_data(batch, "global_steps", step)
    if validate:
        tu.assign_non_tensor_data(batch, "validate", True)
    return batch


def statuses(queue, partition="train"):
    return {k: t["status"] for k, t in queue.kv_list(partition)[partition].items() if "_" not in k}


def test_groups_are_requested_and_put(manager, sampler, queue):
    from rejuice.operators.sampling.protocol import prompt_seed

    manager.generate_sequences(prompts(["a", "b", "c"]))
    requested, settings = sampler._engine.requested[0]
    assert [prompt.messages for prompt in requested] == [(("user", text),) for text in "abc"]
    assert [prompt.seed for prompt in requested] == [prompt_seed(f"id{k}", 5, 3) for k in range(3)]
    assert (settings.n, settings.temperature, settings.top_p, settings.max_tokens) == (2, 1, 1, 7)
    assert statuses(queue) == {f"uid{k}": "finished" for k in range(3)}
    entry = queue.partitions["train"]["uid1_1_0"]
    assert entry.fields["input_ids"].tolist() == [8, 9, 3, 1, 1]
    assert entry.fields["position_ids"].tolist() == [0, 1, 2, 3, 4]
    assert entry.fields["response_mask"].tolist() == [1, 1, 1]
    assert entry.fields["rollout_log_probs"].tolist() == [-1, -2, -3]
    assert entry.fields["extra_info"] == {"index": 1, "prompt_id": "id1"}
    # Whatever else is there is handed to the update.
    assert entry.fields.keys() & {"data_source", "reward_model", "raw_prompt"} == set()
    assert (entry.tag["seq_len"], entry.tag["min_global_steps"]) == (5, 4)


def test_validation_is_sampled_as_it_is_to_be(manager, sampler, queue):
    manager.generate_sequences(prompts(["a"], step=0, validate=True))
    _, settings = sampler._engine.requested[0]
    assert (settings.n, settings.temperature, settings.top_p) == (1, 0.5, 0.9)
    assert statuses(queue, "val") == {"uid0": "finished"}
    assert queue.partitions["val"]["uid0_0_0"].fields["data_source"] == "test"
    assert not queue.partitions["train"]


def test_each_validation_set_is_sampled_by_its_own_settings(manager, sampler, queue):
    from tensordict import NonTensorData, NonTensorStack

    own = {"temperature": 0.25, "top_p": 0.5, "max_tokens": 3}
    batch = prompts(["a", "b", "c"], step=0, validate=True)
    infos = [{"index": k, "prompt_id": f"id{k}"} for k in range(3)]
    infos[1] |= {"split": "validation-often", **own}
    batch["extra_info"] = NonTensorStack(*map(NonTensorData, infos))
    batch["__rollout_n__"] = NonTensorStack(*(NonTensorData(n) for n in (1, 4, 1)))
    manager.generate_sequences(batch)
    requested = {settings: len(group) for group, settings in sampler._engine.requested}
    assert requested == {Settings(1, 0.5, 0.9, 7): 2, Settings(4, 0.25, 0.5, 3): 1}
    assert set(statuses(queue, "val").values()) == {"finished"}
    assert sum(key.startswith("uid1_") for key in queue.partitions["val"]) == 4


def test_many_groups_are_put_as_they_come(manager, queue, monkeypatch):
    """verl's trainer may begin on some while others are sampled."""
    puts = []
    put = queue.kv_batch_put

    def seen(keys, *rest, **more):
        puts.append(list(keys))
        return put(keys, *rest, **more)

    monkeypatch.setattr("transfer_queue.kv_batch_put", seen)
    manager.generate_sequences(prompts(["a"] * 40))
    finished = [keys for keys in puts if "_" not in keys[0]]
    assert [len(keys) for keys in finished] == [16, 16, 8]
    assert len(statuses(queue)) == 40


def test_a_prompt_that_cannot_be_sampled_fails_alone(manager, queue):
    manager.generate_sequences(prompts(["a", "refuse", "b"]))
    assert statuses(queue) == {"uid0": "finished", "uid1": "failure", "uid2": "finished"}
    assert not [key for key in queue.partitions["train"] if key.startswith("uid1_")]


def test_a_sampler_that_dies_fails_its_prompts_and_reports_it(manager, queue, capsys):
    manager.generate_sequences(prompts(["a", "die", "b"]))
    assert set(statuses(queue).values()) == {"failure"}
    assert "rejuice: the sampler failed: the engine is gone" in capsys.readouterr().out


def test_weights_reach_the_engine(rollout, sampler, monkeypatch):
    class Actor:
        class load_weights:  # noqa: N801
            @staticmethod
            async def remote():
                sampler.load_weights()

    monkeypatch.setattr(rollout.ray, "get_actor", lambda name: Actor)
    b = torch.ones(2, requires_grad=True)
    weights = {"a": torch.arange(6.0).reshape(2, 3).t(), "b": b, "tied to b": b}
    adapter = object.__new__(rollout.Adapter)
    for rank in ("1", "0"):
        monkeypatch.setenv("RANK", rank)
        asyncio.run(adapter.update_weights(iter(weights.items()), global_steps=9))
    [(loaded, version)] = sampler._engine.loaded
    assert version == 9
    assert loaded.keys() == {"a", "b"}
    assert all(torch.equal(loaded[name], weights[name]) for name in loaded)


@pytest.fixture
def launched(rollout, monkeypatch):
    """The engine of the sampler that a replica launches."""
    made = []

    def remote(kind):
        def options(name):
            return SimpleNamespace(remote=lambda *given: made.append(kind(*given)))

        return SimpleNamespace(options=options)

    def launch(**arguments):
        monkeypatch.setattr(rollout.ray, "remote", remote)
        replica = object.__new__(rollout.Replica)
        replica.model_config = SimpleNamespace(path="policy")
        replica.config = SimpleNamespace(engine_kwargs={"vllm": {}, "rejuice": arguments})
        asyncio.run(replica.launch_servers())
        return made[0]._engine

    return launch


def test_the_chat_template_gets_the_arguments_of_the_recipe(launched):
    engine = launched(enable_thinking=False)
    assert engine.built["chat_template_kwargs"] == {"enable_thinking": False}


@pytest.mark.parametrize(("processes", "threads"), [(1, 8), (3, 2), (8, 1)])
def test_the_policy_is_loaded_as_often_as_memory_allows(
    rollout, platform, launched, monkeypatch, processes, threads
):
    monkeypatch.setattr(platform, "usable_cores", lambda: 8)
    monkeypatch.setattr(rollout, "process_count", lambda policy, dtype, cores: processes)
    engine = launched()
    assert (engine.workers, engine.built["threads"]) == (processes, threads)


# --- Sampling ahead -------------------------------------------------------------------


def test_it_leaves_cores_to_training_where_both_work_at_once(platform, monkeypatch):
    monkeypatch.setattr(platform, "usable_cores", lambda: 7)
    assert platform.sampling_cores() == 7
    monkeypatch.setenv(AHEAD_VARIABLE, "1")
    assert platform.sampling_cores() == 3
    monkeypatch.setattr(platform, "usable_cores", lambda: 1)
    assert platform.sampling_cores() == 1


@pytest.fixture
def ahead(monkeypatch, rollout):
    """The sampler of a run that samples ahead; it may be called more than once."""
    monkeypatch.setenv(AHEAD_VARIABLE, "1")
    return lambda: rollout.Sampler("policy", 1, 1, {})


def weigh(folder, version):
    from safetensors.torch import save_file

    save_file({"a": torch.full((1,), float(version))}, Weights.of(folder, version).file)


def test_each_call_samples_with_the_newest_weights(ahead, manager, monkeypatch, rollout, tmp_path):
    sampler = ahead()
    monkeypatch.setattr(rollout.ray, "get_actor", lambda name: Remote(sampler))
    manager._sampler = Remote(sampler)
    manager._config.data = SimpleNamespace(train_batch_size=2)
    for version in (3, 4):
        weigh(tmp_path, version)
    manager.generate_sequences(prompts(["a"] * 5))
    assert [len(requested) for requested, _ in sampler._engine.requested] == [2, 2, 1]
    assert [version for _, version in sampler._engine.loaded] == [4]
    # Older ones are removed; the newest is what a process that is started again loads.
    assert [each.version for each in Weights.all_in(tmp_path)] == [4]
    weigh(tmp_path, 5)
    manager.generate_sequences(prompts(["b"]))
    assert [version for _, version in sampler._engine.loaded] == [4, 5]


def test_an_update_does_not_wait_for_a_sampler_that_is_busy(ahead, rollout, monkeypatch, tmp_path):
    monkeypatch.setenv("RANK", "0")
    adapter = object.__new__(rollout.Adapter)
    weights = {"a": torch.ones(1)}
    monkeypatch.setattr(rollout.ray, "get_actor", lambda name: pytest.fail("it is called"))
    for version in (1, 2):
        asyncio.run(adapter.update_weights(iter(weights.items()), global_steps=version))
    assert [each.version for each in Weights.all_in(tmp_path)] == [1, 2]
    assert not list(tmp_path.glob("*.new"))


def test_a_resumed_run_does_not_sample_again_what_was_finished(ahead, manager, queue, tmp_path):
    manager._config.data = SimpleNamespace(train_batch_size=8)
    weigh(tmp_path, 3)
    killed, resumed = ahead(), ahead()
    for sampler, texts in ((killed, ["a", "refuse", "b"]), (resumed, ["a", "new", "b"])):
        manager._sampler = Remote(sampler)
        manager.generate_sequences(prompts(texts))
    ((left, _),) = resumed._engine.requested
    assert [prompt.messages[-1][1] for prompt in left] == ["new"]
    assert set(statuses(queue).values()) == {"finished"}
    entry = queue.partitions["train"]["uid2_1_0"]
    assert entry.fields["responses"].tolist() == [3, 1, 1]
    # Not newer than what would be sampled now.
    assert entry.tag["min_global_steps"] == 3
    files = sorted(file.stem for file in (tmp_path / "ahead").iterdir())
    assert files == ["uid0", "uid1", "uid2"]


def test_stored_groups_are_those_that_were_kept(tmp_path):
    from rejuice.operators.agents.trajectory import POLICY, Trajectory, TrajectoryGroup, Turn
    from rejuice.trainer.verl.sampled import SampledGroups

    sample = Sample("é", (3, 1), (float(np.float32(-0.1)), -2.0), "stop")
    turn = Turn(POLICY, "x", (1, 2), (3,), (-0.5,))
    groups = [
        Group("p", 4, 7, (8, 9), (sample,)),
        Group("p", 4, None, None, (Sample("x", None, None, "length"),)),
        TrajectoryGroup("p", 4, 7, (Trajectory((turn,), "x", "stop"),)),
    ]
    kept = SampledGroups(tmp_path)
    for at, group in enumerate(groups):
        kept.keep(str(at), "id", 5, group)
        assert SampledGroups(tmp_path).find(str(at), "id") == (5, group)
    assert kept.find("0", "another") is None
    kept.forget(["0", "never"])
    assert kept.find("0", "id") is None
