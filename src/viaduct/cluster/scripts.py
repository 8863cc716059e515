"""Files that start a job with `viaduct launch`: shell scripts, a container, a Kubernetes job.

`render_files` lists them with their purposes. A job of several machines also has a secret, `job_secret`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent as indent_lines
from typing import Any, Literal

from viaduct.cards import CUDA, MLU, NPU
from viaduct.cards.shell import ENVIRONMENTS, MOUNTS
from viaduct.cluster.environment import DEFAULT_JOB, DEFAULT_PORT, check_job
from viaduct.cluster.findings import format_count, join_first
from viaduct.cluster.generate import write_text_file
from viaduct.cluster.launch import check_rank_count
from viaduct.cluster.ranktable import RankTable, render_table
from viaduct.cluster.secret import SECRET_VARIABLE, make_secret
from viaduct.cluster.slurm import SBATCH, render_sbatch
from viaduct.errors import BadValue
from viaduct.usage import find_flag_value

Kind = Literal["npu", "mlu", "cuda", "cpu"]
RANK_TABLE, SECRET = "rank_table.json", "job_secret"
HEAD = "#!/usr/bin/env bash\n"
# Line of bash that sets `here` to the folder of the script.
HERE = 'here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)\n'
READ_SECRET = f"""\
if [ -z "${{{SECRET_VARIABLE}:-}}" ] && [ -f "$here/{SECRET}" ]; then
    {SECRET_VARIABLE}=$(cat "$here/{SECRET}")
    export {SECRET_VARIABLE}
fi
"""
LAUNCH = 'exec "${PYTHON:-python3}" -m viaduct launch'
TRAIN_PROFILING = """\
# PROFILING_MODE=true lets `viaduct train` profile 20 steps into RUN/profile; the options are those of CANN, as JSON.
"""
# Suffix of a script's name -> arguments of `train`.
PRECISIONS = {"fp32": "--precision fp32", "amp": "--precision fp16 --loss-scale dynamic"}
PRECISION_NAMES = {"fp32": "in fp32", "amp": "with mixed precision"}
PRECISION_FLAGS = ("--precision", "--loss-scale")
RESOURCES = {card.name: card.kubernetes_resource for card in (NPU, MLU, CUDA)}  # names of the cards in Kubernetes
ENVIRONMENT_HEAD = "# The environment of the scripts beside this file; to be sourced by bash.\n"


@dataclass(frozen=True)
class Job:
    """Job that the scripts start."""

    command: Sequence[str]  # after `--` of `viaduct launch`: `train RECIPE …`
    kind: Kind
    nodes: int = 1  # number of machines, unless there is a rank table
    ranks: int = 8  # ranks of each machine, unless there is a rank table
    table: RankTable | None = None
    name: str = DEFAULT_JOB
    port: int = DEFAULT_PORT

    @property
    def machines(self) -> int:
        return len(self.table.servers) if self.table else self.nodes

    @property
    def ranks_per_machine(self) -> int:
        return len(self.table.servers[0].devices) if self.table else self.ranks

    @property
    def launch_flags(self) -> str:
        """Flags of `viaduct launch` in every script."""
        return f"--target {self.kind} --job {shlex.quote(self.name)}"

    @property
    def command_line(self) -> str:
        """End of the launch command: the job's command and the arguments of the script."""
        return f'-- {shlex.join(self.command)} "$@"\n'


def write_all(folder: Path, job: Job, force: bool) -> dict[Path, str]:
    """Write the files and return the purpose of each; without `force` refuse to replace files.

    An existing secret is never replaced.
    """
    check_job_settings(job)
    files = {folder / name: (text, purpose) for name, text, purpose in render_files(job)}
    existing = [str(path) for path in files if path.exists()]
    if existing and not force:
        raise BadValue(f"there already: {join_first(existing)}.", "--force replaces them; or name another folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadValue(f"{folder} cannot be a folder: {error.strerror}.", "Name another.") from error
    for path, (text, _) in files.items():
        write_text_file(text, path, force)
        if path.suffix == ".sh" and path.name != "env.sh":
            os.chmod(path, 0o755)
    purposes = {path: purpose for path, (_, purpose) in files.items()}
    if job.machines > 1:
        write_secret(folder / SECRET)
        purposes[folder / SECRET] = "the job's secret; copy it with the scripts, and show it to nobody"
    return purposes


def write_secret(path: Path) -> None:
    """Write a random secret unless the file exists: other machines may already use the existing one."""
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(make_secret() + "\n")
    except FileExistsError:
        return
    except OSError as error:
        raise BadValue(f"{path} cannot be written: {error.strerror}.") from None


def check_job_settings(job: Job) -> None:
    """Refuse fewer than one rank, a bad job name, and a rank table whose servers have different numbers of devices."""
    check_rank_count(job.ranks)
    check_job(job.name)
    if job.table is not None and len({len(server.devices) for server in job.table.servers}) > 1:
        raise BadValue(f"the servers of {job.table.name} have different numbers of devices.", "Scripts need the same.")


def render_files(job: Job) -> Iterator[tuple[str, str, str]]:
    """Yield (name, text, purpose) of each file but job_secret."""
    environment = ENVIRONMENT_HEAD + ENVIRONMENTS[job.kind] + render_profiling_variables(TRAIN_PROFILING, "{}")
    yield "env.sh", environment, "the environment, sourced by the others"
    for ranks in dict.fromkeys((1, job.ranks_per_machine)):
        yield f"run_{ranks}p.sh", render_run_local(job, ranks), f"{format_count(ranks, 'device')} of this machine"
        for suffix, text in list_run_variants(job, ranks).items():
            yield f"run_{ranks}p_{suffix}.sh", text, f"the same, {PRECISION_NAMES[suffix]}"
    if job.machines > 1:
        machines = format_count(job.machines, "machine")
        yield "run_cluster.sh", render_run_cluster(job), f"this machine's part of {machines}"
    sbatch = render_sbatch(job.kind, job.machines, job.ranks_per_machine, job.name, job.port, job.table is not None)
    yield SBATCH, sbatch, "the job for Slurm"
    if job.table is not None:
        yield RANK_TABLE, render_table(job.table), "the rank table"
    yield "Dockerfile", render_dockerfile(job), "viaduct on the image of your vendor"
    yield "run_docker.sh", render_run_docker(job), "that container, with its devices"
    yield "enter_docker.sh", render_enter_docker(job), "a shell in a container that stays"
    yield "pytorchjob.yaml", render_yaml(build_pytorchjob(job)), "the job for Kubernetes, as Kubeflow's PyTorchJob"


def render_profiling_variables(comment: str, options: str) -> str:
    """Return the lines that set PROFILING_MODE and PROFILING_OPTIONS, unless they are set already."""
    return f"""\
{comment}export PROFILING_MODE="${{PROFILING_MODE:-false}}"
if [ -z "${{PROFILING_OPTIONS:-}}" ]; then
    PROFILING_OPTIONS={shlex.quote(options)}
fi
export PROFILING_OPTIONS
"""


def render_run_local(job: Job, ranks: int) -> str:
    return (
        f"{HEAD}# {format_count(ranks, 'rank')} on this machine. Arguments of this script are added to the command.\n"
        f'set -eu\n{HERE}. "$here/env.sh"\n{LAUNCH} --ranks {ranks} {job.launch_flags} {job.command_line}'
    )


def list_run_variants(job: Job, ranks: int) -> dict[str, str]:
    """Return the scripts that train in another precision, by the suffix of their names.

    The CPU has none, nor has a command that sets a precision or trains no recipe. Each script uses its own run
    directory, because a run cannot change its precision.
    """
    arguments = list(job.command[1:] if job.command[0] == "viaduct" else job.command)
    # "precision.": `--set precision.FIELD=VALUE`
    has_precision = any(flag.partition("=")[0] in PRECISION_FLAGS or "precision." in flag for flag in arguments)
    trains_recipe = arguments[:1] == ["train"] and len(arguments) > 1 and not arguments[1].startswith("-")
    if job.kind == "cpu" or has_precision or not trains_recipe:
        return {}
    run = find_flag_value(["--run"], arguments) or f"runs/{Path(arguments[1]).stem}"
    return {suffix: render_run_variant(ranks, suffix, f"{run}_{suffix}") for suffix in PRECISIONS}


def render_run_variant(ranks: int, suffix: str, run: str) -> str:
    """Return the script that trains in one precision, into the run directory `run`."""
    title = f"# {format_count(ranks, 'rank')} on this machine, {PRECISION_NAMES[suffix]}. Arguments are added."
    start = f'exec bash "$here/run_{ranks}p.sh" {PRECISIONS[suffix]} --run {shlex.quote(run)} "$@"'
    return f"{HEAD}{title}\nset -eu\n{HERE}{start}\n"


def render_run_cluster(job: Job) -> str:
    """Return the script that is started on each of several machines."""
    machines, ranks = format_count(job.machines, "machine"), format_count(job.ranks_per_machine, "rank")
    title = f"# To be started on each of {machines}, with {ranks} each."
    if job.table is not None:
        card = " --card other" if job.kind != "npu" else ""
        rendezvous = f'--ranktable "$here/{RANK_TABLE}" --port "${{PORT:-{job.port}}}"{card}'
        check = ""
    else:
        check = f': "${{RDZV:?set RDZV to HOST:PORT of the machine where all meet, such as 10.0.0.10:{job.port}}}"\n'
        rendezvous = (
            f"--nodes {job.machines} --ranks {job.ranks_per_machine} "
            '--rdzv "$RDZV" ${NODE_RANK:+--node-rank "$NODE_RANK"}'
        )
    start = f"{check}{READ_SECRET}{LAUNCH} {rendezvous} {job.launch_flags} {job.command_line}"
    return f'{HEAD}{title}\nset -eu\n{HERE}. "$here/env.sh"\n{start}'


def render_dockerfile(job: Job) -> str:
    files = ["env.sh"]
    for ranks in dict.fromkeys((1, job.ranks_per_machine)):
        files += [f"run_{ranks}p.sh", *(f"run_{ranks}p_{suffix}.sh" for suffix in list_run_variants(job, ranks))]
    files += ["run_cluster.sh"] if job.machines > 1 else []
    files += [RANK_TABLE] if job.table is not None else []
    plugin = {"npu": f" and {NPU.plugin}", "mlu": f" and {MLU.plugin}"}.get(job.kind, "")
    return f"""\
# The vendor's image with torch{plugin} in it, as you call it:
#   docker build --build-arg BASE_IMAGE=NAME:TAG -t {get_image_name(job)} .
ARG BASE_IMAGE
FROM ${{BASE_IMAGE}}
# A name for pip, or the path of a wheel; a wheel must be added to COPY below.
ARG VIADUCT=viaduct
WORKDIR /job
COPY {" ".join(files)} ./
# The torch of the image was made for its driver; pip must not replace it.
RUN (python3 -m pip list --format=freeze | grep -iE '^torch([-_](npu|mlu))?==' || true) > /tmp/kept.txt \\
    && python3 -m pip install --no-cache-dir --constraint /tmp/kept.txt "${{VIADUCT}}[train]" \\
    && rm /tmp/kept.txt
ENTRYPOINT ["bash"]
CMD ["/job/run_{job.ranks_per_machine}p.sh"]
"""


def get_image_name(job: Job) -> str:
    return f"viaduct-{job.kind}"


def render_run_docker(job: Job) -> str:
    secret = f"options+=(-e {SECRET_VARIABLE})\n" if job.machines > 1 else ""
    return f"""\
{HEAD}# The container with the devices of this machine:
#   DATA=/where/the/data/lie RUNS=/where/runs/go ./run_docker.sh [command within]
set -eu
{HERE + READ_SECRET if job.machines > 1 else ""}IMAGE="${{IMAGE:-{get_image_name(job)}}}"
DATA="${{DATA:-$PWD/data}}"
RUNS="${{RUNS:-$PWD/runs}}"
mkdir -p "$RUNS"
options=(--rm --net=host --shm-size=16g)
if [ -t 0 ]; then options+=(-it); fi
if [ -d "$DATA" ]; then options+=(-v "$DATA:/data:ro"); fi
options+=(-v "$RUNS:/job/runs")
{secret}{MOUNTS[job.kind]}exec docker run "${{options[@]}}" "$IMAGE" "$@"
"""


def render_enter_docker(job: Job) -> str:
    """Return the script that opens a shell in a container that is kept, as in the vendors' guides."""
    mounts = indent_lines(MOUNTS[job.kind], "    ")
    return f"""\
{HEAD}# A shell in a container that stays: created the first time, started again and entered later.
#   DATA=/where/the/data/lie RUNS=/where/runs/go ./enter_docker.sh [command within]
# Debuggers and vendors' profilers need ptrace, and the vendors' guides run containers privileged: that is root on this
# machine for whoever is inside. PRIVILEGED=0 creates it with the devices alone. `docker rm -f NAME` removes it, and the
# next call creates it anew.
set -eu
CONTAINER="${{CONTAINER:-{job.name}-{job.kind}}}"
IMAGE="${{IMAGE:-{get_image_name(job)}}}"
DATA="${{DATA:-$PWD/data}}"
RUNS="${{RUNS:-$PWD/runs}}"
if [ $# -eq 0 ]; then set -- bash; fi
tty=()
if [ -t 0 ]; then tty=(-it --env "COLUMNS=$(tput cols)" --env "LINES=$(tput lines)"); fi
if ! docker container inspect "$CONTAINER" >/dev/null 2>&1; then
    mkdir -p "$RUNS"
    options=(--name "$CONTAINER" --net=host --shm-size=16g)
    if [ "${{PRIVILEGED:-1}}" != 0 ]; then options+=(--privileged=true --cap-add=SYS_PTRACE); fi
    if [ -d "$DATA" ]; then options+=(-v "$DATA:/data:ro"); fi
    options+=(-v "$RUNS:/job/runs")
{mounts}    docker create "${{options[@]}}" --entrypoint sleep "$IMAGE" infinity >/dev/null
fi
docker start "$CONTAINER" >/dev/null
exec docker exec ${{tty[@]+"${{tty[@]}}"}} "$CONTAINER" "$@"
"""


# Kubernetes


def build_pytorchjob(job: Job) -> dict[str, Any]:
    """Return the PyTorchJob, with one pod for each machine; it does not use the rank table."""
    replicas = {"Master": build_replica(job, 1)}
    if job.machines > 1:
        replicas["Worker"] = build_replica(job, job.machines - 1)
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": get_kubernetes_name(job)},
        "spec": {"runPolicy": {"backoffLimit": 3}, "pytorchReplicaSpecs": replicas},
    }


def get_kubernetes_name(job: Job) -> str:
    """Return the job name with only the characters that Kubernetes allows."""
    return job.name.lower().replace("_", "-").strip("-") or DEFAULT_JOB


def build_replica(job: Job, count: int) -> dict[str, Any]:
    """Return the specification of `count` equal pods, one for each machine."""
    resources = {RESOURCES.get(job.kind, "cpu"): job.ranks_per_machine}
    # Made with `kubectl create secret generic NAME-secret --from-file=job_secret`.
    secret = {"name": f"{get_kubernetes_name(job)}-secret", "key": SECRET, "optional": True}
    container = {
        "name": "pytorch",  # the operator looks for this name
        "image": get_image_name(job),
        "command": ["bash", "-c"],
        "args": [render_pod_command(job)],
        **({"env": [{"name": SECRET_VARIABLE, "valueFrom": {"secretKeyRef": secret}}]} if job.machines > 1 else {}),
        "resources": {"requests": resources, "limits": resources},
        "volumeMounts": [
            {"name": "data", "mountPath": "/data", "readOnly": True},
            {"name": "runs", "mountPath": "/job/runs"},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
    }
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": f"{DEFAULT_JOB}-data"}},
        {"name": "runs", "persistentVolumeClaim": {"claimName": f"{DEFAULT_JOB}-runs"}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]
    pod = {"spec": {"containers": [container], "volumes": volumes}}
    return {"replicas": count, "restartPolicy": "OnFailure", "template": pod}


def render_pod_command(job: Job) -> str:
    """Return the command of a pod. Kubeflow sets MASTER_ADDR, MASTER_PORT and RANK, which is the number of the pod."""
    rendezvous = (
        f' --nodes {job.machines} --rdzv "$MASTER_ADDR:$MASTER_PORT" --node-rank "$RANK"' if job.machines > 1 else ""
    )
    launch = f"{LAUNCH} --ranks {job.ranks_per_machine}{rendezvous} {job.launch_flags} -- {shlex.join(job.command)}"
    return f"set -eu; . /job/env.sh; {launch}"


def render_yaml(value: Any) -> str:
    """Return mappings, lists and scalars as YAML; strings that YAML might take for another type are quoted."""
    return "".join(line + "\n" for line in render_yaml_lines(value))


def render_yaml_lines(value: Any) -> Iterator[str]:
    """Yield the lines of a mapping or list."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from render_yaml_entry(f"{render_yaml_scalar(key)}:", item)
    else:
        for item in value:
            is_scalar = not isinstance(item, (Mapping, list))
            first, *following = [render_yaml_scalar(item)] if is_scalar else render_yaml_lines(item)
            yield f"- {first}"
            yield from (f"  {line}" for line in following)


def render_yaml_entry(key: str, item: Any) -> Iterator[str]:
    if isinstance(item, (Mapping, list)) and item:
        yield key
        yield from (f"  {line}" for line in render_yaml_lines(item))
    else:
        yield f"{key} {render_yaml_scalar(item)}"


def render_yaml_scalar(value: Any) -> str:
    is_plain = isinstance(value, str) and re.fullmatch(r"[A-Za-z/][A-Za-z0-9/._-]*", value)
    if is_plain and value.lower() not in ("true", "false", "yes", "no", "on", "off", "null", "y", "n"):
        return str(value)
    return json.dumps(value)
