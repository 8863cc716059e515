"""NVIDIA cards, through torch's own CUDA build; the public functions are described in `base.Device`."""

from __future__ import annotations

import warnings

import torch

from viaduct.cards.cuda import CARD
from viaduct.devices.base import GIB, check_index, describe_hidden_cards, select_known
from viaduct.devices.hardware import find_software_versions

NAME = "cuda"

_NO_CARD = "No CUDA GPUs are available"


def is_available() -> bool:
    return torch.cuda.is_available()


def find_problem() -> str | None:
    if is_available():
        return None
    if torch.version.cuda is None:
        return f"torch {torch.__version__} was built without CUDA\nInstall a CUDA build of torch."
    refusal = _explain_refusal()
    if refusal == _NO_CARD and (hidden := describe_hidden_cards(CARD)):
        return hidden
    return f"{refusal}\n`nvidia-smi` shows cards and driver; this torch needs a driver for CUDA {torch.version.cuda}."


def count_cards() -> int:
    return torch.cuda.device_count() if is_available() else 0


def select(index: int = 0) -> torch.device:
    check_index(NAME, index, count_cards(), find_problem())
    torch.cuda.set_device(index)
    return torch.device(NAME, index)


def synchronize() -> None:
    torch.cuda.synchronize()


def get_peak_memory() -> int:
    return torch.cuda.max_memory_allocated()


def reset_peak_memory() -> None:
    torch.cuda.current_device()  # initialises CUDA; before that there is no peak to reset
    torch.cuda.reset_peak_memory_stats()


def get_free_memory() -> int:
    return torch.cuda.mem_get_info()[0]


def list_native_dtypes() -> tuple[str, ...]:
    capability = torch.cuda.get_device_capability()
    if capability >= (8, 0):  # Ampere, the first generation with bf16
        return ("bf16", "fp16")
    return ("fp16",) if capability >= (7, 0) else ()  # 7.0 is Volta, the first generation with tensor cores


def list_emulated_dtypes() -> tuple[str, ...]:
    return ()


def set_tf32(allowed: bool) -> None:
    # These deprecated switches also set the new ones (`fp32_precision`). If only the new ones were set, torch would
    # refuse to read the deprecated ones, and its own compiler reads them (torch._inductor.kernel.conv).
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that they are deprecated
        torch.backends.cudnn.allow_tf32 = allowed
        if not allowed:
            torch.set_float32_matmul_precision("highest")


def get_collective_backend() -> str:
    return CARD.backend


def get_graph_class() -> object | None:
    return torch.cuda.CUDAGraph if is_available() else None


def get_versions() -> dict[str, str]:
    return select_known(
        {
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "cudnn": _find_cudnn_version(),
            **find_software_versions(CARD),
        }
    )


def describe_card() -> str:
    card = torch.cuda.get_device_properties(torch.cuda.current_device())
    return f"{card.name}, {card.total_memory / GIB:.0f} GiB"


def get_random_state() -> torch.Tensor | None:
    return torch.cuda.get_rng_state()


def set_random_state(state: torch.Tensor | None) -> None:
    if state is not None:
        torch.cuda.set_rng_state(state)


def _explain_refusal() -> str:
    """Return torch's reason why CUDA does not start: no driver, one that is too old, or no card."""
    try:
        torch.cuda.current_device()
    except (RuntimeError, AssertionError) as error:
        return str(error).split(". ")[0].strip()
    return _NO_CARD


def _find_cudnn_version() -> str | None:
    number: int | None = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    if not number:
        return None
    major_factor = 1000 if number < 10_000 else 10_000  # cudnn_version.h: 8907 is 8.9.7; since cuDNN 9, 91002 is 9.10.2
    return f"{number // major_factor}.{number % major_factor // 100}.{number % 100}"
