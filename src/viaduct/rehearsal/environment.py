"""Environment variables of a rehearsal's processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from viaduct.cards import NPU
from viaduct.cluster.generate import make_table
from viaduct.cluster.ranktable import parse_table
from viaduct.rehearsal import limits
from viaduct.rehearsal.files import find_scratch_folder
from viaduct.rehearsal.plan import PLAN_FILE, PLAN_VARIABLE, Plan
from viaduct.scripts.child_process import HOOK_FOLDER

LAUNCHER_VARIABLES = {  # variables of a launcher or job around this process, which the script does not inherit
    "TF_CONFIG", "RANK", "RANK_ID", "RANK_SIZE", "DEVICE_ID", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
    "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "CM_WORKER_SIZE", "HOROVOD_RANK", "HOROVOD_SIZE",
    NPU.rank_table_variable, NPU.device_variable,  # RANK_TABLE_FILE, ASCEND_DEVICE_ID
}  # fmt: skip
TABLE_HOST = "192.0.2.1"  # reserved for documentation (RFC 5737); a rank table may not have a loopback address
RANK_TABLE_NAME = "rank_table.json"  # of the file in the record folder
DEFAULT_JOB_ID = "10087"  # the JOB_ID in the vendor's start scripts


def make_environment(plan: Plan) -> dict[str, str]:
    """Return the variables that every process of the rehearsal gets; ranks get further ones (`make_rank_variables`)."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in LAUNCHER_VARIABLES and not name.startswith("TORCHELASTIC_")
    }
    paths = [os.path.abspath(path) for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    environment["PYTHONPATH"] = os.pathsep.join([str(HOOK_FOLDER), *paths])
    environment["PYTHONUNBUFFERED"] = "1"  # a process that is killed has printed all its output
    environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # else a plug-in takes the place of the stand-in's device
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # 2: TensorFlow logs errors only
    if plan.seed is not None:
        environment["PYTHONHASHSEED"] = str(plan.seed % 2**32)
    if plan.file_view != "here":
        # If the project lies in the common temporary folder, all files that the script writes there are kept in the
        # record (`files.is_kept`). Temporary files therefore get a folder of their own, from which nothing is kept.
        scratch = find_scratch_folder(plan)
        scratch.mkdir(exist_ok=True)
        environment["TMPDIR"] = str(scratch)
    return environment | make_own_variables(plan) | make_single_rank_variables(plan)


def make_own_variables(plan: Plan) -> dict[str, str]:
    """Return the variables that viaduct itself reads."""
    return {
        PLAN_VARIABLE: str(Path(plan.record_folder) / PLAN_FILE),
        "VIADUCT_REHEARSAL_PYTHON": plan.python,
        limits.RECORD_VARIABLE: plan.record_folder,
        # Folders of the user's files: the project that is executed, the script's, and the one in which it starts.
        limits.PROJECT_VARIABLE: os.pathsep.join(
            dict.fromkeys([plan.executed_root, plan.script_folder, plan.visible_start_folder])
        ),
        limits.LIMITS_VARIABLE: plan.limit_modes,
        limits.LANGUAGE_VARIABLE: plan.language,
    }


def make_single_rank_variables(plan: Plan) -> dict[str, str]:
    """Return the variables that Ascend's start scripts give to a TensorFlow job of one process; {} for other jobs."""
    if plan.processes_to_start > 1 or plan.platform != "npu" or plan.framework != "tf1":
        return {}
    job = os.environ.get("JOB_ID", DEFAULT_JOB_ID)
    return {"RANK_ID": "0", "RANK_SIZE": "1", "DEVICE_ID": "0", "JOB_ID": job}


def make_rank_variables(plan: Plan, torchrun: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that an NPU rank needs for HCCL, its collective library, from the rank table.

    `torchrun` has the variables that torch's agent sets. Ranks of other cards need none beyond these.
    """
    if plan.platform != "npu":
        return {}
    path = Path(plan.record_folder) / RANK_TABLE_NAME
    table = parse_table(path.read_bytes(), path=path)
    variables = table.environment(int(torchrun["RANK"]), job=os.environ.get("JOB_ID", DEFAULT_JOB_ID))
    return {name: variables[name] for name in ("RANK_ID", "RANK_SIZE", "DEVICE_ID", NPU.rank_table_variable, "JOB_ID")}


def write_rank_table(plan: Plan) -> None:
    """Write the rank table of one server with `plan.ranks` devices."""
    table = make_table(servers=[TABLE_HOST], devices=list(range(plan.ranks)), device_ips=["auto"])
    (Path(plan.record_folder) / RANK_TABLE_NAME).write_text(table, encoding="utf-8")
