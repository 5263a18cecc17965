"""verl's own worker of agent loops, in this process, on a TransferQueue in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from training_stage import Stage
from verl_configs import config_of


class LoopWorker:
    """Samples prompts of a run on GPUs by its agent loop, with a server that is made up.

    Args:
        stage: the run, of profile `gpu`.
        client: what the loop asks for responses.
        monkeypatch: pytest's.
    """

    def __init__(self, stage: Stage, client: Any, monkeypatch: Any) -> None:
        import transfer_queue

        queue = stage.queue

        async def put(key: str, **more: Any) -> None:
            queue.kv_put(key, **more)

        async def batch_put(keys: Sequence[str], **more: Any) -> None:
            queue.kv_batch_put(keys, **more)

        monkeypatch.setattr(transfer_queue, "init", lambda: None)
        monkeypatch.setattr(transfer_queue, "async_kv_put", put, raising=False)
        monkeypatch.setattr(transfer_queue, "async_kv_batch_put", batch_put, raising=False)
        self._stage, self._client, self._config = stage, client, config_of(stage.run)

    def sample(self, prompts: Sequence[int], step: int) -> None:
        """Hand prompts of a step to the worker, and wait for its agent loops."""
        from verl.utils import tensordict_utils

        slots = self._stage.ask(prompts, step=step)
        batch = tensordict_utils.get_tensordict(
            {
                "raw_prompt": _column(self._stage.prompts[index]["prompt"] for index in prompts),
                "extra_info": _column(slot.fields["extra_info"] for slot in slots),
                "index": _column(prompts),
                "uid": _column(slot.uid for slot in slots),
            }
        )
        self._work(batch, step)

    def validate(self, step: int) -> None:
        """Hand all held-out prompts to the worker, as verl's dataset gives them."""
        from tensordict import NonTensorData
        from transformers import AutoTokenizer
        from verl.utils import tensordict_utils
        from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

        config, queue = self._config, self._stage.queue
        tokenizer = AutoTokenizer.from_pretrained(config.actor_rollout_ref.model.path)
        dataset = RLHFDataset(config.data.val_files, tokenizer, config.data)
        columns = collate_fn([dataset[row] for row in range(len(dataset))])
        uids = [f"uid{row}" for row in range(len(dataset))]
        tags = [{"is_prompt": True, "status": "pending", "global_steps": step} for _ in uids]
        queue.kv_batch_put(uids, "val", tags=tags)
        batch = tensordict_utils.get_tensordict({**columns, "uid": _column(uids)})
        batch["validate"] = NonTensorData(True)
        self._work(batch, step)

    def _work(self, batch: Any, step: int) -> None:
        from tensordict import NonTensorData
        from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

        batch["global_steps"] = NonTensorData(step)

        async def work() -> None:
            kind = AgentLoopWorkerTQ.__ray_metadata__.modified_class
            worker = kind(self._config, self._client)
            await worker.generate_sequences(batch)
            await asyncio.gather(*worker.background_tasks)

        asyncio.run(work())


def _column(values: Iterable[Any]) -> Any:
    """An array of objects, whatever their shape; np.array would look into them."""
    values = list(values)
    column = np.empty(len(values), object)
    column[:] = values
    return column
