"""vLLM without a server, in its own process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..errors import EngineError
from .processes import EngineProcesses
from .protocol import Failure, Group, Prompt, Sample, Settings, VllmOptions, token_listener
from .tokenizer import NO_KWARGS, chat_encoder, fitting_ids

_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # No process outlives this one.
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}
_CPU_ENVIRONMENT = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # Otherwise two instances would share one core.
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
}


def vllm_process(
    model: str,
    options: VllmOptions,
    *,
    name: str | None = None,
    version: int = 0,
    chat_template_kwargs: Mapping[str, Any] = NO_KWARGS,
) -> EngineProcesses:
    """A `VllmEngine` in its own process, because vLLM seeds generators and binds threads globally;
    or several of them, each on its own GPUs."""
    build = partial(
        VllmEngine,
        model,
        options,
        name=name,
        version=version,
        chat_template_kwargs=dict(chat_template_kwargs),  # It must be picklable.
    )
    return EngineProcesses(
        build,
        workers=options.replicas,
        threads=None,
        python=options.python,
        own_environment=gpu_shares(options, visible_gpus()),
    )


def gpu_shares(options: VllmOptions, gpus: Sequence[str]) -> list[dict[str, str]]:
    """The environment variables that give each replica its own GPUs; none where it may take any.

    >>> gpu_shares(VllmOptions(replicas=2, tensor_parallel_size=2), "0123")
    [{'CUDA_VISIBLE_DEVICES': '0,1'}, {'CUDA_VISIBLE_DEVICES': '2,3'}]
    """
    if options.replicas == 1 or not gpus:
        return [{}] * options.replicas
    each = options.tensor_parallel_size * int(options.arguments.get("pipeline_parallel_size", 1))
    if len(gpus) < options.replicas * each:
        needs = f"{options.replicas} replicas with {each} GPUs each need {options.replicas * each}"
        right = f"set replicas: {len(gpus) // each}" if len(gpus) >= each else ""
        raise EngineError(f"vllm: {needs}, there are {len(gpus)}", right)
    shares = (gpus[at * each : (at + 1) * each] for at in range(options.replicas))
    return [{"CUDA_VISIBLE_DEVICES": ",".join(share)} for share in shares]


def visible_gpus() -> list[str]:
    """The names by which CUDA knows the GPUs that this process may use; none without any."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [each.strip() for each in visible.split(",") if each.strip()]
    # Torch would tell, but take a second, and a CUDA context that is in the way of a child's.
    return [str(number) for number, _ in enumerate(Path("/dev").glob("nvidia[0-9]*"))]


class VllmEngine:
    """Samples with `vllm.LLM` in this process, which should do nothing else.

    Response i to a prompt is sampled with the prompt's seed + i. Log-probabilities are those of
    the policy itself, before temperature and top_p. Arguments are those of `TransformersEngine`.
    """

    def __init__(
        self,
        model: str,
        options: VllmOptions,
        *,
        name: str | None = None,
        version: int = 0,
        chat_template_kwargs: Mapping[str, Any] = NO_KWARGS,
    ) -> None:
        self.policy, self.version = name or model, version
        tokenizer = options.arguments.get("tokenizer") or model
        self._encode = chat_encoder(tokenizer, chat_template_kwargs)
        self._llm: Any = _start(model, options)

    def sample(
        self, prompts: Iterable[Prompt], settings: Settings
    ) -> Iterator[tuple[int, Group | Failure]]:
        engine = self._llm.llm_engine
        numbered, under_way = enumerate(prompts), dict[str, tuple[int, Prompt]]()
        report, capacity = token_listener(), self.capacity(settings)
        try:
            while True:
                while len(under_way) < capacity and (following := next(numbered, None)):
                    index, prompt = following
                    failure = self._begin(str(index), prompt, settings)
                    if failure:
                        yield index, failure
                    else:
                        under_way[str(index)] = following
                if not under_way:
                    return
                for output in self._step():
                    index, prompt = under_way.pop(output.request_id)
                    found = self._result(output, prompt.seed)
                    if isinstance(found, Group):
                        report(found.sampled_tokens())
                    yield index, found
        finally:
            if under_way:
                engine.abort_request(list(under_way))

    def capacity(self, settings: Settings) -> int:
        # Enough in vLLM's queue to keep it busy: a million prompts need not all be in memory.
        slots: int = self._llm.llm_engine.vllm_config.scheduler_config.max_num_seqs
        return 2 * max(1, slots // settings.n)

    def close(self) -> None:
        self._llm = None

    def _begin(self, name: str, prompt: Prompt, settings: Settings) -> Failure | None:
        params = _params(settings.of(prompt), prompt.seed)
        ids = fitting_ids(prompt, self._encode, self._llm.model_config.max_model_len)
        if isinstance(ids, Failure):
            return ids
        try:
            self._llm.llm_engine.add_request(name, {"prompt_token_ids": ids}, params)
        except Exception as error:
            if _is_request_error(error):
                return Failure("request_refused", _one_line(error))
            raise EngineError("vLLM has failed", _one_line(error)) from error
        return None

    def _step(self) -> list[Any]:
        try:
            outputs = self._llm.llm_engine.step()
        except Exception as error:
            raise EngineError("vLLM has failed", _one_line(error)) from error
        return [output for output in outputs if output.finished]

    def _result(self, output: Any, seed: int) -> Group | Failure:
        reasons = {response.finish_reason for response in output.outputs}
        if not reasons <= {"stop", "length"}:
            return Failure("bad_response", f"vLLM finished with {sorted(map(str, reasons))}")
        samples = tuple(_sample(response) for response in output.outputs)
        prompt_ids = tuple(output.prompt_token_ids)
        return Group(self.policy, self.version, seed, prompt_ids, samples)


def without_flashinfer() -> Mapping[str, str]:
    """Return the environment variables for vLLM where flashinfer is not installed.

    Log-probabilities before temperature and top_p, which are `raw_logprobs`, make vLLM on GPUs
    import its sampler, and vLLM does not bring it along.
    """
    return {} if find_spec("flashinfer") else {"VLLM_USE_FLASHINFER_SAMPLER": "0"}


def _start(model: str, options: VllmOptions) -> Any:
    _set({**_ENVIRONMENT, **without_flashinfer()})
    try:
        from vllm.platforms import current_platform
    except ImportError as error:
        found = f"vLLM cannot be imported by {sys.executable}: {_one_line(error)}"
        raise EngineError(
            found, "set `python` to the interpreter of an environment that has it"
        ) from error
    arguments: dict[str, Any] = {
        **options.model_dump(exclude={"python", "arguments", "replicas"}),
        "generation_config": "vllm",  # all is in SamplingParams
        "use_tqdm_on_load": False,
    }
    if current_platform.is_cpu():
        _set(_CPU_ENVIRONMENT)
        # vLLM 0.32 on CPU crashes on seeded requests whose prompts are prefilled in chunks.
        arguments["enable_chunked_prefill"] = False
    arguments |= {**options.arguments, "logprobs_mode": "raw_logprobs"}
    from vllm import LLM

    try:
        return LLM(model, **arguments)
    except Exception as error:  # vLLM may raise anything here.
        raise EngineError(f"vLLM cannot be started with '{model}'", _one_line(error)) from error


def _params(settings: Settings, seed: int) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    try:
        return SamplingParams(
            **settings._asdict(),
            seed=seed,
            logprobs=0,  # of the sampled token alone
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
    except Exception as error:
        raise EngineError("vLLM rejects these settings", _one_line(error)) from error


def _set(variables: Mapping[str, str]) -> None:
    for name, value in variables.items():
        os.environ.setdefault(name, value)


def _sample(response: Any) -> Sample:
    ids = tuple(response.token_ids)
    pairs = zip(ids, response.logprobs, strict=True)
    logprobs = tuple(entry[token].logprob for token, entry in pairs)
    return Sample(response.text, ids, logprobs, response.finish_reason)


def _is_request_error(error: Exception) -> bool:
    # VLLMClientError is new in 0.32; earlier versions raise ValueError.
    return isinstance(error, ValueError) or "VLLMClientError" in [
        kind.__name__ for kind in type(error).__mro__
    ]


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
