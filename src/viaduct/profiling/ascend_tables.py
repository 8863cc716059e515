"""Tables that msprof and torch_npu's profiler share: tasks of the device, memory, sums by type of operator.

    tasks = TaskTable()
    for row in read_rows(path, notes):
        tasks.add(row)
    tasks.list_kernels(steps=20, rank=0)

op_summary_*.csv of msprof and kernel_details.csv of torch_npu have a row for each task of the device; the names of
their columns differ between releases. Rows are summed while they are read, because there may be millions.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from viaduct.cards import NPU

from . import kinds
from .csv_files import CsvRow
from .events import Span, join_spans
from .record import Collective, Kernel, MemoryOwner, MemoryPoint, Operator, Phase, Step, thin_points

# The names that a column has in different releases.
NAME = ("Op Name", "Name", "Kernel Name")
TYPE = ("OP Type", "Type", "Kernel Type")
CORE = ("Task Type", "Accelerator Core", "Core Type")
START = ("Task Start Time", "Start Time", "Task Start")
DURATION = ("Task Duration", "Duration", "Task Time")
STEP = ("Step Id", "Step ID", "Infer ID", "Iteration ID")
COLLECTIVE_NAME = re.compile(  # NPU.backend is hccl
    rf"^(hcom|{NPU.backend}|allreduce|allgather|reducescatter|broadcast|alltoall|send|receive)", re.IGNORECASE
)
GRADIENTS = re.compile(r"gradients[^/]*/[^/]+")  # scope of a backward node: gradients/ and its forward node's scope
# The first pattern that is found in an operator's type, in lower case and without underscores, decides.
TYPE_KINDS = (
    (kinds.COMMUNICATION, rf"^(hcom|{NPU.backend})|allreduce|allgather|reducescatter|alltoall"),
    (kinds.OPTIMIZER, r"^apply|^fusedapply|adam|momentum|lamb\b|sgd|lars"),
    (kinds.ATTENTION, r"attention"),
    (kinds.POOLING, r"pool"),
    (kinds.NORMALISATION, r"^bn|batchnorm|layernorm|groupnorm|instancenorm|rmsnorm|bntraining"),
    (kinds.CONVOLUTION, r"conv[23]d|depthwise|^conv|deconv"),
    (kinds.PRODUCT, r"matmul|gemm|fullyconnection|^mm$|addmm|linear"),
    (kinds.COPIES, r"transdata|transpose|cast|memcpy|memset|tensormove|copy|^concat|^slice|stridedslice|^pack|^split|"
                   r"contiguous|viewcopy|^asstrided|pad|npuidentity|dropoutdomask|^tile|^identity"),
    (kinds.REDUCTION, r"reduce|softmax|^sum|^mean|argmax|topk|crossentropy|l2loss|nllloss"),
    (kinds.ELEMENTWISE, r"^(add|sub|mul|div|realdiv|relu|sqrt|rsqrt|square|exp|log|neg|abs|maximum|minimum|sigmoid|"
                        r"tanh|gelu|silu|swish|axpy|select|greater|less|equal|notequal|fill|zeroslike|oneslike|pow|assign|"
                        r"muls|adds|leakyrelu|threshold|clip|bias)"),
)  # fmt: skip
MAX_SPANS = 400_000  # spans of computing; if there are more, touching and overlapping ones are joined to save memory
# Ascend's names of dtypes that differ from torch's by more than their case; a prefix DT_ is removed before.
ASCEND_DTYPES = {"float": "float32", "bf16": "bfloat16", "double": "float64"}


@dataclass
class Sum:
    """Number of calls and total time of a group of rows."""

    calls: float = 0.0
    time_us: float = 0.0

    def add_call(self, time_us: float) -> None:
        self.calls += 1
        self.time_us += time_us


@dataclass
class TaskTable:
    """Sums over the tasks of one device, filled row by row."""

    kernels: dict[tuple[str, str, str], Sum] = field(default_factory=lambda: defaultdict(Sum))  # type, core, dtype
    nodes: dict[tuple[str, str, str, str], Sum] = field(  # type, scope, shapes, dtypes
        default_factory=lambda: defaultdict(Sum)
    )
    collectives: list[Collective] = field(default_factory=list)
    computing: list[Span] = field(default_factory=list)  # all tasks except collectives
    steps: set[str] = field(default_factory=set)  # numbers of the steps with tasks
    rows: int = 0

    def add(self, row: CsvRow) -> None:
        """Add one task; rows without a duration, or with a negative one, are left out."""
        duration = row.time_us(*DURATION)
        if duration is None or duration < 0:
            return
        self.rows += 1
        name, kind, core = row.text(*NAME), row.text(*TYPE), row.text(*CORE)
        shapes, dtypes = row.text("Input Shapes"), row.text("Input Data Types")
        start = row.time_us(*START)
        if row.text(*STEP):
            self.steps.add(row.text(*STEP))
        is_collective = core.upper() in ("HCCL", "COMMUNICATION") or bool(COLLECTIVE_NAME.match(kind or name))
        self.kernels[kind or name, core, name_dtype(dtypes)].add_call(duration)
        scope = name.rpartition("/")[0]  # TensorFlow's node gradients/resnet/conv1/Conv2D has gradients/resnet/conv1
        self.nodes[kind or name, scope, shapes, dtypes].add_call(duration)
        if start is not None and is_collective:
            self.collectives.append(Collective(kind or name, start, duration))
        elif start is not None:
            self.computing.append((start, start + duration))
            if len(self.computing) > MAX_SPANS:
                self.computing = join_spans(self.computing)

    def count_steps(self, steps: Sequence[Step], notes: list[str]) -> int:
        """Return the number of `steps`, else of the step numbers of the tasks; 1, with a note, if there are none."""
        if not steps and not self.steps:
            notes.append("The number of steps is not known: operators have the figures of the complete recording.")
        return len(steps) or len(self.steps) or 1

    def list_kernels(self, steps: int, rank: int) -> list[Kernel]:
        """Return a row for each type of operator, core and dtype, with its share of one of `steps` steps."""
        kernels = [
            Kernel(name, find_kind(name, core), total.calls / steps, total.time_us / steps, dtype, rank=rank)
            for (name, core, dtype), total in self.kernels.items()
        ]
        return sorted(kernels, key=lambda kernel: -kernel.time_us)

    def list_nodes(self, steps: int, rank: int) -> list[Operator]:
        """Return a row for each node of the graph and signature; times on the host are not known and are 0."""
        trained_scopes = {scope.split("/")[1] for _, scope, _, _ in self.nodes if GRADIENTS.match(scope)}
        operators = [
            Operator(
                name,
                calls=total.calls / steps,
                total_us=0.0,
                self_us=0.0,
                device_us=total.time_us / steps,
                phase=find_phase(name, scope, trained_scopes),
                module=scope,
                shapes=clean_shapes(shapes),
                dtypes=", ".join(name_dtype(dtype) for dtype in dtypes.replace(",", ";").split(";") if dtype.strip()),
                rank=rank,
            )
            for (name, scope, shapes, dtypes), total in self.nodes.items()
        ]
        return sorted(operators, key=lambda operator: -(operator.device_us or 0.0))


def name_dtype(dtypes: str) -> str:
    """Return torch's name of the first type in a cell, such as "FLOAT16;FLOAT"."""
    dtype = re.split(r"[;,]", dtypes)[0].strip().strip('"').lower().removeprefix("dt_")
    return ASCEND_DTYPES.get(dtype, dtype)


def clean_shapes(shapes: str) -> str:
    """Convert "32,3,8,8;4,3,3,3" to "[32, 3, 8, 8], [4, 3, 3, 3]"."""
    parts = [shape for shape in shapes.strip('"').split(";") if shape.strip()]
    return ", ".join(f"[{', '.join(size.strip() for size in shape.split(','))}]" for shape in parts)


def find_kind(name: str, core: str = "") -> str:
    """Return the kind of work (kinds.py) of a type of operator; `core` is the kind of core that ran it."""
    if core.upper() in ("HCCL", "COMMUNICATION"):
        return kinds.COMMUNICATION
    normalised = name.lower().replace("_", "")
    return next((kind for kind, pattern in TYPE_KINDS if re.search(pattern, normalised)), kinds.OTHER)


def find_phase(name: str, scope: str, trained_scopes: set[str]) -> Phase:
    """Return the phase of a TensorFlow node; `trained_scopes` are the outermost scopes that have gradients."""
    if find_kind(name) == kinds.OPTIMIZER:
        return "update"
    if scope.startswith("gradients"):
        return "backward"
    return "forward" if scope.split("/")[0] in trained_scopes else "other"


def read_memory_record(rows: Iterable[CsvRow], rank: int) -> list[MemoryPoint]:
    """Return the memory over time of one component: the first of PTA+GE, PTA, GE, APP or any other that has rows.

    PTA is torch_npu's allocator, GE the allocator of CANN's graph engine, APP the whole process.
    """
    points: dict[str, list[MemoryPoint]] = defaultdict(list)
    for row in rows:
        time, allocated = row.time_us("Timestamp"), row.bytes("Total Allocated")
        if time is not None and allocated is not None:
            reserved = row.bytes("Total Reserved")
            points[row.text("Component").upper()].append(MemoryPoint(time, max(allocated, 0), reserved, rank))
    if not points:
        return []
    preferred = next((name for name in ("PTA+GE", "PTA", "GE", "APP") if name in points), next(iter(points)))
    return thin_points(points[preferred])


def read_memory_owners(
    rows: Iterable[CsvRow], rank: int, points: Sequence[MemoryPoint], most: int = 50
) -> list[MemoryOwner]:
    """Return the operators whose allocations were alive at the highest point, the largest first, at most `most`."""
    if not points:
        return []
    peak_us = max(points, key=lambda point: point.allocated).time_us
    sizes: dict[str, int] = defaultdict(int)
    for row in rows:
        size, start, duration = row.bytes("Size"), row.time_us("Allocation Time"), row.time_us("Duration")
        if size is None or start is None or size <= 0:
            continue
        if start <= peak_us and (duration is None or peak_us < start + duration):
            sizes[row.text("Name") or "unnamed"] += size
    largest = sorted(sizes.items(), key=lambda entry: -entry[1])[:most]
    return [MemoryOwner(name, size, rank) for name, size in largest]


def read_statistics(rows: Iterable[CsvRow], steps: int, rank: int) -> list[Kernel]:
    """Return the kernels of op_statistic, one for each type of operator."""
    kernels = []
    for row in rows:
        name, count, total = row.text(*TYPE), row.number("Count"), row.time_us("Total Time")
        if name and count is not None and total is not None:
            core = row.text("Core Type")
            kernels.append(Kernel(name, find_kind(name, core), count / steps, total / steps, rank=rank))
    return sorted(kernels, key=lambda kernel: -kernel.time_us)
