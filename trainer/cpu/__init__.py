"""verl on a CPU: a platform, a training engine and rollouts by the embedded sampler.

Nothing of verl is patched: each is registered where verl looks for it, and only where profile
`cpu` names it.

    platform   what verl asks of a device (`VERL_PLATFORM=cpu`)
    workers    engine and rollouts, registered where a model is loaded (verl's `external_lib`)
    rollout    groups of responses from `rejuice.operators.sampling`, straight into TransferQueue
"""
