"""verl's platform for plain CPUs, out of tree: no file of verl is changed.

`use_cpu()` must run before verl is first imported: verl picks its platform once, at import. It is
never auto-detected, so a GPU machine is untouched unless `VERL_PLATFORM=cpu` is set.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import psutil
import torch

_MODULE = "trainer.cpu_platform"


def use_cpu() -> None:
    """Make verl, in this process and its children, run on the CPU. Idempotent.

    Raises RuntimeError when verl has already settled on another device.
    """
    os.environ["VERL_PLATFORM"] = "cpu"
    modules = [m for m in os.environ.get("VERL_USE_EXTERNAL_MODULES", "").split(",") if m]
    if _MODULE not in modules:
        os.environ["VERL_USE_EXTERNAL_MODULES"] = ",".join([*modules, _MODULE])
    if "verl" not in sys.modules:
        register()
    from verl.utils.device import get_device_name

    if get_device_name() != "cpu":
        raise RuntimeError(
            f"verl runs on '{get_device_name()}': import trainer.worker before verl, or set VERL_PLATFORM=cpu"
        )


def keep_freed_memory() -> None:
    """Let glibc keep what is freed: activations come back every pass, and fresh pages cost 5-10%."""
    with contextlib.suppress(OSError, AttributeError):  # another libc
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD
        libc.mallopt(-1, (1 << 31) - 1)  # M_TRIM_THRESHOLD


class _CpuModule(ModuleType):
    """What verl asks of `torch.cuda`, answered for a CPU; the rest falls through to `torch.cpu`."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)

    def get_device_name(self, device: Any = None) -> str:
        return "CPU"

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        memory = psutil.virtual_memory()
        return memory.available, memory.total

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        torch.set_rng_state(state)

    def _zero(self, *args: Any, **kwargs: Any) -> int:
        return 0

    def _nothing(self, *args: Any, **kwargs: Any) -> None:
        return None

    memory_allocated = memory_reserved = max_memory_allocated = max_memory_reserved = _zero
    empty_cache = ipc_collect = reset_peak_memory_stats = set_device = _nothing
    manual_seed = manual_seed_all = _nothing


def register() -> None:
    """Add the platform "cpu" to verl's registry; called once, by verl's own plugin loading too."""
    from verl.plugin.platform import PlatformBase, PlatformRegistry

    if PlatformRegistry.get("cpu") is not None:
        return

    class CpuPlatform(PlatformBase):
        device_name = "cpu"
        vendor_name = "generic"
        device_module = _CpuModule("torch_cpu")

        def is_available(self) -> bool:
            return True

        def is_platform_available(self, use_smi_check: bool = False) -> bool:
            return False

        def current_device(self) -> torch.device:
            return torch.device("cpu")  # verl calls `.to(current_device())`; an index means CUDA

        def device_count(self) -> int:
            return 1

        def set_device(self, device_index: int) -> None: ...

        def synchronize(self, device_index: int | None = None) -> None: ...

        def manual_seed(self, seed: int) -> None:
            torch.manual_seed(seed)

        def manual_seed_all(self, seed: int) -> None:
            torch.manual_seed(seed)

        def set_allocator_settings(self, settings: str) -> None: ...

        def empty_cache(self) -> None: ...

        def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
            return None, None

        def communication_backend_name(self) -> str:
            return "gloo"

        def visible_devices_envvar(self) -> str:
            return "OBSSPEC_VISIBLE_CPUS"

        @contextmanager
        def nvtx_range(self, msg: str) -> Iterator[None]:
            yield

        def profiler_start(self) -> None: ...

        def profiler_stop(self) -> None: ...

        def ray_resource_name(self) -> str:
            return "CPU"

        def ray_noset_envvars(self) -> list[str]:
            return []

        def ray_resource_options(self, num_gpus: float) -> dict[str, Any]:
            return {"num_cpus": num_gpus}

        def is_ipc_supported(self) -> bool:
            return False

        def cudart(self) -> None:
            return None

    PlatformRegistry.register(platform="cpu")(CpuPlatform)


if "verl.plugin.platform" in sys.modules:  # being imported by verl itself (VERL_USE_EXTERNAL_MODULES)
    register()
