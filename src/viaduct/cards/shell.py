"""Bash lines for each card: environment variables of its software, and devices and mounts for a container.

The start scripts that viaduct writes (`cluster/scripts.py` and `cluster/project_scripts.py`) contain these texts and
run under `set -eu`. A variable that the user has set keeps its value; lists of paths are extended.

A single backslash at the end of a line joins two lines in Python. A double backslash becomes a line continuation in the
script.
"""

from __future__ import annotations

# Lines that set up the vendor's software and its collectives, by kind of device.
ENVIRONMENTS: dict[str, str] = {
    "npu": """\
# Ascend: CANN's set_env.sh sets its own paths. Older installations have no such file: their paths are set here.
ASCEND_INSTALL_PATH="${ASCEND_INSTALL_PATH:-/usr/local/Ascend}"
if [ -f "$ASCEND_INSTALL_PATH/ascend-toolkit/set_env.sh" ]; then
    set +u # it reads variables that need not be set
    # shellcheck source=/dev/null
    . "$ASCEND_INSTALL_PATH/ascend-toolkit/set_env.sh"
    set -u
else
    nnae="$ASCEND_INSTALL_PATH/nnae/latest"
    export LD_LIBRARY_PATH="$nnae/fwkacllib/lib64:$ASCEND_INSTALL_PATH/driver/lib64/common:\
$ASCEND_INSTALL_PATH/driver/lib64/driver:$ASCEND_INSTALL_PATH/add-ons:${LD_LIBRARY_PATH:-}"
    export PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}$nnae/opp/op_impl/built-in/ai_core/tbe:\
$nnae/fwkacllib/python/site-packages"
    export PATH="$PATH:$nnae/fwkacllib/ccec_compiler/bin"
    export ASCEND_OPP_PATH="${ASCEND_OPP_PATH:-$nnae/opp}"
fi
export HCCL_CONNECT_TIMEOUT="${HCCL_CONNECT_TIMEOUT:-600}" # seconds that the ranks wait for one another at the start
export HCCL_EXEC_TIMEOUT="${HCCL_EXEC_TIMEOUT:-1800}"      # seconds that they wait within a collective
export HCCL_WHITELIST_DISABLE="${HCCL_WHITELIST_DISABLE:-1}" # 1: ranks need no white list of each other's addresses
export ASCEND_GLOBAL_LOG_LEVEL="${ASCEND_GLOBAL_LOG_LEVEL:-3}" # 0 debug, 1 info, 2 warning, 3 error
export ASCEND_SLOG_PRINT_TO_STDOUT="${ASCEND_SLOG_PRINT_TO_STDOUT:-0}" # 0: CANN's log goes to its files
export GLOG_v="${GLOG_v:-2}" # for MindSpore: 0 debug, 1 info, 2 warning, 3 error
# The cards to use, in ascending order. Unset means all.
# export ASCEND_RT_VISIBLE_DEVICES=0,1,2,3
# Slurm lists a job's cards as GPUs, but does not set ASCEND_RT_VISIBLE_DEVICES itself.
slurm_cards="${SLURM_STEP_GPUS:-${SLURM_JOB_GPUS:-}}"
if [ -z "${ASCEND_RT_VISIBLE_DEVICES:-}" ] && [ -n "$slurm_cards" ]; then
    export ASCEND_RT_VISIBLE_DEVICES="$slurm_cards"
fi
""",
    "mlu": """\
# Cambricon: Neuware's tools and libraries.
export NEUWARE_HOME="${NEUWARE_HOME:-/usr/local/neuware}"
export PATH="$NEUWARE_HOME/bin:$PATH"
export LD_LIBRARY_PATH="$NEUWARE_HOME/lib64:${LD_LIBRARY_PATH:-}"
# By default CNCL pools memory for one communicator; training and its evaluation may have several.
export CNCL_MEM_POOL_MULTI_CLIQUE_ENABLE="${CNCL_MEM_POOL_MULTI_CLIQUE_ENABLE:-1}"
# The cards to use. Unset means all.
# export MLU_VISIBLE_DEVICES=0,1,2,3
# Slurm lists a job's cards as GPUs, but does not set MLU_VISIBLE_DEVICES itself.
slurm_cards="${SLURM_STEP_GPUS:-${SLURM_JOB_GPUS:-}}"
if [ -z "${MLU_VISIBLE_DEVICES:-}" ] && [ -n "$slurm_cards" ]; then
    export MLU_VISIBLE_DEVICES="$slurm_cards"
fi
""",
    "cuda": """\
# NVIDIA: nothing is required, and Slurm sets CUDA_VISIBLE_DEVICES itself.
# 1: a collective that fails or times out ends its process, which would hang otherwise.
export TORCH_NCCL_ASYNC_ERROR_HANDLING="${TORCH_NCCL_ASYNC_ERROR_HANDLING:-1}"
export NCCL_DEBUG="${NCCL_DEBUG:-WARN}" # NCCL prints warnings, such as the cause of a failure
# The cards to use. Unset means all.
# export CUDA_VISIBLE_DEVICES=0,1,2,3
""",
    "cpu": """\
# The CPU: nothing needs to be set. `viaduct launch` divides the cores among the ranks unless OMP_NUM_THREADS is set.
""",
}
# Lines that add the card's device files and tools to the bash array `options`, the arguments of `docker run`.
MOUNTS: dict[str, str] = {
    "npu": """\
for device in /dev/davinci[0-9]* /dev/davinci_manager /dev/devmm_svm /dev/hisi_hdc; do
    if [ -e "$device" ]; then options+=("--device=$device"); fi
done
for path in /usr/local/Ascend/driver /usr/local/Ascend/add-ons /usr/local/dcmi /usr/local/bin/npu-smi \\
    /usr/local/sbin/npu-smi /etc/ascend_install.info /etc/hccn.conf; do
    if [ -e "$path" ]; then options+=(-v "$path:$path:ro"); fi
done
""",
    "mlu": """\
for device in /dev/cambricon_dev[0-9]* /dev/cambricon_ipcm[0-9]* /dev/cambricon_ctl; do
    if [ -e "$device" ]; then options+=("--device=$device"); fi
done
if [ -e /usr/bin/cnmon ]; then options+=(-v /usr/bin/cnmon:/usr/bin/cnmon:ro); fi
""",
    "cuda": "options+=(--gpus all)\n",
    "cpu": "",
}
# Lines that set up the TensorFlow 1 adapter of the NPU, after ENVIRONMENTS.
TF_PLUGIN = """\
# The TensorFlow adapter (npu_bridge) and hccl. Without a set_env.sh, the paths are those of Ascend's migration guide.
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
export JOB_ID="${JOB_ID:-10087}" # NPUEstimator refuses to start without one; 10087 is the example of that guide
# The chip for which graphs are compiled, as `npu-smi info` names it: Ascend910, Ascend910B1 and so on.
export SOC_VERSION="${SOC_VERSION:-Ascend910}"
"""
