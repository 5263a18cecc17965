"""verl's interface to a device, implemented for processor cores."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

from ...operators.workers import usable_cores
from ..run import samples_ahead


def sampling_cores() -> int:
    """Where it samples ahead, a run samples on half of the cores.

    The other half never waits for the sampler, and training has them all whenever it computes
    (benchmarks/bench_modes.py).
    """
    cores = usable_cores()
    return max(1, cores // 2) if samples_ahead() else cores


class _CpuDevice(ModuleType):
    """`torch.cpu` with those functions of `torch.cuda` that verl calls."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)

    def get_device_name(self, device: Any = None) -> str:
        """verl's table of peak speeds does not contain it."""
        return "cpu"

    def empty_cache(self) -> None:
        """Give memory back that glibc keeps after it was freed.

        verl calls this when a policy is loaded, which leaves more behind than its weights take, and
        around each transfer of weights.
        """
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)

    def memory_allocated(self, device: Any = None) -> int:
        """Unknown: the operating system counts memory, torch does not."""
        return 0

    memory_reserved = max_memory_allocated = max_memory_reserved = memory_allocated

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        """Do nothing: there are neither statistics nor shared device memory."""

    ipc_collect = reset_peak_memory_stats

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        import psutil

        memory = psutil.virtual_memory()
        return memory.available, memory.total

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        torch.set_rng_state(state)

    manual_seed = manual_seed_all = staticmethod(torch.manual_seed)


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):  # type: ignore[misc]
    """Processor cores as a device of verl, with collectives over gloo."""

    _device = _CpuDevice("torch.cpu for verl")

    device_name = "cpu"
    vendor_name = "cpu"

    @property
    def device_module(self) -> ModuleType:
        return self._device

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return False  # Never chosen automatically: only by VERL_PLATFORM=cpu.

    def current_device(self) -> Any:
        # verl passes it to Tensor.to(), which takes an index for a CUDA device.
        return "cpu"

    def device_count(self) -> int:
        return 1

    def synchronize(self, *_: Any) -> None:
        """Do nothing, like all that verl asks of a device and cores have no need of."""

    set_device = set_allocator_settings = profiler_start = profiler_stop = cudart = synchronize
    manual_seed = manual_seed_all = staticmethod(torch.manual_seed)

    def empty_cache(self) -> None:
        self._device.empty_cache()

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def ray_resource_name(self) -> str:
        return "GPU"  # Slots that `ray_init.num_gpus` creates; verl places its workers in them.

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False
