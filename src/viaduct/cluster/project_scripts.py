"""Bash scripts that start a migrated project on the NPU or the MLU without viaduct.

env.sh                the vendor's environment; the other scripts source it
run_1p.sh             one device; for PyTorch under torchrun if the script cannot run without it
run_8p.sh             eight devices of this machine, one process each. TensorFlow 1: each process has a log; on the MLU
                      under horovodrun. PyTorch: under torchrun; only for scripts that can run as several ranks
rank_table_8p.json    TensorFlow 1 on the NPU: a rank table in which the user replaces the server and the addresses
config.py             TensorFlow 1: arguments of the script that the run scripts add; only if that script is known
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Literal

from viaduct.cards.shell import ENVIRONMENTS, TF_PLUGIN
from viaduct.cluster.generate import make_table
from viaduct.cluster.scripts import ENVIRONMENT_HEAD, HEAD, HERE, render_profiling_variables

DEVICES = 8  # of one machine
# An address that is reserved for documentation (RFC 5737); run_8p.sh refuses a table that still has it.
EXAMPLE_SERVER = "192.0.2.1"
TABLE = f"rank_table_{DEVICES}p.json"
PROFILING = """\
# PROFILING_MODE=true lets CANN profile the script, with these options. `output` must be a folder that exists. CANN
# finds an empty fp_point or bp_point itself.
"""
PROFILING_OPTIONS = '{"output": "/tmp/profiling", "training_trace": "on", "fp_point": "", "bp_point": ""}'
NPU_ONE = """\
export RANK_ID=0
export RANK_SIZE=1
export DEVICE_ID="${DEVICE_ID:-0}"
export ASCEND_DEVICE_ID="$DEVICE_ID"
unset RANK_TABLE_FILE
"""
NPU_ALL = """\
export RANK_SIZE=%(devices)s
export RANK_TABLE_FILE="${RANK_TABLE_FILE:-$here/%(table)s}"
if [ ! -f "$RANK_TABLE_FILE" ] || grep -q '%(server)s' "$RANK_TABLE_FILE"; then
    echo "$0: $RANK_TABLE_FILE does not describe this machine yet. For example:" >&2
    echo "  viaduct ranktable make --servers ADDRESS --devices %(devices)s --device-ips auto \\\\" >&2
    echo "      --out $RANK_TABLE_FILE --force" >&2
    exit 2
fi
logs="${LOGS:-$PWD/logs}"
mkdir -p "$logs"
pids=()
stop() { kill "${pids[@]}" 2>/dev/null || true; }
trap stop INT TERM
for rank in $(seq 0 $((RANK_SIZE - 1))); do
    RANK_ID=$rank DEVICE_ID=$rank ASCEND_DEVICE_ID=$rank \\
        "${PYTHON:-python3}" %(arguments)s >"$logs/rank_$rank.log" 2>&1 &
    pids+=($!)
done
echo "${#pids[@]} ranks started; their output is in $logs/rank_N.log"
status=0
running="${pids[*]}"
while [ -n "$running" ]; do
    left=""
    for pid in $running; do
        if kill -0 "$pid" 2>/dev/null; then
            left="$left $pid"
        elif ! wait "$pid" && [ "$status" = 0 ]; then
            echo "a rank failed, the others are ended; see $logs/rank_N.log" >&2
            status=1
            stop
        fi
    done
    running=$left
    [ -z "$running" ] || sleep 0.2
done
exit $status
"""
# Text of config.py. It runs with the Python that trains, which may be 3.6.
CONFIG = '''\
"""Arguments that run_1p.sh and run_{devices}p.sh give to {script}.

Arguments on the command line come after these, so they win. True writes a flag without a value; a list writes several
values; None writes nothing.
{flags_note}
"""

ARGUMENTS = {{
{lines}}}

if __name__ == "__main__":
    import shlex

    arguments = []
    for name, value in ARGUMENTS.items():
        if value is True:
            arguments.append(f"--{{name}}")
        elif isinstance(value, (list, tuple)):
            arguments += [f"--{{name}}", *map(str, value)]
        elif value is not None:
            arguments.append(f"--{{name}}={{value}}")
    print(" ".join(map(shlex.quote, arguments)))
'''
READ_CONFIG = """\
if [ -f "$here/config.py" ]; then
    config=$("${PYTHON:-python3}" "$here/config.py")
    eval "set -- $config \\"\\$@\\""
fi
"""
MLU_ALL = """\
# Horovod stays with Cambricon's TensorFlow; it starts the ranks.
exec horovodrun -np %(devices)s "${PYTHON:-python3}" %(arguments)s
"""
PYTHON = 'exec "${PYTHON:-python3}"'
TORCHRUN = PYTHON + ' -m torch.distributed.run --standalone --nproc_per_node="${RANKS:-%d}"'


def render_tensorflow_files(
    kind: Literal["npu", "mlu"],
    entry: str,
    flags: Sequence[tuple[str, str, str]] = (),
    profiling: str = PROFILING_OPTIONS,
) -> dict[str, str]:
    """Return the files for TensorFlow 1: name -> text. `entry`: the script to start; if empty, the first argument.

    `flags` are (name, default as a literal, file) of the script's flags, for config.py. `profiling` has the options of
    CANN's profiler as JSON.
    """
    is_npu = kind == "npu"
    plugin = TF_PLUGIN + render_profiling_variables(PROFILING, profiling) if is_npu else ""
    arguments = render_arguments(entry)
    values = {"devices": DEVICES, "table": TABLE, "server": EXAMPLE_SERVER, "arguments": arguments}
    run_one = (NPU_ONE if is_npu else "") + f'exec "${{PYTHON:-python3}}" {arguments}\n'
    run_all = (NPU_ALL if is_npu else MLU_ALL) % values
    read_config = READ_CONFIG if entry else ""
    files = {
        "env.sh": ENVIRONMENT_HEAD + ENVIRONMENTS[kind] + plugin,
        "run_1p.sh": render_head("One device.", entry) + read_config + run_one,
        f"run_{DEVICES}p.sh": render_head(f"{DEVICES} devices of this machine.", entry) + read_config + run_all,
    }
    if is_npu:
        files[TABLE] = make_table([EXAMPLE_SERVER], list(range(DEVICES)), ["auto"])
    if entry:
        files["config.py"] = render_config(entry, flags)
    return files


def render_torch_files(
    kind: Literal["npu", "mlu"], entry: str, can_run_as_ranks: bool, needs_torchrun: bool
) -> dict[str, str]:
    """Return the files for PyTorch: name -> text. `needs_torchrun`: the script needs torchrun even on one device."""
    files = {
        "env.sh": ENVIRONMENT_HEAD + ENVIRONMENTS[kind],
        "run_1p.sh": render_torch_run("One device.", TORCHRUN % 1 if needs_torchrun else PYTHON, entry),
    }
    if can_run_as_ranks or needs_torchrun:
        title = f"{DEVICES} devices of this machine; RANKS=4 before the command makes it four."
        files[f"run_{DEVICES}p.sh"] = render_torch_run(title, TORCHRUN % DEVICES, entry)
    return files


def render_torch_run(title: str, command: str, entry: str) -> str:
    return f"{render_head(title, entry)}{command} {render_arguments(entry)}\n"


def render_config(entry: str, flags: Sequence[tuple[str, str, str]]) -> str:
    """Return config.py, with the flags found in the project as comments."""
    note = (
        "The flags below were found in the text of the project, with their defaults: take the # away to set one."
        if flags
        else 'No flag was found in the text of the project; write them so: "data_dir": "/data/imagenet".'
    )
    lines = [f"    # {name!r}: {default or '...'},  # {file}\n" for name, default, file in flags]
    return CONFIG.format(devices=DEVICES, script=entry, flags_note=note, lines="".join(lines))


def render_head(title: str, entry: str) -> str:
    """Return the beginning of a script: its usage and env.sh."""
    arguments = "are added to the command" if entry else "are the script and its arguments"
    usage = "" if entry else ': "${1:?give the script to start, such as train.py, and its arguments}"\n'
    return f'{HEAD}# {title} Arguments of this script {arguments}.\nset -eu\n{HERE}{usage}. "$here/env.sh"\n'


def render_arguments(entry: str) -> str:
    """Return the project's script, one folder above these files, and the arguments of the bash script.

    Without an entry only the arguments.
    """
    return f'"$here"/../{shlex.quote(entry)} "$@"' if entry else '"$@"'
