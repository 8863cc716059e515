"""Batch script that starts a job under Slurm: one task on each machine, which starts the ranks of that machine.

    sbatch job.sbatch [arguments that are added to the command]

The task runs run_Np.sh (one machine, N ranks) or run_cluster.sh (several), which scripts.py writes beside this script.
Slurm runs a copy of the batch script, so they are looked up in the folder from which the job was submitted.
"""

from __future__ import annotations

from viaduct.cluster.findings import format_count

SBATCH = "job.sbatch"
# Usual names of the cards in Slurm's gres.conf, by kind of device; the CPU has none.
GRES_NAMES = {"npu": "npu", "mlu": "mlu", "cuda": "gpu"}
STOP_EARLY_S = 120  # Slurm sends SIGTERM this long before the time limit; training then writes a checkpoint and ends


def render_sbatch(kind: str, machines: int, ranks: int, name: str, port: int, has_table: bool) -> str:
    """Return the text of job.sbatch for `machines` machines with `ranks` ranks each.

    `has_table`: the job has a rank table, which numbers the machines. Without one Slurm numbers them (NODE_RANK), and
    the first machine is the rendezvous.
    """
    lines = [
        "#!/usr/bin/env bash",
        f"#SBATCH --job-name={name}",
        f"#SBATCH --nodes={machines}",
        "#SBATCH --ntasks-per-node=1",
        *([f"#SBATCH --gres={GRES_NAMES[kind]}:{ranks}"] if kind in GRES_NAMES else []),
        "#SBATCH --exclusive",
        "#SBATCH --mem=0",
        f"#SBATCH --signal=TERM@{STOP_EARLY_S}",
        "#SBATCH --open-mode=append",
        "#SBATCH --output=slurm-%j.log",
        f"# {format_count(machines, 'machine')} with {format_count(ranks, 'rank')} each, under Slurm. In this folder:",
        f"#   sbatch {SBATCH} [arguments that are added to the command]",
        "# Partition, account and time limit are the site's: `sbatch --partition=P --time=24:00:00 …`.",
        *(['# The name of the cards is the site\'s too; `sinfo -o "%N %G"` shows it.'] if kind in GRES_NAMES else []),
        *(["# The job must get the machines of rank_table.json: `sbatch --nodelist=…`."] if has_table else []),
        f"# {STOP_EARLY_S} seconds before the time limit ranks are asked to stop: training writes a checkpoint, and",
        "# the same sbatch continues from it.",
        "set -eu",
        'here="${JOB_DIR:-${SLURM_SUBMIT_DIR:-$PWD}}" # Slurm runs a copy of this file, which lies elsewhere',
        'if [ ! -f "$here/env.sh" ]; then',
        f'    echo "{SBATCH}: there is no env.sh in $here. Submit it from its own folder, or set JOB_DIR to that." >&2',
        "    exit 2",
        "fi",
    ]
    start = "srun --ntasks-per-node=1 --cpu-bind=none --kill-on-bad-exit=1"
    if machines == 1:
        return "\n".join([*lines, f'{start} bash "$here/run_{ranks}p.sh" "$@"', ""])
    if not has_table:
        lines += [
            'first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
            f'export RDZV="${{RDZV:-$first:{port}}}"',
        ]
    set_node_rank = "export NODE_RANK=$SLURM_NODEID; " if not has_table else ""
    command = f"""{start} \\\n    bash -c '{set_node_rank}exec bash "$0" "$@"' "$here/run_cluster.sh" "$@\""""
    return "\n".join([*lines, command, ""])
