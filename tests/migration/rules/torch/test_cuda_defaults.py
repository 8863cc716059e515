from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says

LOADER = "import torch\nfrom timm.data import create_loader\n"


@pytest.mark.parametrize(
    "text",
    [
        "create_loader(data, 224, 32, device=device)\n",
        "create_loader(data, 224, 32, use_prefetcher=False)\n",
        "make = create_loader\n",
        "settings = dict(device=device)\ncreate_loader(data, 224, 32, **settings)\n",
        "from timm.data.loader import PrefetchLoader\ndef show(loader: PrefetchLoader) -> None: ...\n",
        "from timm.data.loader import PrefetchLoader\nis_prefetched = isinstance(loader, PrefetchLoader)\n",
        "import types\nsettings = types.SimpleNamespace(gpu=0)\n",
        "def run(gpu=1):\n    pass\nrun(gpu=0)\n",
        "import easyocr\nreader = easyocr.Reader(['en'], gpu=False)\n",
        "import xgboost\nxgboost.train(x, gpu_id=0)\n",
    ],
)
def test_a_call_with_a_device_and_a_setting_of_the_project_are_left_alone(text: str) -> None:
    check_noop("cuda_defaults", LOADER + text)


def test_a_module_of_the_project_with_that_name_is_left_alone() -> None:
    others = {"fastai/__init__.py": "import torch\n", "timm/data.py": "import torch\n"}
    check_noop("cuda_defaults", f"{LOADER}import fastai\ncreate_loader(data)\n", others=others)
    check_noop("cuda_defaults", "import torch\nfrom engine import run\nrun(gpu=1)\n", others={"engine.py": "run = 1\n"})


@pytest.mark.parametrize("to", ["npu", "mlu", "any"])
@pytest.mark.parametrize(
    "text",
    [
        "create_loader(data, 224, 32)\n",
        "create_loader(data, 224, 32, **settings)\n",
        "import timm\ntimm.data.create_loader(data, 224, 32)\n",
        "from functools import partial\nmake = partial(create_loader, batch_size=32)\n",
        "from timm.data.loader import PrefetchLoader\nPrefetchLoader(loader)\n",
        "from timm.utils import NativeScaler\nscaler = NativeScaler()\n",
        "from timm.utils import init_distributed_device\ninit_distributed_device(args)\n",
        "from torchsummary import summary\nsummary(model, (3, 32, 32))\n",
        "import torchreid\nm = torchreid.models.build_model('osnet', 10)\n",
        "import torchreid\nm = torchreid.models.build_model('osnet', 10, use_gpu=True)\n",
        "from easyocr import Reader\nreader = Reader(['en'])\n",
        "from detectron2.config import get_cfg\ncfg = get_cfg()\n",
    ],
)
def test_a_call_whose_default_device_is_cuda_needs_manual_review(text: str, to: str) -> None:
    check_says("cuda_defaults", LOADER + text, "manual", "chooses CUDA", to=to)


@pytest.mark.parametrize(
    "text",
    [
        "from stable_baselines3 import PPO\nmodel = PPO('MlpPolicy', env)\n",
        "from stable_baselines3 import PPO\nmodel = PPO.load(path, device='auto')\n",
        "import clip\nmodel, _ = clip.load('ViT-B/32')\n",
        "import whisper\nmodel = whisper.load_model('base')\n",
        "import ignite.distributed as idist\nmodel = idist.auto_model(model)\n",
        "from ultralytics import YOLO\nmodel = YOLO('yolov8n.pt')\n",
        "from fastai.vision.all import *\n",
        "import flair\n",
    ],
)
def test_a_call_that_trains_on_the_host_without_cuda_needs_manual_review(text: str) -> None:
    check_says("cuda_defaults", f"import torch\n{text}", "manual", "the CPU if there is none")


def test_a_switch_for_cuda_in_a_library_needs_manual_review() -> None:
    text = "import torch\nfrom pytorch_grad_cam import GradCAM\ncam = GradCAM(model, use_cuda=True)\n"
    check_says("cuda_defaults", text, "manual", "`use_cuda=True` chooses CUDA in pytorch_grad_cam.GradCAM")


def test_settings_that_name_the_device_elsewhere_in_the_file_are_enough() -> None:
    text = "import torch\nfrom detectron2.config import get_cfg\ncfg = get_cfg()\ncfg.MODEL.DEVICE = 'npu'\n"
    check_noop("cuda_defaults", text)
    check_noop("cuda_defaults", "import flair\nimport torch\nflair.device = torch.device('npu')\n")


@pytest.mark.parametrize(
    "text",
    [
        "import cv2\nx = cv2.cuda.resize(x, (2, 2))\n",
        "import cv2\nnet.setPreferableBackend(cv2.dnn.DNN_BACKEND_CUDA)\n",
        "import faiss\nresources = faiss.StandardGpuResources()\n",
        "import ray\n@ray.remote(num_gpus=1)\ndef train(): ...\n",
    ],
)
def test_a_name_that_works_with_cuda_only_needs_manual_review(text: str) -> None:
    check_says("cuda_defaults", f"import torch\n{text}", "manual", "chooses CUDA")
