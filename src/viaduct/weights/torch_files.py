"""Weights in torch.save's files: a state dict, or a checkpoint that contains one.

Only tensors and plain values are loaded (`weights_only`); no code in the file is executed. The prefixes of wrappers
(`module.` of data parallel, `_orig_mod.` of torch.compile) are removed from names.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from viaduct.data.notices import join_first
from viaduct.errors import BadData

if TYPE_CHECKING:
    from torch import Tensor

TORCH_SUFFIXES = (".pt", ".pth", ".bin", ".tar")
ZIP, LEGACY = b"PK\x03\x04", b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."  # first bytes of torch.save's files
PICKLE = b"\x80"  # first byte of every pickle of protocol 2 or later, such as LEGACY
COPY_AGAIN = "Copy or download it again."
# Usual keys in checkpoints: of the network's state dict, of averaged weights, of the training step; the first is used.
HOLDERS = ("state_dict", "model_state_dict", "model_state", "model", "net", "network", "module", "weights")
AVERAGES = ("state_dict_ema", "model_ema", "ema_state_dict", "ema")
STEPS = ("global_step", "step", "iteration")
WRAPPERS = ("module.", "_orig_mod.")
MAX_NESTING = 3  # of dicts around a state dict, and of wrappers around a network


def read_torch_file(path: Path, ema: bool = False) -> tuple[dict[str, Tensor], int | None]:
    """Return the tensors of a file by name, and its training step or None; `ema` selects the averaged weights."""
    content = load_plain(path)
    tensors = find_state(content, AVERAGES if ema else HOLDERS)
    if not tensors and ema and find_state(content, HOLDERS):
        raise BadData(
            f"{path} has no averaged weights: no entry {', '.join(AVERAGES)}.",
            "Leave out --ema.",
        )
    if not tensors:
        kind = "averaged weights" if ema else "weights"
        raise BadData(f"{path} holds no {kind}: no tensors by name.", f"It holds {describe_content(content)}.")
    steps = [content[name] for name in STEPS if isinstance(content, Mapping) and type(content.get(name)) is int]
    return strip_wrappers(tensors), next(iter(steps), None)


def find_averages(path: Path) -> str:
    """Return the key of the averaged weights in a checkpoint file; empty if there are none."""
    content = load_plain(path)
    keys = [key for key in AVERAGES if isinstance(content, Mapping) and key in content]
    return next((key for key in keys if find_state(content[key], HOLDERS)), "")


def is_torch_file(path: Path) -> bool:
    """Return True if a file begins as torch.save's files do; other ZIP files do so, too."""
    try:
        with path.open("rb") as file:
            return file.read(len(LEGACY)).startswith((ZIP, LEGACY))
    except OSError:
        return False


def load_plain(path: Path) -> Any:
    """Load a file without executing code in it; raise `BadData` if it is damaged or holds more than plain values."""
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        refuse_other_files(path)
        match = re.search(r"GLOBAL ([\w.]+)", str(error))
        example = f": {match[1]}, as a pickled model does" if match else ""
        raise BadData(
            f"{path} holds more than tensors and plain values{example}; it may hold code, and is not opened.",
            "If you trust it: torch.save(torch.load(FILE, weights_only=False).state_dict(), 'NAME.pth').",
        ) from None
    except PermissionError as error:
        raise BadData(f"{path} cannot be read: {error.strerror}.") from None
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, IndexError, AttributeError):
        refuse_other_files(path)
        raise BadData(
            f"{path} is cut short or damaged, or torch.save did not write it: it begins as torch.save's files do, and "
            f"its {path.stat().st_size:,} bytes cannot be read to the end.",
            f"{COPY_AGAIN} Compare the size with the original's.",
        ) from None


def refuse_other_files(path: Path) -> None:
    """Raise BadData for a file that is empty or was not written by torch.save."""
    with path.open("rb") as file:
        beginning = file.read(20)
    if not beginning:
        raise BadData(f"{path} is empty.", COPY_AGAIN) from None
    if not beginning.startswith((ZIP, PICKLE)):
        raise BadData(
            f"{path} is not a file of torch.save: it begins with {beginning!r}.",
            "`torch.save(model.state_dict(), FILE)` writes one. If it was downloaded, it may be an error page.",
        ) from None


def find_state(content: Any, keys: tuple[str, ...], depth: int = 0) -> dict[str, Tensor]:
    """Return the state dict under the first of `keys` that has one; empty if none has.

    If `keys` are HOLDERS, `content` itself may be a state dict.
    """
    import torch

    if not isinstance(content, Mapping) or depth > MAX_NESTING:
        return {}
    tensors = {str(name): value for name, value in content.items() if isinstance(value, torch.Tensor)}
    inner = (find_state(content[key], HOLDERS, depth + 1) for key in keys if key in content)
    return next((state for state in inner if state), {}) or (tensors if keys is HOLDERS else {})


def strip_wrappers(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Remove a wrapper's prefix, and those of wrappers inside it, if all names have it."""
    for wrapper in WRAPPERS * MAX_NESTING:
        if all(name.startswith(wrapper) for name in tensors):
            tensors = {name.removeprefix(wrapper): value for name, value in tensors.items()}
    return tensors


def describe_content(content: Any) -> str:
    """Describe the content of a file without weights."""
    if not isinstance(content, Mapping):
        return f"a {type(content).__name__}"
    names = [str(name) for name in content]
    return f"{len(names):,} named values: {join_first(names, 8)}" if names else "nothing"
