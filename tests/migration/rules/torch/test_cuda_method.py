"""`.cuda()` of tensors and modules, and other methods and attributes called cuda."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrate_source

HELPER = "from accelerator_device import accelerator\n"


def check_for_any_card(rule: str, before: str, after: str) -> None:
    check_rewrite(rule, f"import torch\n{before}\n", f"import torch\n{HELPER}{after}\n", to="any")


HEAD = "import torch\nimport torch_npu\n"
BATCH = "class Batch:\n    def cuda(self, where=None):\n        return self\n"


@pytest.mark.parametrize(
    "source",
    [
        "if args.cuda:\n    pass\n",
        "torch.cuda\n",
        "names = {'cuda': 1}\nnames['cuda']\n",
        "# x.cuda()\ntext = 'x.cuda()'\n",
        "import cupy\ncupy.array(1).cuda()\n",
        "from numba import cuda\ncuda.jit()\n",
        BATCH + "batch = Batch()\nbatch.cuda()\nBatch().cuda(0)\n",
        BATCH + "class Small(Batch):\n    pass\nSmall().cuda()\n",
        BATCH + "def make():\n    return Batch()\nmake().cuda()\n",
        BATCH + "class Two(Batch):\n    def cuda(self):\n        return super().cuda()\n",
        "class Net(torch.nn.Module):\n    def cuda(self):\n        pass\n    def go(self):\n        self.cuda()\n",
        "hasattr(torch, 'cuda')\n",
    ],
)
def test_methods_of_other_libraries_stay(source: str) -> None:
    check_noop("cuda_method", HEAD + source)


def test_files_without_torch_stay() -> None:
    check_noop("cuda_method", "model.cuda()\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("model.cuda()", "model.npu()"),
        ("x = x.cuda(args.gpu, non_blocking=True)  # keep", "x = x.npu(args.gpu, non_blocking=True)  # keep"),
        ("y = (x\n     .cuda())", "y = (x\n     .npu())"),
        ("z = [t.cuda() for t in (a, b)]", "z = [t.npu() for t in (a, b)]"),
        ("f = lambda storage, loc: storage.cuda(1)", "f = lambda storage, loc: storage.npu(1)"),
        ("torch.Tensor.cuda(x)", "torch.Tensor.npu(x)"),
        ("xs = map(torch.Tensor.cuda, xs)", "xs = map(torch.Tensor.npu, xs)"),
        ("net.cuda().eval().cuda()", "net.npu().eval().npu()"),
    ],
)
def test_the_method_becomes_the_cards(before: str, after: str) -> None:
    check_rewrite("cuda_method", HEAD + before + "\n", HEAD + after + "\n")
    mlu = "import torch\nimport torch_mlu\n"
    check_rewrite("cuda_method", mlu + before + "\n", mlu + after.replace("npu", "mlu") + "\n", to="mlu")


@pytest.mark.parametrize("receiver", ["torch.zeros(2)", "torch.nn.Linear(2, 2)", "Net()", "self"])
def test_known_tensors_and_modules_are_moved_beside_a_class_with_its_own_method(receiver: str) -> None:
    source = HEAD + BATCH + "class Net(torch.nn.Module):\n    def go(self):\n        {}.cuda()\n"
    check_rewrite(
        "cuda_method", source.format(receiver), source.format(receiver).replace(f"{receiver}.cuda", f"{receiver}.npu")
    )


def test_moves_in_the_projects_own_method_are_replaced() -> None:
    check_rewrite(
        "cuda_method",
        HEAD + "class Batch:\n    def cuda(self):\n        self.x = self.x.cuda()\n        return self\n",
        HEAD + "class Batch:\n    def cuda(self):\n        self.x = self.x.npu()\n        return self\n",
    )


def test_a_module_from_another_file_is_known() -> None:
    net = "import torch\nclass Net(torch.nn.Module):\n    pass\n" + BATCH
    before = HEAD + "from net import Net, Batch\nNet().cuda()\nBatch().cuda()\n"
    check_rewrite(
        "cuda_method",
        before,
        before.replace("Net().cuda", "Net().npu"),
        path="src/script.py",
        others={"src/net.py": net},
    )


def test_a_storage_that_is_mapped_is_no_class_of_the_project() -> None:
    line = "torch.load(f, map_location=lambda storage, place: storage.cuda(1))\n"
    check_rewrite("cuda_method", HEAD + BATCH + line, HEAD + BATCH + line.replace(".cuda", ".npu"))


@pytest.mark.parametrize("to", ["npu", "mlu", "any"])
def test_the_default_of_getattr_is_no_method(to: str) -> None:
    source = "import torch\nx = torch.ones(2, device=getattr(args, 'device', 'cuda'))\n"
    assert [finding.status for finding in migrate_source(source, to=to).findings if finding.status != "changed"] == []


@pytest.mark.parametrize(
    "source",
    [
        "import torch\nclass Batch:\n    def cuda(self):\n        return self\nb = Batch().cuda()\n",
        "import torch\nif args.cuda:\n    pass\n",
        "import torch\nimport mxnet\nmxnet.nd.ones(1).cuda()\n",
    ],
)
def test_another_objects_method_stays(source: str) -> None:
    check_noop("cuda_method", source, to="any")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x.cuda()", "x.to(accelerator.device())"),
        ("x.cuda(None)", "x.to(accelerator.device())"),
        ("x.cuda(args.gpu, True)", "x.to(accelerator.device(args.gpu), non_blocking=True)"),
        ("x.cuda(non_blocking=True)", "x.to(accelerator.device(), non_blocking=True)"),
        ("x.cuda(device=1, non_blocking=b)", "x.to(device=accelerator.device(1), non_blocking=b)"),
        ("x.cuda('cuda:1')", "x.to(accelerator.device(1))"),
        (
            "torch.load(f, map_location=lambda storage, _: storage.cuda(1))",
            "torch.load(f, map_location=lambda storage, _: storage.to(device=accelerator.device(1)))",
        ),
        ("x, y = x.cuda(), y.cuda()", "x, y = x.to(accelerator.device()), y.to(accelerator.device())"),
        ("m = torch.nn.DataParallel(m).cuda()", "m = torch.nn.DataParallel(m).to(accelerator.device())"),
        (
            "x = (\n    x.float()\n    .cuda()  # over\n)",
            "x = (\n    x.float()\n    .to(accelerator.device())  # over\n)",
        ),
    ],
)
def test_every_form_of_the_method_is_replaced(before: str, after: str) -> None:
    check_for_any_card("cuda_method", before, after)


@pytest.mark.parametrize(
    "line",
    [
        "go = methodcaller('cuda')",
        "ys = map(torch.Tensor.cuda, xs)",
        "f = getattr(x, 'cuda')",
        "f = attrgetter('cuda.synchronize')",
    ],
)
def test_a_method_that_is_passed_on_needs_manual_review(line: str) -> None:
    source = f"import torch\nfrom operator import attrgetter, methodcaller\n{line}\n"
    check_says("cuda_method", source, "manual", "accelerator.device()", to="any")


def test_a_method_whose_arguments_are_hidden_needs_manual_review() -> None:
    check_says("cuda_method", "import torch\nx.cuda(*where)\n", "manual", "if this moves", to="any")


@pytest.mark.parametrize(
    "source",
    [
        "import torch\n@torch.jit.script\ndef f(x):\n    return x.cuda()\n",
        "import torch\ndef f(x):\n    return x.cuda()\ng = torch.jit.script(f)\n",
        "import torch\nclass N(torch.nn.Module):\n    def forward(self, x):\n        return x.cuda()\n"
        "n = torch.jit.script(N())\n",
    ],
)
def test_code_that_torchscript_compiles_stays(source: str) -> None:
    check_says("cuda_method", source, "manual", "torch.jit.script", to="any")


@pytest.mark.parametrize("receiver", ["thing", "loader.next()", "things[0]"])
def test_a_receiver_that_may_be_the_projects_own_needs_manual_review(receiver: str) -> None:
    check_says("cuda_method", HEAD + BATCH + f"{receiver}.cuda()\n", "manual", "Batch")


def test_a_class_of_another_program_does_not_count() -> None:
    before, after = HEAD + "def move(thing):\n    return thing.cuda()\n", "    return thing.npu()\n"
    result = migrate_source(before, "cuda_method", others={"other.py": "import torch\n" + BATCH})
    assert result.after.decode().endswith(after)


def test_a_class_of_the_same_program_counts() -> None:
    others = {"batch.py": "import torch\n" + BATCH, "main.py": "import torch\nimport batch\nimport script\n"}
    check_says("cuda_method", HEAD + "def move(thing):\n    return thing.cuda()\n", "manual", "Batch", others=others)


def test_a_look_up_of_the_method_by_name_is_reported() -> None:
    check_says("cuda_method", HEAD + "if hasattr(x, 'cuda'):\n    pass\n", "manual", "by its name")


def test_a_method_of_an_unknown_object_needs_manual_review() -> None:
    source = "import torch\nclass Batch:\n    def cuda(self):\n        return self\ndef f(x):\n    return x.cuda()\n"
    check_says("cuda_method", source, "manual", "if this moves", to="any")
