"""What the accelerator would refuse, though the CPU beneath a rehearsal does it without a word.

A stand-in calls `violated(name, what, card, change)` where a script goes beyond a documented limit. The line of the
script is found, told once with what the card would do and what to change, and kept for the summary; then, unless the
limit is switched to `warn` or `off`, the script is stopped there with `CardRefuses`, as the card would stop it.
`VIADUCT_LIMITS` holds the switches (`error`, or `warn,float64=off`), so that processes of the script's own inherit it.
"""

from __future__ import annotations

import hashlib
import json
import linecache
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Literal, cast, get_args

from viaduct.errors import BadValue, UnknownName

Mode = Literal["off", "warn", "error"]
Stage = Literal["torch", "tf1", "both"]

SWITCHES = "VIADUCT_LIMITS"
RECORD = "VIADUCT_REHEARSAL_RECORD"  # the folder that a rehearsal keeps its findings in
PROJECT = "VIADUCT_REHEARSAL_PROJECT"  # the folder of the user's script, and others of the project: a:b
LANGUAGE = "VIADUCT_REHEARSAL_LANG"
_VIADUCT = str(Path(__file__).parents[1]) + os.sep


class StandInFails(RuntimeError):
    """A mistake of viaduct's own in what it does around a script's calls."""


class CardRefuses(RuntimeError):
    """Raised in the script where a card would fail: no ViaductError, for the script may have its own way out."""


@dataclass(frozen=True)
class Limit:
    """One documented limit: which stage enforces it, and why it is one."""

    stage: Stage
    reason: str
    zh: str


LIMITS: dict[str, Limit] = {
    # PyTorch, then TensorFlow 1; the order is that of docs/rehearse.md.
    "float64": Limit(
        "both",
        "The cores compute in float16, bfloat16 and float32; float64 and complex128 have few operators or none.",
        "计算核心支持 float16、bfloat16 和 float32；float64 与 complex128 不支持，或仅限少数算子。",
    ),
    "data-parallel": Limit(
        "torch",
        "torch.nn.DataParallel drives several cards from one process, which the plug-ins do not support.",
        "torch.nn.DataParallel 由一个进程驱动多张卡，插件不支持这种方式。",
    ),
    "visible-devices": Limit(
        "both",
        "ASCEND_RT_VISIBLE_DEVICES holds numbers and commas, strictly ascending; any other list leaves no device.",
        "ASCEND_RT_VISIBLE_DEVICES 只能是严格递增的数字，以逗号分隔；否则可见设备数为 0。",
    ),
    "cuda-left": Limit(
        "torch",
        "There is no CUDA on the machine: CUDA devices, torch.cuda and .cuda() fail there, autocast is off.",
        "目标机器上没有 CUDA：CUDA 设备、torch.cuda 与 .cuda() 都会失败，autocast 不起作用。",
    ),
    "nccl-left": Limit(
        "torch",
        "NCCL speaks to NVIDIA cards only; the collective backend is hccl on an NPU and cncl on an MLU.",
        "NCCL 只支持 NVIDIA 卡；NPU 的集合通信后端是 hccl，MLU 是 cncl。",
    ),
    "map-location": Limit(
        "torch",
        "A checkpoint that was saved on CUDA cannot be read without map_location where there is no CUDA.",
        "没有 CUDA 时，不给 map_location 就无法读取在 CUDA 上保存的检查点。",
    ),
    "capability": Limit(
        "torch",
        "get_device_capability returns None on an NPU, and device properties have no major and minor.",
        "NPU 上 get_device_capability 返回 None，设备属性中没有 major 和 minor。",
    ),
    "compile": Limit(
        "torch",
        "torch.compile needs a backend of the card; the default one generates code for CPUs and NVIDIA's cards.",
        "torch.compile 需要该卡自己的后端；默认后端只为 CPU 和 NVIDIA 卡生成代码。",
    ),
    "unsupported-name": Limit(
        "torch",
        "The plug-in has no counterpart of this name of torch.cuda.",
        "插件中没有 torch.cuda 的这个名字的对应物。",
    ),
    "static-shapes": Limit(
        "tf1",
        "A training graph is compiled once for fixed shapes; a dimension that changes or is unknown is not compiled.",
        "训练图按固定形状编译一次；变化或未知的维度无法编译。",
    ),
    "drop-remainder": Limit(
        "tf1",
        "A last batch that is smaller is another shape, and the graph holds one: batches need drop_remainder=True.",
        "最后一个不满的 batch 是另一种形状，而图只有一种：batch 需要 drop_remainder=True。",
    ),
    "remapping": Limit(
        "tf1",
        "Grappler's remapping fuses operators into ones the card has no kernel for; it must be OFF.",
        "Grappler 的 remapping 会融合出卡上没有的算子；必须设为 OFF。",
    ),
    "rewrite-options": Limit(
        "tf1",
        "XLA and Grappler's memory, layout and mixed-precision passes rewrite the graph for other devices.",
        "XLA 以及 Grappler 的内存、布局和混合精度优化是为其他设备改写图的。",
    ),
    "parameter-map": Limit(
        "tf1",
        "NpuOptimizer reads known keys of its parameter_map, each from one field; others are errors or are ignored.",
        "NpuOptimizer 只读取 parameter_map 中已知的键，且各有固定字段；其他的会报错或被忽略。",
    ),
    "npu-optimizer": Limit(
        "tf1",
        "A session without the custom optimizer NpuOptimizer runs on the host, not on the NPU.",
        "没有自定义优化器 NpuOptimizer 的 session 会在主机上运行，而不是 NPU。",
    ),
    "rank-before-init": Limit(
        "tf1",
        "Rank and size are known only after communication is initialised: run initialize_system first.",
        "通信初始化之后才能查询 rank 和 size：先运行 initialize_system。",
    ),
    "session-not-closed": Limit(
        "tf1",
        "A session that is not closed keeps the NPU's resources, and the process does not end cleanly.",
        "未关闭的 session 会占住 NPU 资源，进程无法干净退出。",
    ),
    "run-config": Limit(
        "tf1",
        "NPURunConfig does not know every argument of RunConfig, and takes them by keyword.",
        "NPURunConfig 不支持 RunConfig 的全部参数，且参数须以关键字给出。",
    ),
    "config-class": Limit(
        "tf1",
        "NPUEstimator takes an NPURunConfig, not an Estimator's RunConfig.",
        "NPUEstimator 需要 NPURunConfig，而不是 RunConfig。",
    ),
    "job-id": Limit(
        "tf1",
        "The NPU's job needs JOB_ID in the environment, or a job file.",
        "NPU 作业需要环境变量 JOB_ID，或作业文件。",
    ),
    "gpu-device": Limit(
        "tf1",
        "The machine has no GPU: a device string that names one, or GPU options, mean nothing there.",
        "目标机器没有 GPU：GPU 设备字符串或 GPU 选项在那里没有意义。",
    ),
    "step-multiples": Limit(
        "tf1",
        "With iterations_per_loop N the host sees every Nth step: steps, checkpoints and hooks are multiples of N.",
        "iterations_per_loop 为 N 时，主机每 N 步才看到一次：步数、检查点和 hook 间隔必须是 N 的倍数。",
    ),
    "eager": Limit(
        "tf1",
        "The adapter for TensorFlow 1 compiles graphs; it does nothing in eager mode.",
        "TensorFlow 1 适配器编译的是图；在 eager 模式下不起作用。",
    ),
    "reduction-name": Limit(
        "tf1",
        "hccl reduces by max, min, prod or sum; a mean is a sum that is divided.",
        "hccl 的归约只有 max、min、prod、sum；求平均要用 sum 再除。",
    ),
}


@dataclass(frozen=True)
class Place:
    """A line of the user's script."""

    file: str
    line: int

    @property
    def text(self) -> str:
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        root = next((root for root in roots() if self.file.startswith(root)), "")
        return f"{self.file.removeprefix(root)}:{self.line}"


@dataclass(frozen=True)
class Hit:
    """A limit that the script met: where, and what to do."""

    name: str
    mode: Mode
    place: Place | None
    what: str
    card: str
    change: str


hits: list[Hit] = []  # of this process, each (name, line) once


def parse(switches: str) -> tuple[Mode, dict[str, Mode]]:
    """`error`, `warn,float64=off`: the mode of all, and of single limits; raises what a user can read."""
    everything: Mode = "error"
    single: dict[str, Mode] = {}
    for word in filter(None, (part.strip() for part in switches.split(","))):
        name, equals, value = word.rpartition("=")
        if value not in get_args(Mode):
            raise BadValue(f"limits are off, warn or error, not {value!r}.", "One of them: --limit float64=warn.")
        if not equals:
            everything = cast(Mode, value)
        elif spelled(name) not in LIMITS:
            raise UnknownName("limit", name, LIMITS)
        else:
            single[spelled(name)] = cast(Mode, value)
    return everything, single


def spelled(name: str) -> str:
    return name.strip().replace("_", "-")


def mode(name: str = "") -> Mode:
    """How a limit is enforced in this process; without a name, how those are that nobody singled out."""
    everything, single = parse(os.environ.get(SWITCHES, ""))
    return single.get(spelled(name), everything)


def violated(
    name: str,
    what: str,
    card: str,
    change: str,
    *,
    at: tuple[str, int] | None = None,
    fatal: bool = True,
    doubtful: bool = False,
) -> None:
    """The script goes beyond limit `name`. what: what it did; card: what the card would do; change: what to write.

    `at` names a file and line where the caller knows better than the stack does (an operator of a graph). With
    `fatal=False` nothing is raised, though the rehearsal fails: for what is found when the script is at its end.
    With `doubtful=True` it is a warning unless the user singles the limit out: what the card does may be as well.
    """
    name = spelled(name)
    LIMITS[name]  # a name that is not there is our mistake
    how = mode(name)
    if how == "off":
        return
    if doubtful and how == "error" and name not in parse(os.environ.get(SWITCHES, ""))[1]:
        how = "warn"
    hit = Hit(name, how, Place(*at) if at else users_line(), what, card, change)
    if not any((told.name, told.place) == (name, hit.place) for told in hits):
        hits.append(hit)
        keep(hit)
        if first_to_tell(hit):
            print(block(hit), file=sys.stderr, flush=True)
    if how == "error" and fatal:
        raise CardRefuses(f"{what} [{name}] {card} {change}")


def users_line() -> Place | None:
    """The innermost frame of the user's project; None where no frame is its own (a thread of somebody else's)."""
    frame = next((frame for frame in frames() if is_users(frame.f_code.co_filename)), None)
    return Place(os.path.abspath(frame.f_code.co_filename), frame.f_lineno) if frame else None


def frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def is_users(file: str) -> bool:
    """Whether a file is of the project: under the script's folder, and no package that was installed there."""
    path = os.path.abspath(file)
    if file.startswith("<") or path.startswith(_VIADUCT) or f"{os.sep}site-packages{os.sep}" in path:
        return False
    return any(path.startswith(root) for root in roots())


def roots() -> list[str]:
    """The folders of the project, each with its last slash."""
    given = os.environ.get(PROJECT) or os.path.dirname(os.path.abspath(sys.argv[0]))
    return [os.path.join(os.path.abspath(folder), "") for folder in given.split(os.pathsep)]


def keep(hit: Hit) -> None:
    """One line into the rehearsal's record; short appends of several processes do not mix."""
    folder = os.environ.get(RECORD)
    if not folder:
        return
    text = hit.place.text if hit.place else ""
    entry = {**asdict(hit), "text": text, "rank": os.environ.get("RANK_ID") or os.environ.get("RANK") or "0"}
    with open(Path(folder) / "limits.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(entry, ensure_ascii=False) + "\n")


def first_to_tell(hit: Hit) -> bool:
    """Of several processes that meet the same limit in the same line one says so."""
    folder = os.environ.get(RECORD)
    if not folder or hit.place is None:
        return True
    mark = hashlib.sha1(f"{hit.name} {hit.place.file} {hit.place.line}".encode()).hexdigest()
    (Path(folder) / "told").mkdir(exist_ok=True)
    try:
        (Path(folder) / "told" / mark).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def block(hit: Hit) -> str:
    """What a person reads: the line of the script, what the card would do, what to change, why."""
    limit = LIMITS[hit.name]
    chinese = os.environ.get(LANGUAGE) == "zh"
    head = f"viaduct rehearse: {hit.place}: limit {hit.name}" if hit.place else f"viaduct rehearse: limit {hit.name}"
    lines = [head, f"    {hit.place.line:>5} | {hit.place.text}"] if hit.place else [head]
    words = ("原因", "脚本", "板卡", "修改") if chinese else ("why", "script", "card", "change")
    said = (limit.zh if chinese else limit.reason, hit.what, hit.card, hit.change)
    order = (1, 2, 3, 0)  # what happened first, why last
    return "\n".join([*lines, *(f"  {words[i]}: {said[i]}" for i in order)])


def as_table() -> str:
    """For docs/rehearse.md; a test compares."""
    rows = [f"| `{name}` | {limit.stage} | {limit.reason} |" for name, limit in LIMITS.items()]
    return "\n".join(["| limit | stage | why |", "| --- | --- | --- |", *rows])


if __name__ == "__main__":
    print(as_table())
