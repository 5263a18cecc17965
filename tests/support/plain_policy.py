"""The embedded policy and the loss of GRPO in plain torch, and rows for verl's training worker."""

from rejuice.operators.sampling.engines import EMBEDDED

N, PROMPTS = 4, 6
LEARNING_RATE = 1e-4


def reported(data):
    """What the trainer says beside the rows."""
    from verl.utils import tensordict_utils as tu

    size = len(data)
    extra = {
        "calculate_entropy": True, "distillation_use_topk": False, "distillation_only": False,
        "global_batch_size": size, "mini_batch_size": size, "epochs": 1, "seed": 0,
        "dataloader_kwargs": {"shuffle": False}, "temperature": 1.0, "compute_loss": True,
    }  # fmt: skip
    for name, value in extra.items():
        tu.assign_non_tensor_data(data, name, value)
    return data


def seeded(seed):
    import torch

    return torch.Generator().manual_seed(seed)


def like(nested, values):
    import torch

    return torch.nested.nested_tensor_from_jagged(values, nested.offsets())


def noisy(nested, scale, seed):
    import torch

    noise = scale * torch.randn(nested.values().shape, generator=seeded(seed))
    return like(nested, nested.values() + noise)


class Plain:
    """The policy in plain torch: no packing, no sharing, no FSDP.

    Args:
        dtype: what it computes in; entropies in float64 are exact, those in float32 are verl's.
        folder: of the weights; by default the embedded policy.
    """

    def __init__(self, dtype="float64", folder=EMBEDDED):
        from transformers import AutoModelForCausalLM

        self.model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, attn_implementation="sdpa"
        )

    def log_probs(self, prompt, response, temperature=1.0):
        """float[T]: of a response's tokens; and their entropies."""
        import torch

        ids = torch.cat((prompt, response))[None]
        hidden = self.model.model(ids, use_cache=False).last_hidden_state[0]
        logits = self.model.lm_head(hidden)[len(prompt) - 1 : -1] / temperature
        every = logits.log_softmax(-1)
        if logits.dtype == torch.float64:
            entropy = -(every.exp() * every).sum(-1)
        else:
            entropy = logits.logsumexp(-1) - (logits.softmax(-1) * logits).sum(-1)
        return every.gather(1, response[:, None])[:, 0], entropy

    def loss(self, batch, low=0.2, high=0.28, dual=3.0, kl_coef=0.0):
        """GRPO's, a mean over tokens, and its parts."""
        import torch

        names = ("prompts", "responses", "old_log_probs", "advantages", "ref_log_prob")
        policy, divergence, entropies, clipped_off = [], [], [], []
        for prompt, response, old, advantage, reference in zip(
            *(batch[name].unbind() for name in names), strict=True
        ):
            log_prob, entropy = self.log_probs(prompt, response)
            ratio = (log_prob - old).exp()
            pending = ratio.clamp(1 - low, 1 + high) * advantage
            gain = torch.minimum(ratio * advantage, pending)
            clipped_off.append((pending < ratio * advantage).double())
            # Where the advantage is negative, no token costs more than `dual` times it.
            gain = torch.where(advantage < 0, torch.maximum(gain, dual * advantage), gain)
            policy.append(-gain)
            far = reference - log_prob
            divergence.append((far.exp() - far - 1).clamp(-10, 10))
            entropies.append(entropy)
        parts = {"pg": policy, "kl": divergence, "entropy": entropies, "clipped": clipped_off}
        means = {name: torch.cat(each).mean() for name, each in parts.items()}
        return means["pg"] + kl_coef * means["kl"], means


def metrics_of(output):
    from verl.utils.metric import reduce_metrics

    found = output["metrics"]
    return reduce_metrics(dict(getattr(found, "data", found)))
