"""Scripts that start a migrated TensorFlow 1 project without us at hand: plain bash, one process a device.

env.sh                    the vendor's environment, sourced by the others
run_1p.sh                 one device
run_8p.sh                 eight devices of this machine, one process and one log each
rank_table_8p.json        a rank table to be adapted: who takes part, and the devices' addresses
"""

from __future__ import annotations

import shlex
from typing import Literal

from viaduct.cluster.generate import make as make_table
from viaduct.cluster.scripts import ENVIRONMENTS, HEAD, HERE

DEVICES = 8
EXAMPLE_SERVER = "192.0.2.1"
"""An address kept for documents (RFC 5737); nobody's."""
TABLE = f"rank_table_{DEVICES}p.json"
TF_PLUGIN = """\
# The TensorFlow adapter (npu_bridge) and hccl.
tfplugin="$ASCEND_INSTALL_PATH/tfplugin"
if [ -f "$tfplugin/set_env.sh" ]; then
    set +u
    # shellcheck source=/dev/null
    . "$tfplugin/set_env.sh"
    set -u
else
    export PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}$tfplugin/latest/tfplugin/python/site-packages:\\
$tfplugin/latest/python/site-packages:$ASCEND_INSTALL_PATH/fwkacllib/python/site-packages/hccl"
fi
export JOB_ID="${JOB_ID:-10087}" # NPUEstimator refuses to start without one
"""
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
        "${PYTHON:-python3}" %(script)s "$@" >"$logs/rank_$rank.log" 2>&1 &
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
MLU_ALL = """\
# Horovod stays with Cambricon's TensorFlow; it starts the ranks.
exec horovodrun -np %(devices)s "${PYTHON:-python3}" %(script)s "$@"
"""


def make(kind: Literal["npu", "mlu"], entry: str) -> dict[str, str]:
    """Name -> text. Without an entry the scripts take the script as their first argument."""
    environment = "# The environment of the scripts beside this file; to be sourced by bash.\n" + ENVIRONMENTS[kind]
    files = {
        "env.sh": environment + (TF_PLUGIN if kind == "npu" else ""),
        "run_1p.sh": run_one(kind, entry),
        f"run_{DEVICES}p.sh": run_all(kind, entry),
    }
    if kind == "npu":
        files[TABLE] = make_table([EXAMPLE_SERVER], list(range(DEVICES)), ["auto"])
    return files


def begin(title: str, entry: str) -> str:
    what = "added to the command" if entry else "the script and its arguments"
    usage = "" if entry else ': "${1:?give the script to start, such as train.py, and its arguments}"\n'
    return f'{HEAD}# {title} What is given to this script is {what}.\nset -eu\n{HERE}{usage}. "$here/env.sh"\n'


def script_word(entry: str) -> str:
    return f'"$here"/../{shlex.quote(entry)}' if entry else ""


def run_one(kind: str, entry: str) -> str:
    body = NPU_ONE if kind == "npu" else ""
    command = " ".join(word for word in ('exec "${PYTHON:-python3}"', script_word(entry), '"$@"') if word)
    return begin("One device.", entry) + body + command + "\n"


def run_all(kind: str, entry: str) -> str:
    body = NPU_ALL if kind == "npu" else MLU_ALL
    facts = {"devices": DEVICES, "table": TABLE, "server": EXAMPLE_SERVER, "script": script_word(entry)}
    return begin(f"{DEVICES} devices of this machine.", entry) + (body % facts).replace('}"  "$@"', '}" "$@"')
