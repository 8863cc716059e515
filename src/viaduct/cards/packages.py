"""Packages for NVIDIA cards, and their support or replacement on the accelerators.

Only replacements published by a vendor or the package's authors are named. A package is recognised by the modules that
a script imports, and by the names of distributions in requirements or a Dockerfile.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache

from viaduct.cards import MLU, NPU
from viaduct.cards.limits import Bilingual, Risk

NO_REPLACEMENT: Bilingual = ("no replacement known", "尚未发现替代品")


@dataclass(frozen=True)
class Package:
    """A package for NVIDIA cards and its replacements."""

    name: str
    purpose: Bilingual
    imports: tuple[str, ...] = ()  # its top-level modules, or dotted ones: nvidia.dali
    distributions: tuple[str, ...] = ()  # names, or patterns of them: cupy-cuda* matches cupy-cuda12x
    npu: Bilingual = NO_REPLACEMENT  # replacement on the NPU, or the package's own support for it
    mlu: Bilingual = NO_REPLACEMENT
    risk: Risk = "high"  # risk of a failure if nothing is changed; low: only parts of the package need NVIDIA cards
    has_own_rule: bool = False  # a migration rule of its own reports its imports, instead of `torch.packages`


# Texts that several packages share: replacements, then purposes.
ATTENTION: Bilingual = (
    "torch.nn.functional.scaled_dot_product_attention, or torch_npu.npu_fusion_attention",
    "torch.nn.functional.scaled_dot_product_attention 或 torch_npu.npu_fusion_attention",
)
SDPA: Bilingual = (
    "torch.nn.functional.scaled_dot_product_attention; Cambricon's own operators are in torch_mlu_ops",
    "torch.nn.functional.scaled_dot_product_attention;寒武纪自有算子库为 torch_mlu_ops",
)
NUMPY: Bilingual = (
    "no replacement known; numpy on the host, or torch's own tensors",
    "尚未发现;请使用 host 侧 numpy 或 torch 张量",
)
LOADER: Bilingual = (
    "no replacement known; torch.utils.data.DataLoader, decoding on the host",
    "尚未发现;请使用 torch.utils.data.DataLoader 在 host 侧解码",
)
MMCV: Bilingual = (
    "supported by MMCV itself when built from source: see its list of operators",
    "MMCV 源码编译后原生支持,见其算子列表",
)
ARRAYS: Bilingual = ("arrays and kernels on the card", "GPU 数组与核函数")
KERNELS: Bilingual = ("CUDA kernels of its own", "自带 CUDA 核函数")

HOST_PACKAGES = {
    "absl", "addict", "aim", "albumentations", "attr", "attrs", "av", "boto3", "botocore", "cachetools", "captum",
    "certifi", "clearml", "click", "cloudpickle", "colorama", "colorlog", "comet_ml", "configargparse",
    "cryptography", "cv2", "cycler", "dacite", "datasets", "dateutil", "deepdish", "dill", "distutils", "docker",
    "docopt", "docutils", "easydict", "einops", "etils", "evaluate", "fastcore", "fastprogress", "filelock", "fire",
    "fsspec", "ftfy", "future", "fvcore", "gdown", "gflags", "gin", "git", "google", "graphviz", "gym", "gymnasium",
    "h5py", "huggingface_hub", "hydra", "hyperopt", "imageio", "imgaug", "imghdr", "imp", "importlib_metadata",
    "iopath", "ipdb", "IPython", "ipywidgets", "joblib", "jsonargparse", "jsonlines", "lmdb", "logbook", "loguru",
    "lxml", "matplotlib", "ml_collections", "mlflow", "moviepy", "mpl_toolkits", "msgpack", "neptune", "nltk", "nose",
    "numpy", "omegaconf", "onnx", "optuna", "orjson", "packaging", "pandas", "parameterized", "pathos", "PIL", "pip",
    "pkg_resources", "plotly", "portalocker", "prettytable", "progress", "progressbar", "psutil", "pyarrow",
    "pycocotools", "pydantic", "pydicom", "pydot", "pygments", "pympler", "pytest", "pytz", "randaugment", "regex",
    "requests", "rich", "ruamel", "sacred", "safetensors", "scipy", "seaborn", "sentencepiece", "setproctitle",
    "setuptools", "simplejpeg", "simplejson", "six", "skimage", "sklearn", "sphinx", "statsmodels", "submitit",
    "swanlab", "sympy", "tabulate", "tensorboard", "tensorboard_logger", "tensorboardX", "termcolor", "texttable",
    "thop", "tifffile", "tokenizers", "toml", "tomli", "torchnet", "tqdm", "typer", "typing_extensions", "ujson",
    "visdom", "wandb", "webdataset", "wget", "yacs", "yaml", "zarr", "zmq",
}  # fmt: skip
"""Modules of widely used packages that do not choose a device for a network."""
PACKAGES = (
    Package(
        "triton",
        purpose=("kernels written in Python", "以 Python 编写的核函数"),
        imports=("triton",),
        distributions=("triton",),
        npu=("the package triton-ascend, in its place", "可用 triton-ascend 替代"),
        mlu=("Cambricon's own build of Triton, in its place", "可用寒武纪版本的 Triton 替代"),
    ),
    Package(
        "flash_attn",
        purpose=("attention kernels", "注意力核函数"),
        imports=("flash_attn",),
        distributions=("flash-attn",),
        npu=(
            f"{ATTENTION[0]}; the package flash-attn-npu has the same functions",
            f"{ATTENTION[1]};另有 flash-attn-npu",
        ),
        mlu=SDPA,
    ),
    Package(
        "xformers",
        purpose=("attention kernels", "注意力核函数"),
        imports=("xformers",),
        distributions=("xformers",),
        npu=ATTENTION,
        mlu=SDPA,
    ),
    Package(
        "NVIDIA DALI",
        purpose=("reads and decodes on the card", "在 GPU 上读取与解码"),
        imports=("nvidia.dali",),
        distributions=("nvidia-dali*",),
        npu=LOADER,
        mlu=LOADER,
    ),
    Package(
        "cupy", purpose=ARRAYS, imports=("cupy", "cupyx"), distributions=("cupy", "cupy-cuda*"), npu=NUMPY, mlu=NUMPY
    ),
    Package("pycuda", purpose=ARRAYS, imports=("pycuda",), distributions=("pycuda",)),
    Package("numba.cuda", purpose=("kernels compiled for CUDA", "编译为 CUDA 的核函数"), imports=("numba.cuda",)),
    Package(
        "cuDF / cuML",
        purpose=ARRAYS,
        imports=("cudf", "cuml", "cugraph", "rmm"),
        distributions=("cudf-cu*", "cuml-cu*"),
        npu=NUMPY,
        mlu=NUMPY,
    ),
    Package(
        "apex",
        purpose=("fused optimizers, norms and mixed precision", "融合优化器、归一化与混合精度"),
        imports=("apex",),
        distributions=("apex",),
        npu=("Ascend's own build of apex", "昇腾自带的 apex"),
        mlu=("none; torch.mlu.amp for mixed precision", "无;混合精度请使用 torch.mlu.amp"),
        has_own_rule=True,
    ),
    Package(
        "apex's extensions",
        purpose=KERNELS,
        imports=("amp_C", "apex_C", "fused_layer_norm_cuda", "syncbn", "scaled_masked_softmax_cuda"),
    ),
    Package(
        "bitsandbytes",
        purpose=("8-bit optimizers and quantization", "8 位优化器与量化"),
        imports=("bitsandbytes",),
        distributions=("bitsandbytes",),
        npu=("a beta, bitsandbytes-npu-beta; not of the project itself", "测试版 bitsandbytes-npu-beta,非官方发布"),
    ),
    Package(
        "deepspeed",
        purpose=("distributed training", "分布式训练"),
        imports=("deepspeed",),
        distributions=("deepspeed",),
        npu=(
            "supported by DeepSpeed itself (its npu accelerator); its fused CUDA operators are not",
            "DeepSpeed 原生支持 NPU(其融合 CUDA 算子除外)",
        ),
        mlu=(
            "supported by DeepSpeed itself (its mlu accelerator); its fused CUDA operators are not",
            "DeepSpeed 原生支持 MLU(其融合 CUDA 算子除外)",
        ),
        risk="low",
    ),
    Package(
        "mmcv",
        purpose=("operators for vision", "视觉算子"),
        imports=("mmcv",),
        distributions=("mmcv", "mmcv-full"),
        npu=MMCV,
        mlu=MMCV,
        risk="low",
    ),
    Package(
        "transformer_engine",
        purpose=KERNELS,
        imports=("transformer_engine",),
        distributions=("transformer-engine",),
        npu=("Ascend publishes TransformerEngineNPU", "昇腾发布有 TransformerEngineNPU"),
    ),
    Package(
        "faiss-gpu",
        purpose=("search on the card", "GPU 向量检索"),
        distributions=("faiss-gpu", "faiss-gpu-cu*"),
        npu=("no replacement known; faiss-cpu on the host", "尚未发现;请在 host 侧使用 faiss-cpu"),
        mlu=("no replacement known; faiss-cpu on the host", "尚未发现;请在 host 侧使用 faiss-cpu"),
    ),
    Package(
        "TensorRT",
        purpose=("NVIDIA's inference engine", "NVIDIA 的推理引擎"),
        imports=("tensorrt", "torch_tensorrt", "torch2trt"),
        distributions=("tensorrt", "torch-tensorrt", "torch2trt"),
        npu=("CANN's own offline compiler (ATC)", "CANN 的离线编译工具 ATC"),
        mlu=("Cambricon's own inference engine (MagicMind)", "寒武纪推理引擎 MagicMind"),
    ),
    Package(
        "pynvml",
        purpose=("asks NVIDIA's driver", "查询 NVIDIA 驱动"),
        imports=("pynvml", "py3nvml", "nvidia_smi", "nvsmi", "nvitop", "GPUtil", "gpustat"),
        distributions=("pynvml", "nvidia-ml-py", "nvidia-ml-py3", "py3nvml", "nvsmi", "nvitop", "gputil", "gpustat"),
        npu=(f"the tool `{NPU.monitor_command}`", f"命令行工具 `{NPU.monitor_command}`"),
        mlu=(f"the tool `{MLU.monitor_command}`", f"命令行工具 `{MLU.monitor_command}`"),
        risk="medium",
    ),
    Package(
        "nvtx",
        purpose=("marks for NVIDIA's profiler", "NVIDIA profiler 打点"),
        imports=("nvtx",),
        distributions=("nvtx",),
        npu=("torch.npu.mstx", "torch.npu.mstx"),
        mlu=("torch.mlu.cnpx", "torch.mlu.cnpx"),
        risk="medium",
    ),
    Package(
        "PyG's extensions",
        purpose=KERNELS,
        imports=("torch_scatter", "torch_sparse", "torch_cluster", "torch_spline_conv"),
        distributions=("torch-scatter", "torch-sparse", "torch-cluster", "torch-spline-conv"),
    ),
    Package(
        "libraries of CUDA kernels",
        purpose=KERNELS,
        imports=(
            *("MinkowskiEngine", "spconv", "torchsparse", "kaolin", "nvdiffrast", "tinycudann", "gsplat"),
            *("diff_gaussian_rasterization", "simple_knn", "mamba_ssm", "causal_conv1d"),
        ),
        distributions=(
            *("minkowskiengine", "spconv-cu*", "torchsparse", "kaolin", "nvdiffrast", "gsplat"),
            *("mamba-ssm", "causal-conv1d"),
        ),
    ),
    Package(
        "horovod",
        purpose=("distributed training over NCCL and MPI", "基于 NCCL 与 MPI 的分布式训练"),
        imports=("horovod.torch",),
        npu=(f"torch.distributed with {NPU.backend}", f"torch.distributed 与 {NPU.backend}"),
        mlu=(f"torch.distributed with {MLU.backend}", f"torch.distributed 与 {MLU.backend}"),
    ),
    Package(
        "CUDA's own libraries",
        purpose=("CUDA, cuDNN, NCCL", "CUDA、cuDNN、NCCL"),
        imports=("cuda",),
        distributions=(
            "nvidia-*-cu*",
            "cuda-python",
            "cuda-toolkit",
            "cudatoolkit",
            "cudatoolkit-dev",
            "cudnn",
            "pytorch-cuda",
            "nccl",
        ),
        npu=("CANN, with HCCL", "CANN 与 HCCL"),
        mlu=("Neuware, with CNNL and CNCL", "Neuware(CNNL、CNCL)"),
        risk="medium",
    ),
)


@cache
def map_packages_by_import() -> dict[str, Package]:
    return {name: package for package in PACKAGES for name in package.imports}


def find_package_of_import(name: str) -> Package | None:
    """Return the package of a dotted module name, by its longest prefix in the table; else None."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        package = map_packages_by_import().get(".".join(parts[:length]))
        if package is not None:
            return package
    return None


def find_package_of_distribution(name: str) -> Package | None:
    """Return the package of a distribution name in any spelling; else None."""
    normalized = re.sub(r"[-_.]+", "-", name).lower()
    return next(
        (package for package in PACKAGES if any(fnmatchcase(normalized, entry) for entry in package.distributions)),
        None,
    )


def describe_package(package: Package, target: str, name: str = "") -> Bilingual:
    """Return the sentence about a package: its purpose and its replacement on `npu`, `mlu` or, for `any`, on both.

    `name`: the name as the user wrote it, if it differs from the package's.
    """
    (npu, npu_zh), (mlu, mlu_zh) = package.npu, package.mlu
    english, chinese = {
        "npu": (f"on the NPU: {npu}", f"NPU 上:{npu_zh}"),
        "mlu": (f"on the MLU: {mlu}", f"MLU 上:{mlu_zh}"),
        "any": (f"NPU: {npu}; MLU: {mlu}", f"NPU:{npu_zh};MLU:{mlu_zh}"),
    }[target]
    shown = name or package.name
    relation, relation_zh = ("has parts", "部分") if package.risk == "low" else ("is", "")
    return (
        f"{shown} {relation} for NVIDIA cards ({package.purpose[0]}); {english}",
        f"{shown} {relation_zh}面向 NVIDIA 设备({package.purpose[1]});{chinese}",
    )
