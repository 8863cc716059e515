"""Bash scripts that start a migrated PyTorch project without viaduct.

env.sh        the vendor's environment, sourced by the others
run_1p.sh     one device; under torchrun if the script cannot run without it
run_8p.sh     eight devices of this machine under torchrun; only for scripts that can run as several ranks
"""

from __future__ import annotations

from typing import Literal

from viaduct.cards.shell import ENVIRONMENTS
from viaduct.cluster.scripts import ENVIRONMENT_HEAD
from viaduct.cluster.tf1_scripts import DEVICES, render_arguments, render_head

TORCHRUN = 'exec "${PYTHON:-python3}" -m torch.distributed.run --standalone --nproc_per_node="${RANKS:-%d}"'
PLAIN = 'exec "${PYTHON:-python3}"'


def render_files(
    kind: Literal["npu", "mlu"], entry: str, is_started_per_rank: bool, needs_torchrun: bool
) -> dict[str, str]:
    """Return the texts of the files by name.

    `is_started_per_rank`: the script can run as several ranks. `needs_torchrun`: it needs torchrun even for one.
    """
    files = {
        "env.sh": ENVIRONMENT_HEAD + ENVIRONMENTS[kind],
        "run_1p.sh": render_run("One device.", TORCHRUN % 1 if needs_torchrun else PLAIN, entry),
    }
    if is_started_per_rank or needs_torchrun:
        title = f"{DEVICES} devices of this machine; RANKS=4 before the command makes it four."
        files[f"run_{DEVICES}p.sh"] = render_run(title, TORCHRUN % DEVICES, entry)
    return files


def render_run(title: str, command: str, entry: str) -> str:
    return f"{render_head(title, entry)}{command} {render_arguments(entry)}\n"
