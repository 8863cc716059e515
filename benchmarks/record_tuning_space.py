"""Measure every point of a real tuning space on this CPU; tests of the search methods replay the resulting table.

    nice python benchmarks/record_tuning_space.py --rounds 9 --out tests/tuning/recorded_space.json

The operator is a 1x1 convolution as a blocked matrix product in C: 784 pixels (28x28), 256 input and 256 output
channels, fp32, one thread. A point determines how many rows and vectors of the result stay in registers, the vector
width, the unrolling of the inner loop, the tile of input channels, whether the weights are packed, and the order of
the loops. The system's compiler ($CC, else cc) builds all inner loops with -O3 -march=native. Every point is checked
against NumPy. Each round measures all points in a new random order, each beside the default; the time of a point is
its minimum over the rounds. Rounds are appended to a journal beside the output; an interrupted run continues with it.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import json
import os
import platform
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from viaduct.search_space import Parameter, Point, Space

PIXELS, INPUTS, OUTPUTS = 784, 256, 256
FLAGS = ["-O3", "-march=native", "-ffast-math", "-fPIC", "-shared", "-w"]
REGISTERS = 28  # accumulators that leave room for operands in 32 vector registers

MICRO = """
static void {name}(const float *a, long lda, const float *b, long ldb, float *c, long ldc, long depth, int first) {{
    typedef float vec __attribute__((vector_size({width} * 4), aligned(4)));
    vec sum[{rows}][{vectors}];
    for (int i = 0; i < {rows}; i++)
        for (int j = 0; j < {vectors}; j++)
            sum[i][j] = first ? (vec){{0}} : *(const vec *)(c + i * ldc + j * {width});
    #pragma GCC unroll {unroll}
    for (long k = 0; k < depth; k++) {{
        vec right[{vectors}];
        #pragma GCC unroll 16
        for (int j = 0; j < {vectors}; j++) right[j] = *(const vec *)(b + k * ldb + j * {width});
        #pragma GCC unroll 16
        for (int i = 0; i < {rows}; i++) {{
            float left = a[i * lda + k];
            #pragma GCC unroll 16
            for (int j = 0; j < {vectors}; j++) sum[i][j] += left * right[j];
        }}
    }}
    for (int i = 0; i < {rows}; i++)
        for (int j = 0; j < {vectors}; j++) *(vec *)(c + i * ldc + j * {width}) = sum[i][j];
}}
"""

DRIVER = """
#include <time.h>
#include <string.h>
enum {{ M = {pixels}, K = {inputs}, N = {outputs} }};
static float packed[K * N] __attribute__((aligned(64)));
typedef void (*micro)(const float *, long, const float *, long, float *, long, long, int);
{kernels}
static const micro table[] = {{ {names} }};

static void product(micro run, long rows, long columns, long tile, int pack, int order,
                    const float *a, const float *b, float *c) {{
    if (pack)
        for (long n = 0; n < N; n += columns)
            for (long k = 0; k < K; k++) memcpy(packed + n * K + k * columns, b + k * N + n, columns * sizeof(float));
    #define STEP(m, n, k) run(a + (m) * K + (k), K, pack ? packed + (n) * K + (k) * columns : b + (k) * N + (n), \\
                              pack ? columns : N, c + (m) * N + (n), N, tile, (k) == 0)
    #define LOOP(v, end, step) for (long v = 0; v < end; v += step)
    switch (order) {{
        case 0: LOOP(k, K, tile) LOOP(m, M, rows) LOOP(n, N, columns) STEP(m, n, k); break;
        case 1: LOOP(k, K, tile) LOOP(n, N, columns) LOOP(m, M, rows) STEP(m, n, k); break;
        case 2: LOOP(n, N, columns) LOOP(k, K, tile) LOOP(m, M, rows) STEP(m, n, k); break;
        case 3: LOOP(m, M, rows) LOOP(n, N, columns) LOOP(k, K, tile) STEP(m, n, k); break;
    }}
}}

double run_point(int kernel, long rows, long columns, long tile, int pack, int order,
                 const float *a, const float *b, float *c) {{
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    product(table[kernel], rows, columns, tile, pack, order, a, b, c);
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (end.tv_sec - begin.tv_sec) * 1e6 + (end.tv_nsec - begin.tv_nsec) * 1e-3;
}}
"""

ORDERS = ("kmn", "knm", "nkm", "mnk")
PARAMETERS = (
    Parameter("rows", (1, 2, 4, 7, 8, 14)),
    Parameter("vectors", (1, 2, 4)),
    Parameter("width", (4, 8, 16)),
    Parameter("unroll", (1, 4)),
    Parameter("tile", (64, 128, 256)),
    Parameter("pack", (False, True)),
    Parameter("order", ORDERS),
)
DEFAULT: Point = {"rows": 4, "vectors": 2, "width": 8, "unroll": 1, "tile": 256, "pack": False, "order": "mnk"}


def limit_registers(point: Point) -> str | None:
    used = int(point["rows"]) * int(point["vectors"])
    return f"{used} accumulators do not fit into registers" if used > REGISTERS else None


SPACE = Space(PARAMETERS, [limit_registers], default=DEFAULT)


class Operator:
    """Compiled inner loops and their tensors."""

    def __init__(self, folder: Path) -> None:
        keys = sorted(
            {tuple(int(point[name]) for name in ("rows", "vectors", "width", "unroll")) for point in SPACE.points()}
        )
        self.kernels = {key: i for i, key in enumerate(keys)}
        names = {key: "micro_" + "_".join(map(str, key)) for key in keys}
        fields = ("rows", "vectors", "width", "unroll")
        kernels = "".join(MICRO.format(name=names[key], **dict(zip(fields, key, strict=True))) for key in keys)
        sizes = {"pixels": PIXELS, "inputs": INPUTS, "outputs": OUTPUTS}
        source = folder / "space.c"
        source.write_text(DRIVER.format(kernels=kernels, names=", ".join(names.values()), **sizes))
        self.compiler = os.environ.get("CC", "cc")
        subprocess.run([self.compiler, *FLAGS, str(source), "-o", str(folder / "space.so")], check=True)
        self.function = ctypes.CDLL(str(folder / "space.so")).run_point
        self.function.restype = ctypes.c_double
        random = np.random.default_rng(0)
        self.a = random.standard_normal((PIXELS, INPUTS), dtype=np.float32)
        self.b = random.standard_normal((INPUTS, OUTPUTS), dtype=np.float32)
        self.c = np.empty((PIXELS, OUTPUTS), dtype=np.float32)
        self.expected = self.a.astype(np.float64) @ self.b.astype(np.float64)

    def time(self, point: Point) -> float:
        """Return the microseconds of one run."""
        rows, vectors, width, unroll = (int(point[name]) for name in ("rows", "vectors", "width", "unroll"))
        kernel = self.kernels[rows, vectors, width, unroll]
        arrays = (ctypes.c_void_p(array.ctypes.data) for array in (self.a, self.b, self.c))
        numbers = (rows, vectors * width, int(point["tile"]))
        order = ORDERS.index(str(point["order"]))
        return float(self.function(kernel, *map(ctypes.c_long, numbers), int(point["pack"]), order, *arrays))

    def check(self, point: Point) -> None:
        self.c.fill(np.nan)
        self.time(point)
        error = np.abs(self.c - self.expected).max() / np.abs(self.expected).max()
        if not error < 1e-5:
            raise SystemExit(f"{point} computes something else: error {error}")


def read_journal(path: Path) -> list[list[float]]:
    if not path.exists():
        return []
    rounds = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("]")]
    return [times for times in rounds if len(times) == SPACE.size + 1]


def measure_round(operator: Operator, number: int) -> list[float]:
    """Return the times of all points in the order of the space, then the median time of the default."""
    points = list(SPACE.points())
    times, beside = [0.0] * len(points), []
    for i in np.random.default_rng(number).permutation(len(points)):
        beside.append(operator.time(SPACE.default))
        times[i] = min(operator.time(points[i]), operator.time(points[i]))
    return [*(round(time, 1) for time in times), round(float(np.median(beside)), 1)]


def describe_machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    widths = [flag for flag in ("avx2", "avx512f") if any(f" {flag} " in f"{line} " for line in lines)]
    return f"{model}, {os.cpu_count()} cores, {' '.join(widths)}"


def tabulate(rounds: list[list[float]], operator: Operator, arguments: argparse.Namespace) -> dict[str, object]:
    best = np.array(rounds)[:, :-1].min(0)
    medians = np.median(np.array(rounds)[:, :-1], 0)
    version = subprocess.run([operator.compiler, "--version"], capture_output=True, text=True, check=True).stdout
    return {
        "operator": f"1x1 convolution, {PIXELS} pixels, {INPUTS} to {OUTPUTS} channels, fp32, one thread, C",
        "machine": describe_machine(),
        "compiler": version.splitlines()[0] + " " + " ".join(FLAGS),
        "date": datetime.date.today().isoformat(),
        "command": f"python benchmarks/record_tuning_space.py --rounds {arguments.rounds}",
        "rounds": len(rounds),
        "median_over_minimum": round(float(np.median(medians / best)), 3),
        "default_medians_us": [row[-1] for row in rounds],
        "parameters": {parameter.name: list(parameter.values) for parameter in SPACE.parameters},
        "max_accumulators": REGISTERS,
        "default": dict(SPACE.default),
        "times_us": [float(time) for time in best],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    journal = arguments.out.with_suffix(".journal.jsonl")
    with tempfile.TemporaryDirectory() as folder:
        operator = Operator(Path(folder))
        for point in SPACE.points():
            operator.check(point)
        rounds = read_journal(journal)
        while len(rounds) < arguments.rounds:
            rounds.append(measure_round(operator, len(rounds)))
            with journal.open("a") as file:
                file.write(json.dumps(rounds[-1]) + "\n")
            print(f"round {len(rounds)}: default {rounds[-1][-1]} us", flush=True)
        arguments.out.write_text(json.dumps(tabulate(rounds, operator, arguments)) + "\n")
    print(f"{SPACE.size} points, all correct, in {arguments.out}; remove {journal} if it is not needed any more.")


if __name__ == "__main__":
    main()
