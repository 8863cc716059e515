"""Ten PyTorch scripts in the manner of public repositories: they run here, and they are carried to npu, mlu and any.

What is pinned was written down from the specification and by eye: the lines that a person would look for, and those
that must stay. The neutral output is run on the CPU and must say what the original says, to the last digit of a loss.
"""

from __future__ import annotations

import ast
import builtins
import functools
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from forked_viaduct import python, viaduct
from migration.checking import comments
from viaduct.migration.options import Options, TargetName
from viaduct.migration.project import survey
from viaduct.migration.results import FileResult
from viaduct.migration.run import extract_code, migrate_one

EXAMPLES = Path(__file__).parents[2] / "examples" / "torch"
PAGE = Path(__file__).parents[2] / "docs" / "migrate-torch.md"
TARGETS: tuple[TargetName, ...] = ("npu", "mlu", "any")
CARDS: tuple[TargetName, ...] = ("npu", "mlu")
SCRIPTS = {
    "imagenet_ddp.py": "--dummy --epochs 1 --steps 2 --batch-size 8 --arch small10 --seed 1",
    "gan.py": "--niter 1 --steps 2 --manualSeed 1",
    "amp_grad_scaler.py": "--steps 2",
    "data_parallel.py": "--epochs 1 --steps 2",
    "checkpoint_resume.py": "--steps 2",
    "cuda_extension/train.py": "--steps 2",
    "trainer_class.py": "--max-steps 2 --snapshot snapshot.pt",
    "segmentation_fp64.py": "--steps 2",
    "own_cuda_methods.py": "--steps 2",
    "notebook.ipynb": "",
}
SAID_WITHOUT_A_CARD = "no CUDA device, falling back to the CPU"  # the neutral default is the CPU at once
TIMES_AND_PLACES = re.compile(r"[\d.]+ s\b|0x[0-9a-f]+")


def read(name: str) -> str:
    return (EXAMPLES / name).read_text()


def sources(name: str) -> dict[str, bytes]:
    """Return the scripts of an example by path."""
    where = EXAMPLES / name
    files = sorted(where.parent.glob("*.py")) if where.parent != EXAMPLES else [where]
    return {file.name: file.read_bytes() for file in files}


@functools.cache
def migrate_example(name: str, to: TargetName) -> dict[str, FileResult]:
    return run(sources(name), to=to)


def run(texts: dict[str, bytes], **options: Any) -> dict[str, FileResult]:
    project = survey((path, extract_code(path, data)) for path, data in texts.items())
    results = {path: migrate_one(path, data, Options(**options), project) for path, data in texts.items()}
    assert [result.traceback or result.unread_reason for result in results.values() if result.unread_reason] == []
    return results


def text_after(result: FileResult, before: bytes) -> bytes:
    return result.after if result.changed else before


def after(name: str, to: TargetName) -> str:
    return text_after(migrate_example(name, to)[Path(name).name], (EXAMPLES / name).read_bytes()).decode()


def without_magic(text: str) -> str:
    """Empty the lines for IPython, so that line numbers stay."""
    return "".join("\n" if line.startswith(("%", "!")) else line for line in text.splitlines(keepends=True))


def code_of(text: str) -> str:
    """Return a notebook's code as one script."""
    cells = ["".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    return without_magic("\n".join(cells) + "\n")


# ---- they run


RUNNER = """
import os, runpy, sys, traceback
import torch
where, tests, to, scripts = ARGUMENTS
os.chdir(where)
sys.path.insert(0, tests)
if to in ("npu", "mlu"):
    from absent_card import pretend
    pretend(to)
for name, script, words in scripts:
    print("##", name, flush=True)
    torch.use_deterministic_algorithms(False)
    torch.manual_seed(0)
    sys.path[0] = os.path.dirname(script)
    sys.modules.pop("accelerator_device", None)  # each has one of its own beside it
    sys.argv = [script, *words.split()]
    try:
        runpy.run_path(script, run_name="__main__")
    except BaseException:
        traceback.print_exc(file=sys.stdout)
"""


def in_turn(scripts: list[tuple[str, str, str]], to: str, where: Path) -> dict[str, list[str]]:
    """Return the output of each script, all run in one process and folder; times are left out."""
    where.mkdir()
    arguments = (str(where), str(Path(__file__).parent), to, scripts)
    answer = python(RUNNER.replace("ARGUMENTS", repr(arguments)))
    assert answer.returncode == 0, answer.stderr[-3000:]
    parts = answer.stdout.split("## ")[1:]
    lines = {part.split("\n")[0]: TIMES_AND_PLACES.sub("", part).splitlines()[1:] for part in parts}
    assert list(lines) == [name for name, _, _ in scripts], answer.stdout[-2000:]
    return lines


def copy_example(name: str, where: Path) -> Path:
    """Copy an example into a folder for the command, and return its path."""
    if "/" in name:
        shutil.copytree((EXAMPLES / name).parent, where / Path(name).parent)
    else:
        where.mkdir(parents=True)
        shutil.copy(EXAMPLES / name, where)
    return where


def carried_by_the_command(name: str, to: str, scratch: Path) -> Path:
    """Return an example, or the command's migration of it, as a script that can be started."""
    here = project = copy_example(name, scratch / "project")
    if to:
        here = scratch / "out"
        answer = viaduct("migrate", project, "--to", to, "--out", here)
        assert answer.returncode == 0, answer.stdout + answer.stderr
    if name.endswith(".ipynb"):
        (here / "notebook.py").write_text(code_of((here / name).read_text()))
        return here / "notebook.py"
    return here / name


@functools.cache
def collect_outputs(to: str) -> dict[str, list[str]]:
    """Return each example's output before (`to` is "") or after its migration, on a machine without a card."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        folders = {name: carried_by_the_command(name, to, scratch / str(n)) for n, name in enumerate(SCRIPTS)}
        scripts = [(name, str(folders[name]), words) for name, words in SCRIPTS.items()]
        return in_turn(scripts, to, scratch / "runs")


def test_there_are_ten_examples_and_none_is_a_toy() -> None:
    there = {path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*") if path.suffix in (".py", ".ipynb")}
    assert there - {"cuda_extension/setup.py"} == set(SCRIPTS)
    for name in set(SCRIPTS) - {"notebook.ipynb"}:
        assert len(read(name).splitlines()) >= 60, name
    assert "torchvision" not in "".join(map(read, SCRIPTS))


@pytest.mark.parametrize("name", SCRIPTS)
def test_an_example_trains_on_the_cpu(name: str) -> None:
    assert "Traceback (most recent call last):" not in collect_outputs("")[name]
    assert any(re.search(r"(?i)loss", line) for line in collect_outputs("")[name]), collect_outputs("")[name]


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_migrated_script_trains_on_the_cpu_to_the_same_digits(name: str, to: TargetName) -> None:
    """Both npu and mlu, with a plug-in that finds no card (absent_card.py)."""
    output = (SAID_WITHOUT_A_CARD,) if to == "any" else ()
    assert collect_outputs(to)[name] == [line for line in collect_outputs("")[name] if line not in output]


def free_port() -> int:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port: int = door.getsockname()[1]
        return port


def spawn_ranks(script: Path, where: Path, *more: str) -> list[str]:
    words = [*SCRIPTS["imagenet_ddp.py"].split(), "--multiprocessing-distributed", "--procs", "2", *more]
    words += ["--dist-url", f"tcp://127.0.0.1:{free_port()}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script), *words]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=where, env=environment, timeout=300)
    assert answer.returncode == 0, answer.stderr[-3000:]
    return sorted(re.findall(r"\[\d+\]\[\d+\] loss [\d.]+", answer.stdout))


def test_the_neutral_imagenet_script_spawns_its_processes_and_takes_gloo_by_itself(tmp_path: Path) -> None:
    neutral = carried_by_the_command("imagenet_ddp.py", "any", tmp_path)
    assert len(set(spawn_ranks(neutral, tmp_path))) == 4, "two steps on each of two ranks"


@pytest.mark.slow
def test_spawned_processes_see_the_same_losses_before_and_after(tmp_path: Path) -> None:
    before = spawn_ranks(EXAMPLES / "imagenet_ddp.py", tmp_path, "--dist-backend", "gloo")
    assert spawn_ranks(carried_by_the_command("imagenet_ddp.py", "any", tmp_path), tmp_path) == before


def test_a_training_that_was_stopped_goes_on_after_the_migration_as_well(tmp_path: Path) -> None:
    script = str(carried_by_the_command("checkpoint_resume.py", "any", tmp_path))
    parts = {
        "whole": "--steps 4 --folder whole",
        "first": "--steps 2 --folder parts",
        "second": "--steps 4 --folder parts",
    }
    output = in_turn([(name, script, words) for name, words in parts.items()], "", tmp_path / "runs")
    assert output["second"][0] == "continues with step 2"
    assert output["first"] + output["second"][1:] == output["whole"]


# ---- they are carried


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("name", SCRIPTS)
def test_an_example_is_migrated_and_compiles(name: str, to: TargetName) -> None:
    for path, result in migrate_example(name, to).items():
        compile(without_magic(result.new_text), path, "exec", dont_inherit=True)
        assert result.changed == any(finding.status == "changed" for finding in result.findings), path
    assert migrate_example(name, to)[Path(name).name].changed


VARIANTS: tuple[dict[str, Any], ...] = (
    {"to": "npu"},
    {"to": "mlu"},
    {"to": "any"},
    {"to": "npu", "mode": "patch"},
    {"to": "mlu", "mode": "patch"},
    {"to": "npu", "data_parallel": "unwrap", "int32_targets": True},
    {"to": "mlu", "data_parallel": "ddp"},
)


@pytest.mark.parametrize("options", VARIANTS, ids=lambda options: "-".join(map(str, options.values())))
@pytest.mark.parametrize("name", SCRIPTS)
def test_no_option_leaves_a_name_that_nothing_binds_or_a_comment_behind(name: str, options: dict[str, Any]) -> None:
    texts = sources(name)
    results = run(texts, **options)
    once = {path: text_after(results[path], data) for path, data in texts.items()}
    assert {path: text_after(result, once[path]) for path, result in run(once, **options).items()} == once, (
        "a second run"
    )
    for result in results.values():
        if result.changed:
            new, old = without_magic(result.new_text), without_magic(result.old_text)
            assert unbound(ast.parse(new)) <= unbound(ast.parse(old))
            assert comments(old) <= comments(new)


def unbound(tree: ast.AST) -> set[str]:
    """Return the names that are read and that the file does not bind."""
    nodes = list(ast.walk(tree))
    read = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    bound |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    imported = [alias for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names]
    return read - bound - {(alias.asname or alias.name).split(".")[0] for alias in imported} - set(dir(builtins))


def cudas(tree: ast.AST) -> set[int]:
    """Return the lines that name torch.cuda, call `.cuda()` or read `.is_cuda`."""
    named = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    called = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return {
        node.lineno
        for node in named
        if node.attr == "is_cuda" or ast.unparse(node) == "torch.cuda" or (node.attr == "cuda" and node in called)
    }


@pytest.mark.parametrize("to", CARDS)
@pytest.mark.parametrize("name", SCRIPTS)
def test_whatever_still_names_cuda_is_reported_or_is_somebody_elses(name: str, to: TargetName) -> None:
    result = migrate_example(name, to)[Path(name).name]
    lines, old = result.new_text.splitlines(), result.old_text.splitlines()
    left = {result.original_lines[line - 1] for line in cudas(ast.parse(without_magic(result.new_text)))}
    reported = {finding.line for finding in result.findings if finding.status != "changed"}
    own = {line for line in left for stays in STAYS[name] if stays in old[line - 1]}
    assert left - reported - own == set(), lines


STAYS: dict[str, tuple[str, ...]] = {
    "imagenet_ddp.py": (
        'help="nccl for cuda, gloo without a card")',
        "# DistributedDataParallel on one device needs its own share of the batch and of the workers.",
        "model = nn.parallel.DistributedDataParallel(model, device_ids=[args.gpu])",
        "cudnn.deterministic = True",
        "checkpoint = torch.load(args.resume, map_location=device)",
        "checkpoint = torch.load(args.resume, map_location=loc)",
        "images = images.to(device, non_blocking=True)",
        'print("using CPU, this will be slow")',
    ),
    "gan.py": (
        'parser.add_argument("--cuda", action="store_true", default=False, help="enables cuda")',
        'print("WARNING: You have a CUDA device, so you should probably run with --cuda")',
        "netG = Generator(ngpu).to(device)",
        "real_cpu = data.to(device)",
        "fixed_noise = torch.randn(opt.batchSize, opt.nz, 1, 1, device=device)",
    ),
    "amp_grad_scaler.py": (
        'help="cuda (needs a card) or cpu")',
        'print("no CUDA device, falling back to the CPU")',
        "yield points.to(device, non_blocking=True), target.to(device, non_blocking=True)",
    ),
    "data_parallel.py": (
        "CUDA_VISIBLE_DEVICES=0,1 python data_parallel.py --epochs 2",
        "use_cuda = ",
        'torch.save({"model": model.module.state_dict(), "accuracy": best}, args.save)',
    ),
    "checkpoint_resume.py": (
        'if "cuda" in state and ',
        'state["cuda"] = ',
        '(state["cuda"])',
        "device = torch.device(args.device)",
        "# Whoever saved it may have had other cards: bring everything to the host first.",
        'checkpoint = torch.load(path, map_location="cpu", weights_only=False)',
    ),
    "cuda_extension/train.py": (
        "A network whose activation is a CUDA kernel of its own",
        'x = torch.randn(4, 5, dtype=torch.double, device="cpu", requires_grad=True)',
    ),
    "trainer_class.py": (
        "help=\"'cuda' or 'cpu'\")",
        'logger.warning("CUDA is not available, using the CPU")',
        "self.model = model.to(self.device)",
        "self.device = torch.device(config.device)",
    ),
    "segmentation_fp64.py": (
        'help="device (Use cuda or cpu, default: cuda)")',
        "image, mask = image.to(device), mask.to(device)",
        "index = self.classes * target[valid].to(torch.int64) + prediction[valid]",
        "probabilities = logits.softmax(1).to(torch.double) * valid",
    ),
    "own_cuda_methods.py": (
        'BATCH_SIZES = {"cpu": 8, "cuda": 16}',
        'CACHE = os.path.join(os.path.expanduser("~"), ".cache", "graphs", "cuda")',
        '@register("cuda")',
        "def cuda(self, index=None, non_blocking=False):",
        "def cuda(self, enabled=True):",
        "self.is_cuda, self.calls = False, 0",
        "self.is_cuda = enabled",
        "timer = Timer().cuda(args.cuda)",
        'batch_size = BATCH_SIZES["cuda" if args.cuda else "cpu"]',
        'model = GraphNet(kernel="cuda" if args.cuda else "cpu")',
        "batch = batch.pin().cuda(non_blocking=True)",
        "if args.cuda:",
        "args.cuda = not args.no_cuda and ",
        "See https://pytorch.org/docs/stable/notes/cuda.html for what `.cuda()` of a tensor does.",
        'print(f"{timer.calls} steps, cuda: {timer.is_cuda}, cache would be {os.path.basename(CACHE)!r}")',
    ),
    "notebook.ipynb": (
        "The word *cuda* in this text is not code, and neither is `torch.cuda.is_available()` here.",
        "running on cuda\\n",
        "NVIDIA GeForce RTX 3090",
        "%%time",
    ),
}
BECOMES: dict[str, tuple[str, ...]] = {
    "imagenet_ddp.py": (
        "import torch\nimport {plugin}\n",
        'parser.add_argument("--dist-backend", default="{backend}", type=str,',
        "ngpus_per_node = torch.{to}.device_count() if torch.{to}.is_available() else args.procs",
        "if not torch.{to}.is_available():",
        "torch.{to}.set_device(args.gpu)\n            model.{to}(args.gpu)",
        "model = model.{to}(args.gpu)",
        'torch.device("{to}:{{}}".format(args.gpu)) if args.gpu is not None else torch.device("{to}")',
        'loc = "{to}:{{}}".format(args.gpu)',
        "self.images, self.targets = torch.load(path)",
        "images = images.{to}(args.gpu, non_blocking=True)",
        'device = "{to}" if torch.{to}.is_available() else "cpu"',
    ),
    "gan.py": (
        "import torch\nimport {plugin}\n",
        "if torch.{to}.is_available() and not opt.cuda:",
        'device = torch.device("{to}:0" if opt.cuda else "cpu")',
        "if input.is_{to} and self.ngpu > 1:",
        "netG.load_state_dict(torch.load(opt.netG, map_location=",
    ),
    "amp_grad_scaler.py": (
        'parser.add_argument("--device", default="{to}", choices=["{to}", "cpu"], help="cuda (needs',
        'if device.type == "{to}":\n            points, target = points.pin_memory()',
        'with torch.autocast(device_type="{to}", dtype=torch.float16) if use_amp else nullcontext():',
        "activities.append(ProfilerActivity.{TO})",
        'if args.device == "{to}" and not torch.{to}.is_available():',
        'use_amp = device.type == "{to}" and not args.no_amp',
        "start, end = torch.{to}.Event(enable_timing=True), torch.{to}.Event(enable_timing=True)",
        "peak = torch.{to}.max_memory_allocated() / 2**20",
    ),
    "data_parallel.py": (
        'os.environ["{visible}"] = args.gpu_ids',
        "use_cuda = torch.{to}.is_available()",
        "FloatTensor = torch.{to}.FloatTensor if use_cuda else torch.FloatTensor",
        "words, tags = words.{to}(), tags.{to}()",
        "words, tags = words.{to}(non_blocking=True), tags.{to}(non_blocking=True)",
        "model = model.{to}()",
        "torch.{to}.manual_seed_all(1)",
        "torch.load(args.save, map_location=",
    ),
    "checkpoint_resume.py": (
        'parser.add_argument("--device", default="{to}:0" if torch.{to}.is_available() else "cpu")',
        'state["cuda"] = torch.{to}.get_rng_state_all()',
        'if "cuda" in state and torch.{to}.is_available():\n        torch.{to}.set_rng_state_all(state["cuda"])',
        'if device.type == "{to}":',
        '"{to}:%d" % (device.index or 0)',
        "map_location=lambda storage, loc: storage)",
    ),
    "cuda_extension/train.py": (
        'device = torch.device("{to}" if torch.{to}.is_available() else "cpu")',
        'if device.type == "{to}":\n        torch.{to}.synchronize(device)',
    ),
    "trainer_class.py": (
        'device: str = "{to}"',
        'backend: str = "{backend}"',
        'if config.device == "{to}" and not torch.{to}.is_available():',
        'if config.backend == "{backend}":\n            torch.{to}.set_device(int(os.environ["LOCAL_RANK"]))',
        'if config.device == "{to}":\n            self.device = torch.device(f"{to}:{{self.local_rank}}")',
        'torch.amp.GradScaler("{to}", enabled=config.use_amp and self.device.type == "{to}")',
        'with torch.amp.autocast("{to}", enabled=self.scaler.is_enabled()):',
        'map_location=f"{to}:{{self.local_rank}}" if torch.{to}.is_available() else "cpu")',
        'ids = [self.local_rank] if self.device.type == "{to}" else None',
        'parser.add_argument("--device", type=str, default="{to}",',
    ),
    "segmentation_fp64.py": (
        'parser.add_argument("--device", default="{to}", help="device (Use cuda or cpu, default: cuda)")',
        'if args.device.startswith("{to}") and not torch.{to}.is_available():',
        "pin_memory=True)",
    ),
    "own_cuda_methods.py": ("model.{to}()", "torch.{to}.is_available()"),
    "notebook.ipynb": (
        '"import torch\\n",\n    "import {plugin}\\n"',
        'torch.device(\\"{to}\\" if torch.{to}.is_available() else \\"cpu\\")',
        'if device.type == \\"{to}\\":',
        "torch.{to}.get_device_name(0)",
        "model = model.{to}()",
        "scaler = torch.{to}.amp.GradScaler(enabled=torch.{to}.is_available())",
        "with torch.{to}.amp.autocast(enabled=torch.{to}.is_available()):",
        'torch.load(\\"spirals.pt\\", map_location=',
    ),
}
WORDS = {
    "npu": {"backend": "hccl", "plugin": "torch_npu", "visible": "ASCEND_RT_VISIBLE_DEVICES"},
    "mlu": {"backend": "cncl", "plugin": "torch_mlu", "visible": "MLU_VISIBLE_DEVICES"},
}


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("name", SCRIPTS)
def test_what_is_no_device_stays(name: str, to: TargetName) -> None:
    text = after(name, to)
    assert [line for line in STAYS[name] if line not in text] == []


@pytest.mark.parametrize("to", CARDS)
@pytest.mark.parametrize("name", SCRIPTS)
def test_the_lines_that_matter_name_the_card(name: str, to: TargetName) -> None:
    text = after(name, to)
    wanted = [line.format(to=to, TO=to.upper(), **WORDS[to]) for line in BECOMES[name]]
    assert [line for line in wanted if line not in text] == [], text


def list_messages(name: str, to: TargetName, status: str, file: str = "") -> str:
    result = migrate_example(name, to)[file or Path(name).name]
    return "\n".join(finding.message for finding in result.findings if finding.status == status)


@pytest.mark.parametrize("to", CARDS)
def test_what_a_card_cannot_do_needs_manual_review(to: TargetName) -> None:
    assert "DataParallel" in list_messages("imagenet_ddp.py", to, "manual")
    assert "DataParallel" in list_messages("data_parallel.py", to, "manual")
    assert "data_parallel" in list_messages("gan.py", to, "manual")
    assert "CUDAExtension" in list_messages("cuda_extension/train.py", to, "manual", "setup.py")


def test_float64_on_the_npu_is_reported() -> None:
    output = list_messages("segmentation_fp64.py", "npu", "manual") + list_messages(
        "segmentation_fp64.py", "npu", "advice"
    )
    assert "double precision" in output


def test_a_class_that_moves_its_own_tensors_moves_them_to_the_card_or_says_so() -> None:
    """`GraphBatch.cuda` keeps its name; the tensors in it must not stay on CUDA without a finding."""
    result = migrate_example("own_cuda_methods.py", "npu")["own_cuda_methods.py"]
    text, line = result.new_text, "return self.apply(lambda x: x.cuda(index, non_blocking=non_blocking))"
    where = read("own_cuda_methods.py").splitlines().index(" " * 8 + line) + 1
    assert line.replace("x.cuda", "x.npu") in text or where in {f.line for f in result.findings if f.status == "manual"}


@pytest.mark.parametrize("to", CARDS)
def test_a_flag_and_the_comparison_with_it_move_together(to: TargetName) -> None:
    text = after("own_cuda_methods.py", to)
    assert ('choices=["cpu", "cuda"]' in text) == ('args.accelerator == "cuda"' in text)


def test_the_kernels_of_the_extension_are_listed(tmp_path: Path) -> None:
    project = copy_example("cuda_extension/train.py", tmp_path / "project")
    for to in TARGETS:
        answer = viaduct("migrate", project, "--to", to)
        assert answer.returncode == 0
        assert "kernel.cu" in answer.stdout + answer.stderr, to


@pytest.mark.parametrize("to", TARGETS)
def test_the_outputs_of_a_notebook_and_its_metadata_stay(to: TargetName) -> None:
    before, made = json.loads(read("notebook.ipynb")), json.loads(after("notebook.ipynb", to))
    assert made["metadata"] == before["metadata"]
    outputs = [cell.get("outputs") for cell in made["cells"]]
    assert [found for found in outputs if found] == [cell["outputs"] for cell in before["cells"] if cell.get("outputs")]


# ---- the page


def list_shown_diffs() -> list[tuple[str, str]]:
    """Return each command of the page with the diff that the page shows for it."""
    blocks = re.findall(r"```console\n\$ (.*?)\n```\n\n```diff\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == PAGE.read_text().count("```diff")
    return blocks


@pytest.mark.parametrize(("command", "diff"), list_shown_diffs(), ids=lambda text: text.split("\n")[0][:60])
def test_the_page_shows_what_happens(command: str, diff: str, tmp_path: Path) -> None:
    words = command.split()
    assert words[:2] == ["viaduct", "migrate"]
    project = copy_example(Path(words[2]).name, tmp_path / "project")
    answer = viaduct("migrate", project, *words[3:])
    assert answer.returncode == 0, answer.stderr
    actual, position = answer.stdout.splitlines(), 0
    for line in diff.splitlines():
        if line != "…":
            assert line in actual[position:], f"not in the diff of `{command}`, or not in this order: {line}"
            position = actual.index(line, position) + 1
