"""An update of verl's training worker on several ranks, each of them a process.

torch.save((worker.config, batch), folder / "work.pt")
run_ranks(folder, 2)
torch.load(folder / "gradient.pt")              # of the first rank: it has all of it
"""

import os
import socket
import subprocess
import sys
from pathlib import Path


def run_ranks(folder, ranks):
    """Run an update; each rank has its share of the rows."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, str(folder)],
            env={
                **os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank),
                "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port), "WG_BACKEND": "ray", "PYTHONPATH": paths,
                "OMP_NUM_THREADS": "1",
            },
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    errors = [process.communicate()[1] for process in processes]
    for process, error in zip(processes, errors, strict=True):
        assert process.returncode == 0, error[-3000:]


def gradient(engine):
    """The gradient of each weight by its name, in float64."""
    pairs = engine.module.named_parameters()
    return {name: each.grad.full_tensor().double() for name, each in pairs}


def main(folder):
    """Take the update, as one rank of several."""
    import torch
    from plain_policy import reported
    from verl.utils.tensordict_utils import chunk_tensordict
    from verl.workers.engine_workers import ActorRolloutRefWorker

    from rejuice.trainer.cpu import workers

    workers._open_group()
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    config, batch = torch.load(folder / "work.pt", weights_only=False)
    mine = chunk_tensordict(reported(batch), ranks)[rank]
    made = ActorRolloutRefWorker(config, role="actor")
    made.init_model()
    engine = made.actor.engine
    step = engine.optimizer_step

    def spied():
        found = gradient(engine)
        if rank == 0:
            torch.save(found, folder / "gradient.pt")
        return step()

    engine.optimizer_step = spied
    made.update_actor(mine)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
