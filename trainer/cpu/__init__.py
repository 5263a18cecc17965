"""verl on a CPU: a platform, a training engine and rollouts by the embedded sampler.

Each is registered where verl looks for it, and used only if profile `cpu` names it. Some of these
places are private to verl: they are pinned, and tested one by one.

    platform   verl's interface to a device (`VERL_PLATFORM=cpu`)
    workers    engine and rollouts, registered where a model is loaded (verl's `external_lib`)
    rollout    groups of responses from `rejuice.operators.sampling`, straight into TransferQueue

So that a run starts soon, its processes are forks of one that has loaded the libraries:
`fork_server`, and `forked_python`, by which Ray starts its workers.
"""
