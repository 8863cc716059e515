"""Results of a migrated project without viaduct, which show if a mutation changes anything.

The project's text is rewritten for the CPU, and the script is run to its end in a process for each rank. The results
are digests of the outputs of all modules, the weights and optimizer states at the end and the files that it wrote, and
the text that it printed. A mutation changes something if one of them differs.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import re
import runpy
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from carrying.forked_carry import find_free_port
from carrying.sample_projects import SampleProject

SECONDS = 60  # of a run; a mutation may make ranks wait for each other
# Lines of a migrated TensorFlow 1 script that only the card understands.
ADAPTER = re.compile(r".*(?:custom_op|npu_ops|RewriterConfig|npu_bridge)")
TO_CPU = (
    (rf"^{ADAPTER.pattern}.*\n", ""),
    (r"^import torch_npu$", ""),
    (r"\.npu\([^()]*\)", ".cpu()"),
    (r'torch\.device\("npu", \w+\)', 'torch.device("cpu")'),
    (r"torch\.npu\.set_device\(\w+\)", "None"),
    (r"torch\.npu\.is_available\(\)", "True"),
    (r"torch\.npu\.amp\.GradScaler\(", 'torch.amp.GradScaler("cpu", '),
    (r"device_ids=\[\w+\]", "device_ids=None"),
    (r'"npu(?::0)?"', '"cpu"'),
    (r"hccl", "gloo"),
)


def rewrite_for_cpu(text: str) -> str:
    for pattern, new in TO_CPU:
        text = re.sub(pattern, new, text, flags=re.MULTILINE)
    return text


def run_without_viaduct(base: SampleProject, tree: Path, folder: Path) -> None:
    """Run the project and write the results of each rank to `folder`/RANK.json; a rank that fails writes none."""
    shutil.copytree(tree, folder / "tree")
    for path in (folder / "tree").rglob("*.py"):
        path.write_text(rewrite_for_cpu(path.read_text()))
    port = str(find_free_port())
    pids = []
    for rank in range(base.ranks):
        pid = os.fork()
        if not pid:
            run_rank(base, folder, rank, port)
        pids.append(pid)
    wait_for_ranks(pids)


def wait_for_ranks(pids: list[int]) -> None:
    """Wait for all ranks; kill the others if one fails, or all after SECONDS."""
    end, waiting = time.monotonic() + SECONDS, set(pids)
    while waiting:
        pid, status = os.waitpid(-1, os.WNOHANG)
        waiting.discard(pid)
        if status or time.monotonic() > end:
            for other in waiting:
                os.kill(other, signal.SIGKILL)
            end = float("inf")
        time.sleep(0.01)


def run_rank(base: SampleProject, folder: Path, rank: int, port: str) -> None:
    """Run one rank in this process, a fork, and end it."""
    code = 1
    try:
        variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": base.ranks, "MASTER_ADDR": "127.0.0.1"}
        os.environ.update({name: str(value) for name, value in variables.items()} | {"MASTER_PORT": port})
        os.environ.update({"TF_NUM_INTEROP_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"})
        work = folder / f"work-{rank}"
        work.mkdir()
        os.chdir(work)
        warnings.simplefilter("ignore")  # warnings of libraries are not compared
        results = collect_results(base, folder / "tree", rank)
        (folder / f"{rank}.json").write_text(json.dumps(results))
        code = 0
    finally:
        os._exit(code)


def collect_results(base: SampleProject, tree: Path, rank: int) -> dict[str, str]:
    """Run the script in this process and return its results by name."""
    import numpy
    import torch

    random.seed(7 + rank)
    numpy.random.seed(7 + rank)
    torch.manual_seed(7 + rank)
    torch.set_num_threads(1)
    outputs = hashlib.sha256()
    modules: list[Any] = []
    optimizers: list[Any] = []
    record_created(torch.nn.Module, modules)
    record_created(torch.optim.Optimizer, optimizers)
    torch.nn.modules.module.register_module_forward_hook(
        lambda module, args, output: [outputs.update(as_bytes(tensor)) for tensor in tensors_in(output)][:0] or None
    )
    sys.path[:0] = [str(tree / base.pythonpath), str(tree / Path(base.entry).parent)]
    sys.argv = [base.entry]
    out, log = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(log):
        try:
            runpy.run_path(str(tree / base.entry), run_name="__main__")
        except SystemExit as error:
            if error.code:
                raise
    logged = [] if base.framework == "tensorflow" else log.getvalue().splitlines(True)  # TensorFlow logs the time
    states = [{id(module): module for module in modules}, {id(optimizer): optimizer for optimizer in optimizers}]
    return {
        "outputs": outputs.hexdigest(),
        "weights": digest(list(states[0].values())),
        "optimizers": digest(list(states[1].values())),
        "printed": out.getvalue() + "".join(line for line in logged if "Warning" not in line),
        "files": digest([read_file(path) for path in sorted(Path.cwd().rglob("*")) if path.is_file()]),
    }


def record_created(kind: Any, created: list[Any]) -> None:
    """Wrap a constructor so that each new object is added to a list."""
    plain = kind.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        plain(self, *args, **kwargs)
        created.append(self)

    kind.__init__ = init


def digest(objects: list[Any]) -> str:
    """Return a digest of modules, optimizers or plain values; it does not depend on their order."""
    states = [item.state_dict() if hasattr(item, "state_dict") else item for item in objects]
    parts = sorted(hashlib.sha256(part).digest() for state in states for part in flatten(state))
    return hashlib.sha256(b"".join(parts)).hexdigest()


def flatten(value: Any) -> Iterator[bytes]:
    """Yield the bytes of the tensors, keys and other values in nested containers."""
    import torch

    if isinstance(value, torch.Tensor):
        yield as_bytes(value)
    elif isinstance(value, dict):
        for name, part in value.items():
            yield repr(name).encode()
            yield from flatten(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from flatten(part)
    else:
        yield repr(value).encode()


def tensors_in(value: Any) -> Iterator[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors_in(part)


def as_bytes(tensor: Any) -> bytes:
    import torch

    plain = tensor.detach().cpu().contiguous()
    return f"{plain.dtype} {tuple(plain.shape)}".encode() + plain.view(-1).view(torch.uint8).numpy().tobytes()


def read_file(path: Path) -> Any:
    import torch

    if path.suffix in (".pt", ".pth"):
        return [path.name, torch.load(path, weights_only=False)]
    return [path.name, path.read_text()]
