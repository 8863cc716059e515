"""Report calls of other libraries that choose CUDA unless they get a device.

    import torch
    from timm.data import create_dataset, create_loader
    loader = create_loader(create_dataset("", "images"), (3, 224, 224), 32)

`create_loader` of timm moves batches to `torch.device("cuda")` by default. Other libraries take CUDA if there is one,
else the CPU, so that a script would train on the host without an error. Whether a library accepts the card depends on
its release, so such a call needs manual review. A switch for CUDA that is on, such as `use_gpu=True`, is reported in
calls of every library. Other rules edit device strings.
"""

from __future__ import annotations

import ast
import sys

from viaduct.migration.lookups import imported_names, is_reported, mark_once
from viaduct.migration.predicates import is_constant, is_in_annotation, is_in_instance_check, is_literal_in, is_none
from viaduct.migration.rule import ALL_TARGETS, Rule, Site
from viaduct.migration.rules.torch._collectives import SETTINGS_CLASSES, has_unpacked_key
from viaduct.migration.rules.torch._devices import is_of_other_library

rule = Rule(
    __name__, target_needs="device_strings", spec_rows=("6",), category="report", targets=ALL_TARGETS, runs_last=True
)

# Call -> the parameter that has a CUDA device or a switch for CUDA as default, and its position (-1: keyword only).
CUDA_DEFAULTS = {
    **{f"timm.data.{module}create_loader": ("device", -1) for module in ("", "loader.")},
    **{f"timm.data.{module}create_naflex_loader": ("device", -1) for module in ("", "naflex_loader.")},
    "timm.data.loader.PrefetchLoader": ("device", 4),
    "timm.data.naflex_loader.NaFlexPrefetchLoader": ("device", 4),
    "timm.data.random_erasing.RandomErasing": ("device", 9),
    "timm.data.naflex_random_erasing.PatchRandomErasing": ("device", -1),
    **{f"timm.utils.{module}NativeScaler": ("device", 0) for module in ("", "cuda.")},
    **{f"timm.utils.{module}init_distributed_device_so": ("device", 0) for module in ("", "distributed.")},
    **{f"torchsummary.{module}summary": ("device", 3) for module in ("", "torchsummary.")},
    **{f"torchsummary.{module}summary_string": ("device", 3) for module in ("", "torchsummary.")},
    **{f"torchreid.data.{kind}DataManager": ("use_gpu", -1) for kind in ("Image", "Video")},
    **{f"torchreid.data.datamanager.{kind}DataManager": ("use_gpu", -1) for kind in ("Image", "Video")},
    **{f"torchreid.engine.{kind}Engine": ("use_gpu", -1) for kind in ("ImageSoftmax", "ImageTriplet")},
    **{f"torchreid.engine.{kind}Engine": ("use_gpu", -1) for kind in ("VideoSoftmax", "VideoTriplet")},
    "torchreid.models.build_model": ("use_gpu", 4),
    "torchreid.losses.CrossEntropyLoss": ("use_gpu", 2),
    **{f"torchreid.utils.{module}FeatureExtractor": ("device", 6) for module in ("", "feature_extractor.")},
    "facexlib.detection.init_detection_model": ("device", 2),
    "facexlib.parsing.init_parsing_model": ("device", 2),
    "easyocr.Reader": ("gpu", 1),
    **{f"detectron2.model_zoo.{module}get": ("device", 2) for module in ("", "model_zoo.")},
}
STABLE_BASELINES = (
    *(f"stable_baselines3.{name}" for name in ("A2C", "DDPG", "DQN", "PPO", "SAC", "TD3")),
    *(f"sb3_contrib.{name}" for name in ("ARS", "CrossQ", "MaskablePPO", "QRDQN", "RecurrentPPO", "TQC", "TRPO")),
)
# Call -> parameter for the device and its position. By default it is CUDA, or the CPU on a machine without CUDA.
HOST_WITHOUT_CUDA = {
    **{f"{name}{method}": ("device", -1) for name in STABLE_BASELINES for method in ("", ".load")},
    "stable_baselines3.common.utils.get_device": ("device", 0),
    **{f"clip.{module}load": ("device", 1) for module in ("", "clip.")},
    "whisper.load_model": ("device", 1),
    **{f"composer.{module}Trainer": ("device", -1) for module in ("", "trainer.")},
}
# Calls that choose CUDA or the CPU likewise and take no device. Of ultralytics' models, only the methods take one.
CALLS_WITHOUT_PARAMETER = (
    *(f"ignite.distributed.{module}{name}" for module in ("", "auto.") for name in ("auto_model", "auto_dataloader")),
    *("ignite.distributed.device", "ignite.distributed.utils.device"),
    *(f"ultralytics.{name}" for name in ("YOLO", "YOLOWorld", "YOLOE", "RTDETR", "SAM", "FastSAM", "NAS")),
    *(f"mmcv.parallel.{name}" for name in ("MMDataParallel", "MMDistributedDataParallel")),
    *("catalyst.dl.SupervisedRunner", "catalyst.utils.get_device", "catalyst.dl.utils.get_device"),
    *("spacy.require_gpu", "spacy.prefer_gpu"),
)
# Names of other libraries that work with CUDA only.
CUDA_FEATURES = (
    *("cv2.cuda.*", "cv2.cuda_GpuMat", "cv2.dnn.DNN_BACKEND_CUDA", "cv2.dnn.DNN_TARGET_CUDA", "decord.gpu"),
    *(f"faiss.{name}" for name in ("StandardGpuResources", "index_cpu_to_gpu", "index_cpu_to_all_gpus")),
)
# Library that chooses CUDA or the CPU likewise -> function or variable that sets another device.
DEVICE_SETTINGS = {"fastai": "default_device", "flair": "flair.device"}
FALLING_BACK = {*HOST_WITHOUT_CUDA, *CALLS_WITHOUT_PARAMETER, *DEVICE_SETTINGS}
# Call -> setting that would choose another device, and the text by which a file shows that it sets it.
SETTINGS = {
    "detectron2.config.get_cfg": ("MODEL.DEVICE", "MODEL.DEVICE"),
    "detectron2.config.config.get_cfg": ("MODEL.DEVICE", "MODEL.DEVICE"),
    "timm.utils.init_distributed_device": ("args.device", "--device"),
    "timm.utils.distributed.init_distributed_device": ("args.device", "--device"),
}
CUDA_SWITCHES = ("use_gpu", "use_cuda", "gpu", "cuda", "gpus", "gpu_id", "gpu_ids", "use_gpus", "num_gpus", "n_gpus")
OFF = (False, None, 0, -1, "", "0")  # values with which a switch leaves CUDA alone


@rule.use(*CUDA_DEFAULTS, *HOST_WITHOUT_CUDA)
def report_default(site: Site) -> None:
    """Report a call without the argument that replaces the default device, and a function that is passed on."""
    parameter, position = (CUDA_DEFAULTS | HOST_WITHOUT_CUDA)[site.name]
    if lacks_argument(site, parameter, position) and not is_without_prefetcher(site):
        report_choice(site, parameter)


@rule.use(*CALLS_WITHOUT_PARAMETER, *CUDA_FEATURES)
def report_first_use(site: Site) -> None:
    """Report the first use of a name in a file."""
    if mark_once(site, "choice", site.name):
        report_choice(site)


@rule.call(*SETTINGS)
def report_missing_setting(site: Site) -> None:
    setting, text = SETTINGS[site.name]
    if text not in site.source.text:
        report_choice(site, setting)


@rule.node(ast.Import, ast.ImportFrom, only_if_file_contains=DEVICE_SETTINGS)
def report_library(site: Site) -> None:
    """Report the first import of a library with a default device, in a file that does not mention its setting."""
    for library, setting in DEVICE_SETTINGS.items():
        imports = [
            node
            for node in site.source.imports
            if any(f"{name}.".startswith(f"{library}.") for name in imported_names(node))
        ]
        if imports[:1] == [site.node] and setting not in site.source.text:
            report_choice(Site(rule, site.file, site.node, library), setting)


@rule.node(ast.keyword, only_if_file_contains=CUDA_SWITCHES)
def report_switch(site: Site) -> None:
    """Report a switch for CUDA that is on in the call of another library."""
    call, value = site.source.parents[site.node], site.node.value
    if site.node.arg not in CUDA_SWITCHES or not isinstance(call, ast.Call):
        return
    is_off = isinstance(value, ast.Constant) and value.value in OFF
    name = site.qualified_name(call.func) or ""
    if not is_off and is_of_foreign_library(site, name) and not is_reported(site):
        text = site.text_of(site.node)
        site.request_review(
            f"`{text}` chooses CUDA in {name}: check how this library chooses the card",
            zh=f"`{text}` 使 {name} 使用 CUDA:请确认该库如何选择加速卡",
        )


def lacks_argument(site: Site, parameter: str, position: int) -> bool:
    """Return True for a call that leaves the choice of CUDA, and for a function that is passed on without being called.

    The argument is absent, None, or a value with the meaning of the default: True for a switch, "auto" for a device.
    """
    parent = site.source.parents[site.node]
    if not isinstance(site.node, ast.Call):
        is_type = is_in_annotation(site.source, site.node) or is_in_instance_check(site.source, site.node)
        return not is_type and not isinstance(parent, ast.Assign | ast.Attribute)  # uses of that name are followed
    value = site.argument(parameter, position)
    if value is None:
        return not has_unpacked_key(site, parameter)
    return is_none(value) or is_constant(value, True) or is_literal_in(value, "auto")


def is_without_prefetcher(site: Site) -> bool:
    """Return True for `create_loader(…, use_prefetcher=False)`, which leaves the batches on the host."""
    return isinstance(site.node, ast.Call) and is_constant(site.argument("use_prefetcher"), False)


def is_of_foreign_library(site: Site, name: str) -> bool:
    """Return False for functions of torch, Python, this project, libraries with other devices, and settings classes.

    ray starts the processes that train, so its `num_gpus` counts.
    """
    root = name.partition(".")[0]
    own = {site.file.names.module.partition(".")[0], *site.file.project.own_module_names}
    is_excluded = root in {"torch", *sys.stdlib_module_names, *own} or name in SETTINGS_CLASSES
    return "." in name and not is_excluded and (root == "ray" or not is_of_other_library(name))


def report_choice(site: Site, parameter: str = "") -> None:
    """Report a name that chooses CUDA; `parameter` is the argument or setting that would choose another device."""
    if site.name.partition(".")[0] in site.file.project.own_module_names:
        return  # the library belongs to the project: its files are migrated
    choice, zh = "CUDA", "CUDA"
    if site.name in FALLING_BACK:
        choice, zh = "CUDA, or the CPU if there is none", "CUDA(没有时为 CPU)"
    names, last = " and ".join(card.title for card in site.cards), site.name.rpartition(".")[2]
    remedy = f"set {parameter}, if this release accepts the device" if parameter else "see what this release supports"
    remedy_zh = f"请设置 {parameter}(若所用版本支持该设备)" if parameter else "请确认所用版本的支持情况"
    site.request_review(
        f"{last} chooses {choice}: for the {names} {remedy}",
        zh=f"{last} 选择 {zh}:对于 {names},{remedy_zh}",
        risk="high",
    )
