"""The benchmark's post-processing as Data-Juicer operators, in the style of its own ones."""

import random

from data_juicer.ops.base_op import OPERATORS, Deduplicator, Filter, Selector
from data_juicer.utils.constant import Fields, HashKeys


@OPERATORS.register_module("bench_pass_rate_selector")
class BenchPassRateSelector(Selector):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)

    def process(self, dataset):
        right, total = {}, {}
        for prompt, verdict in zip(dataset["prompt_id"], dataset["verdict"], strict=True):
            total[prompt] = total.get(prompt, 0) + 1
            right[prompt] = right.get(prompt, 0) + (verdict == "correct")
        rates = {prompt: right[prompt] / total[prompt] for prompt in total}
        prompts = dataset["prompt_id"]
        return dataset.select([i for i, p in enumerate(prompts) if 0.01 <= rates[p] <= 0.99])


@OPERATORS.register_module("bench_response_deduplicator")
class BenchResponseDeduplicator(Deduplicator):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)

    def compute_hash(self, sample):
        sample[HashKeys.hash] = str(hash((sample["prompt_id"], sample["response"])))
        return sample

    def process(self, dataset, show_num=0):
        seen = set()

        def first(sample):
            new = sample[HashKeys.hash] not in seen
            seen.add(sample[HashKeys.hash])
            return new

        return dataset.filter(first, load_from_cache_file=False), {}


@OPERATORS.register_module("bench_length_filter")
class BenchLengthFilter(Filter):
    _batched_op = True

    def __init__(self, min_len: int = 40, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.min_len = min_len

    def compute_stats_batched(self, samples, context=False):
        for i, stat in enumerate(samples[Fields.stats]):
            stat["text_len"] = len(samples["response"][i])
        return samples

    def process_batched(self, samples):
        return (stat["text_len"] >= self.min_len for stat in samples[Fields.stats])


@OPERATORS.register_module("bench_balance_selector")
class BenchBalanceSelector(Selector):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)

    def process(self, dataset):
        verdicts = list(dataset["verdict"])
        right = [i for i, v in enumerate(verdicts) if v == "correct"]
        wrong = [i for i, v in enumerate(verdicts) if v != "correct"]
        few = min(len(right), len(wrong))
        rng = random.Random(1)
        return dataset.select(sorted(rng.sample(right, few) + rng.sample(wrong, few)))
