"""Names of steps, modules, operators and files in a dump.

Tensors of two dumps are paired by name, so a name must not depend on the device, on a wrapper (`module.` of data
parallel, `_orig_mod.` of torch.compile) or on a library's choice of a kernel.
"""

from __future__ import annotations

import difflib
import fnmatch
import hashlib
import re
import urllib.parse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from viaduct.errors import BadValue

ROOT_MODULE = "network"  # name of the outermost module, which has none in PyTorch
# Names of submodules that torch.compile, FSDP and activation checkpointing insert into a module's path.
WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
MAX_ENTRIES = 100  # of a list of steps, as in dump_step of npu_bridge's DumpConfig
MAX_NAME_CHARACTERS = 160  # of a file name without its suffix; file systems allow 255 bytes
STEP_FOLDER = re.compile(r"step_(\d{6,})")
RANK_FOLDER = re.compile(r"rank_(\d+)")


@dataclass(frozen=True)
class Steps:
    """Steps to dump or compare: numbers and ranges, from 0."""

    ranges: tuple[tuple[int, int], ...]

    def __contains__(self, step: int) -> bool:
        return any(first <= step <= last for first, last in self.ranges)

    @property
    def last(self) -> int:
        """Return the highest step; there must be a range."""
        return max(last for _, last in self.ranges)

    def describe_missing(self, seen: Iterable[int]) -> str:
        """Return the requested steps that are not in `seen`, as numbers and ranges."""
        missing = self._missing_ranges(sorted(set(seen)))
        return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in missing)

    def _missing_ranges(self, seen: list[int]) -> Iterator[tuple[int, int]]:
        for first, last in sorted(set(self.ranges)):
            for step in (step for step in seen if first <= step <= last):
                if step > first:
                    yield first, step - 1
                first = step + 1
            if first <= last:
                yield first, last


def parse_steps(text: str | int | Iterable[int], flag: str = "steps") -> Steps:
    """Parse `0,5,10-12`, DumpConfig's `0|5|10-12`, or numbers; raise BadValue. `flag`: the name for messages."""
    if isinstance(text, int):
        text = [text]
    if not isinstance(text, str):
        text = ",".join(str(step) for step in text)
    entries = [entry.strip() for entry in re.split(r"[,|]", text)]
    if len(entries) > MAX_ENTRIES:
        raise BadValue(f"{flag} has {len(entries)} entries; the limit is {MAX_ENTRIES}.", "A range counts as one.")
    return Steps(tuple(parse_entry(entry, text, flag) for entry in entries))


def parse_entry(entry: str, text: str, flag: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,12})(?:-(\d{1,12}))?", entry, re.ASCII)
    if match is None:
        wrong = f": {entry!r} is not a step" if entry else ": an entry is empty" if text.strip() else ""
        raise BadValue(f"{flag} is {text!r}{wrong}.", "Write numbers from 0 and ranges: 0,5,10-12")
    first, last = int(match[1]), int(match[2] or match[1])
    if match[2] and first >= last:
        raise BadValue(f"{flag} is {text!r}: the range {entry!r} must end after it begins.")
    return first, last


@dataclass(frozen=True)
class NamePatterns:
    """Shell patterns of the operators to dump: `layer3.*`, `stem`. Without patterns all are; * also matches dots."""

    patterns: tuple[str, ...]

    def __contains__(self, name: str) -> bool:
        return not self.patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in self.patterns)


ALL_OPERATORS = NamePatterns(())


def parse_patterns(text: str | None) -> NamePatterns:
    """Parse patterns separated by commas; None and "" mean all operators."""
    patterns = tuple(part.strip() for part in (text or "").split(",") if part.strip())
    if text is not None and text.strip() and not patterns:
        raise BadValue(f"the pattern {text!r} is empty.", "Write names with * and ?, such as 'layer3.*'.")
    return NamePatterns(patterns)


def explain_no_match(patterns: Iterable[str], names: Iterable[str]) -> str:
    """Return a message that no name matches the patterns, with close names or else a few others."""
    known = sorted(names)
    bare_patterns = [re.sub(r"[*?\[\]]", "", pattern) for pattern in patterns]
    close = [name for pattern in bare_patterns for name in difflib.get_close_matches(pattern, known, 3, 0.4)]
    more = f" and {len(known) - 5:,} more" if len(known) > 5 else ""
    examples = ", ".join(dict.fromkeys(close)) or ", ".join(known[:5]) + more
    return f"no operator is called like {','.join(patterns)!r}; {'close are' if close else 'there are'}: {examples}."


def name_step_folder(step: int) -> str:
    return f"step_{step:06d}"


def is_step_folder(path: Path) -> bool:
    """Return True for the folder of a dumped step, or of one whose writing was interrupted: .step_000005.….part."""
    name = re.sub(r"^\.(.+?)\..*\.part$", r"\1", path.name)
    return STEP_FOLDER.fullmatch(name) is not None and path.is_dir() and not path.is_symlink()


def remove_wrappers(name: str) -> str:
    """Return a module's path without the parts of wrappers."""
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


# Name of an operator in dumps -> its kernels, whose names depend on the device and the release of torch.
KERNELS = {
    "convolution": (
        "convolution_overrideable _convolution cudnn_convolution mkldnn_convolution thnn_conv2d "
        "_slow_conv2d_forward _conv_depthwise2d"
    ),
    "convolution_backward": "convolution_backward_overrideable",
    "batch_norm": (
        "cudnn_batch_norm miopen_batch_norm native_batch_norm _native_batch_norm_legit "
        "_native_batch_norm_legit_functional _native_batch_norm_legit_no_training _batch_norm_with_update "
        "_batch_norm_with_update_functional _batch_norm_no_update"
    ),
    "batch_norm_backward": "cudnn_batch_norm_backward miopen_batch_norm_backward native_batch_norm_backward",
    "layer_norm": "native_layer_norm",
    "layer_norm_backward": "native_layer_norm_backward",
    "group_norm": "native_group_norm",
    "group_norm_backward": "native_group_norm_backward",
    "max_pool2d": "mkldnn_max_pool2d max_pool2d_with_indices",
    "max_pool2d_backward": "max_pool2d_with_indices_backward",
    "linear": "mkldnn_linear",
    "linear_backward": "mkldnn_linear_backward",
    "adaptive_avg_pool2d": "_adaptive_avg_pool2d",
    "adaptive_avg_pool2d_backward": "_adaptive_avg_pool2d_backward",
    "scaled_dot_product_attention": (
        "_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu "
        "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention "
        "_scaled_dot_product_fused_attention_overrideable"
    ),
    "scaled_dot_product_attention_backward": (
        "_scaled_dot_product_flash_attention_backward _scaled_dot_product_flash_attention_for_cpu_backward "
        "_scaled_dot_product_efficient_attention_backward _scaled_dot_product_cudnn_attention_backward "
        "_scaled_dot_product_fused_attention_overrideable_backward"
    ),
}
SAME_OPERATOR = {kernel: name for name, kernels in KERNELS.items() for kernel in kernels.split()}

# Number of first outputs that are dumped, since they mean the same for all kernels of the operator; the others are
# saved statistics, workspace, random state or indices. Of operators that are not listed all outputs are dumped.
SHARED_OUTPUTS = {
    "batch_norm": 1,
    "max_pool2d": 1,
    "scaled_dot_product_attention": 1,
    "batch_norm_backward": 3,
    "scaled_dot_product_attention_backward": 3,
}
# Number of first inputs that are dumped, since they have the same meaning on every device (in the order of
# `order_inputs`); of all others, all inputs.
SHARED_INPUTS = {
    "batch_norm": 3,
    "batch_norm_backward": 2,
    "scaled_dot_product_attention": 3,
    "scaled_dot_product_attention_backward": 4,
}


# Kernels that take (input, gradient, …), where the other kernels of the operator take (gradient, input, …).
INPUT_FIRST = ("cudnn_batch_norm_backward", "miopen_batch_norm_backward")


def order_inputs(name: str, inputs: list[Any]) -> list[Any]:
    """Return the input tensors of a kernel in the order of the operator's other kernels."""
    if name.rsplit("::", 1)[-1].split(".")[0] in INPUT_FIRST:
        return [*inputs[1::-1], *inputs[2:]]
    return inputs


def normalise_operator(name: str) -> str:
    """Return the shared name: batch_norm for `aten::cudnn_batch_norm`, add for `aten::add_.Tensor`."""
    bare = name.rsplit("::", 1)[-1].split(".")[0]
    if bare.endswith("_") and not bare.endswith("__"):  # the in-place variant
        bare = bare[:-1]
    return SAME_OPERATOR.get(bare, bare)


class FileNames:
    """File names for the tensors of one folder: readable, unique, and safe on any file system."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def make_unique(self, name: str) -> str:
        """Return a file name, with the suffix .npy, that was not returned before."""
        safe = urllib.parse.quote(name, safe="", errors="surrogatepass").replace("~", "%7E")
        if safe.startswith("."):
            safe = "%2E" + safe[1:]
        if len(safe) > MAX_NAME_CHARACTERS:
            digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:12]
            safe = f"{safe[: MAX_NAME_CHARACTERS - 13]}-{digest}"
        unique, number = safe, 1
        while unique.lower() in self._taken:  # some file systems ignore case
            number += 1
            unique = f"{safe}~{number}"
        self._taken.add(unique.lower())
        return f"{unique}.npy"


def is_plain_file_name(name: object) -> bool:
    """Return True if a name from an index is a bare file name, and not a path that leads out of the folder."""
    return isinstance(name, str) and name not in ("", ".", "..") and "\0" not in name and Path(name).name == name
