"""Traps of PyTorch scripts that no single rule owns: other people's `.to` and `cuda`, layouts, new syntax, odd files.

The same text is laid out in many ways; what comes out must be the expected text in the same layout, byte for byte.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from forked_viaduct import viaduct
from migration.checking import migrate_source
from viaduct.migration.engine import migrate_bytes
from viaduct.migration.options import Options, TargetName
from viaduct.migration.project import survey
from viaduct.migration.results import FileResult

TARGETS: tuple[TargetName, ...] = ("npu", "mlu", "any")
CARDS: tuple[TargetName, ...] = ("npu", "mlu")


def migrate_twice(data: bytes, to: TargetName, path: str = "script.py") -> FileResult:
    """Migrate bytes and check that a second run changes nothing; for texts that cannot be a `str`."""
    result = migrate_bytes(path, data, Options(to=to), survey([(path, data)]))
    again = migrate_bytes(path, result.after, Options(to=to), survey([(path, result.after)]))
    assert again.after == result.after, "a second run changes the text again"
    compile(result.after, path, "exec", dont_inherit=True)
    return result


def check_source_unchanged(source: str, to: TargetName) -> FileResult:
    result = migrate_source(source, to=to)
    assert result.after.decode() == source, result.after.decode()
    return result


# ---- what is somebody else's


@pytest.mark.parametrize("to", TARGETS)
def test_a_class_with_a_to_and_a_cuda_of_its_own_is_left_alone(to: TargetName) -> None:
    check_source_unchanged(
        "import torch\n\n\n"
        "class Foo:\n"
        "    def to(self, where):\n        return where\n\n"
        "    def cuda(self, level=0):\n        return level\n\n\n"
        "Foo().to(0)\nFoo().to('cuda')\nfoo = Foo()\nfoo.to(0)\nfoo.cuda()\nfoo.cuda(1)\n",
        to,
    )


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize(
    "line",
    [
        "{'cuda': 1}",
        "sizes = {'cuda': 1, 'cpu': 2}\nprint(sizes['cuda'])",
        "print('cuda is slow to start')",
        "print('see https://pytorch.org/docs/stable/cuda.html')",
        "open('/usr/local/cuda/version.txt')",
        "import logging\nlogging.info('cuda')",
        "colours = ['red', 'cuda']",
        "tags = {'cuda', 'nccl'}",
        "names = ('nccl', 'cuda:0')",
        "from mylib import cuda, init_process_group\ncuda.is_available()\ninit_process_group('nccl')",
        "import pycuda_like\npycuda_like.cuda.synchronize()",
        "args = parse()\nprint(args.cuda)",
        "# torch.cuda.is_available() and .cuda() and 'nccl'\npass",
        "def f():\n    '''Calls torch.cuda.synchronize() and x.cuda().'''",
    ],
)
def test_a_word_that_is_no_device_is_left_alone(line: str, to: TargetName) -> None:
    check_source_unchanged(f"import torch\n\nx = torch.zeros(2)\n{line}\n", to)


@pytest.mark.parametrize("to", TARGETS)
def test_a_dtype_or_a_tensor_is_no_device(to: TargetName) -> None:
    check_source_unchanged(
        "import torch\n\nx = torch.zeros(2)\nx.to(torch.float16)\nx.to(torch.zeros(1))\nx.to('cpu')\n", to
    )


@pytest.mark.parametrize("to", CARDS)
def test_names_that_cover_torch_are_not_torch(to: TargetName) -> None:
    check_source_unchanged(
        "import torch\n\n\ndef f(torch, x):\n    return torch.cuda.synchronize(), torch.device('cuda', x)\n", to
    )


ALIASES = {
    "import torch as t\n": "t.cuda.synchronize()\n",
    "import torch\nfrom torch import cuda\n": "cuda.synchronize()\n",
    "import torch\nimport torch.cuda as tc\n": "tc.synchronize()\n",
    "import torch\nfrom torch.cuda import synchronize\n": "synchronize()\n",
    "import torch\nfrom torch.cuda import synchronize as wait\n": "wait()\n",
}


@pytest.mark.parametrize("to", CARDS)
@pytest.mark.parametrize("head", ALIASES)
def test_every_way_of_importing_is_seen_and_nothing_of_cuda_is_imported_any_more(head: str, to: TargetName) -> None:
    after = migrate_source(head + ALIASES[head], to=to).after.decode()
    modules = [
        alias.name for node in ast.walk(ast.parse(after)) if isinstance(node, ast.Import) for alias in node.names
    ]
    modules += [node.module or "" for node in ast.walk(ast.parse(after)) if isinstance(node, ast.ImportFrom)]
    assert f"torch_{to}" in {module.split(".")[0] for module in modules}
    assert not any("cuda" in module for module in modules), after
    assert "torch.cuda" not in after
    assert "t.cuda" not in after


# ---- layouts

BEFORE = '''\
"""Ends with a card: torch.cuda is spoken of here only."""
import os
import torch
import torch.distributed as dist


def place(x, rank):
    if torch.cuda.is_available():  # cuda
        x = x.cuda()
        torch.cuda.synchronize()
    return x.to("cuda:0")


if __name__ == "__main__":
    dist.init_process_group("nccl")
    print("done with cuda", place(torch.zeros(2), 0))
'''


def expected_text(to: TargetName) -> str:
    backend = {"npu": "hccl", "mlu": "cncl"}[to]
    text = BEFORE.replace("torch.cuda.is_available", f"torch.{to}.is_available").replace('"nccl"', f'"{backend}"')
    text = text.replace("torch.cuda.synchronize", f"torch.{to}.synchronize").replace("x.cuda()", f"x.{to}()")
    return text.replace('"cuda:0"', f'"{to}:0"').replace("import torch\n", f"import torch\nimport torch_{to}\n", 1)


def two_space_guard(text: str) -> str:
    head, tail = text.split('if __name__ == "__main__":\n')
    return head + 'if __name__ == "__main__":\n' + tail.replace("    ", "  ")


def encode_latin1(text: str) -> bytes:
    return ("# -*- coding: latin-1 -*-\n# caf\xe9\n" + text).encode("latin-1")


LAYOUTS: dict[str, Callable[[str], bytes]] = {
    "as written": lambda text: text.encode(),
    "two spaces in the main guard": lambda text: two_space_guard(text).encode(),
    "tabs": lambda text: text.replace("    ", "\t").encode(),
    "CRLF": lambda text: text.replace("\n", "\r\n").encode(),
    "no final newline": lambda text: text.rstrip("\n").encode(),
    "a mark of UTF-8": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "an encoding cookie": encode_latin1,
    "form feeds": lambda text: text.replace("\n\n\n", "\n\n\f\n").encode(),
    "trailing blanks": lambda text: text.replace(":\n", ":  \n").encode(),
    "wide letters before the names": lambda text: text.replace('return x.to("', 'return ("π→", x)[1].to("').encode(),
    "a line for the shell": lambda text: ("#!/usr/bin/env python3\n" + text).encode(),
}


@pytest.mark.parametrize("to", CARDS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_stays_as_it_is(layout: str, to: TargetName) -> None:
    lay_out = LAYOUTS[layout]
    result = migrate_twice(lay_out(BEFORE), to)
    assert result.after == lay_out(expected_text(to)), result.after.decode("latin-1")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_becomes_neutral_and_keeps_the_rest_of_its_lines(layout: str) -> None:
    data = LAYOUTS[layout](BEFORE)
    after = migrate_twice(data, "any").after
    kept = [line for line in data.splitlines(keepends=True) if b"cuda" not in line and b"nccl" not in line]
    positions = [after.find(line) for line in kept]
    assert -1 not in positions, "a line that has nothing to do with devices is gone"
    assert after != data


# ---- where the import goes


@pytest.mark.parametrize("to", CARDS)
def test_an_import_goes_behind_docstring_future_and_torch(to: TargetName) -> None:
    head = '# a comment\n"""Doc."""\n# another\nfrom __future__ import annotations\n\nx = 1\n'
    result = migrate_source(head + "import torch\n\ntorch.cuda.synchronize()\n", to=to)
    assert result.after.decode() == head + f"import torch\nimport torch_{to}\n\ntorch.{to}.synchronize()\n"


@pytest.mark.parametrize("to", CARDS)
def test_a_script_that_imports_torch_in_a_function_still_compiles_and_finds_its_plug_in(to: TargetName) -> None:
    head = '"""Doc."""\nfrom __future__ import annotations\n\n\n'
    source = head + "def f():\n    import torch\n\n    torch.cuda.synchronize()\n"
    after = migrate_source(source, to=to).after.decode()
    tree = ast.parse(after)
    assert f"import torch_{to}" in after
    assert after.index("from __future__") < after.index(f"import torch_{to}")
    assert ast.get_docstring(tree) == "Doc."


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize(
    "source", ["", '"""Only a docstring about torch.cuda."""\n', "import torch\n", "# torch.cuda\n"]
)
def test_a_file_without_device_code_gets_no_import(source: str, to: TargetName) -> None:
    assert not check_source_unchanged(source, to).findings


# ---- newer syntax


@pytest.mark.parametrize("to", CARDS)
@pytest.mark.parametrize(
    "line",
    [
        "if (n := torch.cuda.device_count()) > 1:\n    print(n)",
        "match torch.cuda.device_count():\n    case 0:\n        y = 'cpu'\n    case _:\n        y = 'many'",
        "with (\n    torch.cuda.device(0),  # the first\n    torch.no_grad(),\n):\n    pass",
        "def f(a, /, b, *, c):\n    return torch.cuda.synchronize(a)",
        "z = f'{x[\"a\"]!r:>{10}} {{}}' + str(torch.cuda.device_count())",
        "async def g():\n    return [torch.cuda.Event() async for _ in h()]",
        "k = lambda *a, **b: torch.cuda.synchronize()",
        "total = 1_000 if torch.cuda.is_available() else 0x_ff",
    ],
)
def test_newer_syntax_is_read_and_only_the_name_changes(line: str, to: TargetName) -> None:
    source = f"import torch\n\nx = {{'a': 1}}\n{line}\n"
    wanted = source.replace("torch.cuda", f"torch.{to}").replace("import torch\n", f"import torch\nimport torch_{to}\n")
    assert migrate_source(source, to=to).after.decode() == wanted


@pytest.mark.parametrize("to", CARDS)
def test_what_stands_inside_an_f_string_is_changed_or_reported(to: TargetName) -> None:
    source = 'import torch\n\nprint(f\'{torch.cuda.device_count()} cards in {"a" + "b"}\')\n'
    result = migrate_source(source, to=to)
    if f"torch.{to}.device_count" not in result.after.decode():
        assert [finding.line for finding in result.findings if finding.status == "manual"] == [3]


@pytest.mark.parametrize("to", CARDS)
def test_an_f_string_that_is_a_device_is_carried_with_its_quotes(to: TargetName) -> None:
    source = "import torch\n\n\ndef f(rank, x):\n    return x.to(f'cuda:{rank}'), torch.device(f\"cuda:{rank!s}\")\n"
    result = migrate_source(source, to=to)
    wanted = source.replace("cuda:{", f"{to}:{{").replace("import torch\n", f"import torch\nimport torch_{to}\n")
    assert result.after.decode() == wanted


# ---- odd files, through the command


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """Return a project in which one file can be analysed and the others cannot."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(BEFORE)
    (project / "old.py").write_text("import torch\nprint 'no card:', torch.cuda.is_available()\n")
    (project / "empty.py").write_text("")
    (project / "huge.py").write_text("import torch\n" + "TABLE = [\n" + "    0,\n" * 900_000 + "]\ntorch.cuda.init()\n")
    (project / "outside.py").symlink_to(tmp_path / "elsewhere.py")
    (tmp_path / "elsewhere.py").write_text(BEFORE)
    return project


@pytest.mark.parametrize("to", TARGETS)
def test_odd_files_are_copied_and_named_and_the_rest_is_migrated(odd: Path, tmp_path: Path, to: TargetName) -> None:
    answer = viaduct("migrate", odd, "--to", to, "--out", tmp_path / "out")
    assert answer.returncode == 1, "what was not read makes the copy incomplete"
    output = answer.stdout + answer.stderr
    assert answer.stdout.startswith("Incomplete: 3 paths not read")
    for name in ("old.py", "huge.py"):
        assert (tmp_path / "out" / name).read_bytes() == (odd / name).read_bytes()
        assert name in output
    assert not os.path.lexists(tmp_path / "out" / "outside.py")
    assert (tmp_path / "elsewhere.py").read_text() == BEFORE
    assert "torch.cuda.synchronize" not in (tmp_path / "out" / "train.py").read_text()


def test_an_output_within_the_project_is_refused_and_nothing_is_written(odd: Path) -> None:
    answer = viaduct("migrate", odd, "--to", "npu", "--out", odd / "migrated")
    assert answer.returncode == 2
    assert "Traceback" not in answer.stderr
    assert not (odd / "migrated").exists()
    assert (odd / "train.py").read_text() == BEFORE


def test_an_output_below_a_file_is_refused(odd: Path) -> None:
    answer = viaduct("migrate", odd, "--to", "any", "--out", odd.parent / "elsewhere.py" / "out")
    assert answer.returncode == 2
    assert "Traceback" not in answer.stderr
    assert (odd / "train.py").read_text() == BEFORE


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_output_that_cannot_be_written_is_refused(odd: Path, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    answer = viaduct("migrate", odd, "--to", "mlu", "--out", locked / "out")
    assert answer.returncode == 2
    assert "Traceback" not in answer.stderr


# ---- scripts that were migrated before, by whomever


@pytest.mark.parametrize(
    ("to", "source"),
    [
        (
            "npu",
            "import torch\nimport torch_npu\n\nCALCULATE_DEVICE = 'npu:1'\ntorch.npu.set_device(CALCULATE_DEVICE)\n"
            "model = torch.nn.Linear(2, 2).to(CALCULATE_DEVICE)\n"
            "torch.distributed.init_process_group('hccl')\n",
        ),
        (
            "npu",
            "import torch\nimport torch_npu\n\nx = torch.zeros(2).npu()\nprint(x.is_npu, x.device.type == 'npu')\n",
        ),
        (
            "mlu",
            "import torch\nimport torch_mlu\n\nmodel = torch.nn.Linear(2, 2).mlu()\ntorch.mlu.synchronize()\n"
            "torch.distributed.init_process_group(backend='cncl')\n",
        ),
    ],
)
def test_a_script_that_was_migrated_already_is_recognised(to: TargetName, source: str) -> None:
    check_source_unchanged(source, to)


@pytest.mark.parametrize(
    ("to", "patch"),
    [
        ("npu", "from torch_npu.contrib import transfer_to_npu"),
        ("mlu", "from torch_mlu.utils.gpu_migration import migration"),
    ],
)
def test_a_script_with_the_vendors_patch_gets_no_second_import(to: TargetName, patch: str) -> None:
    head = f"import torch\nimport torch_{to}\n{patch}\n\n"
    result = migrate_source(head + "model = torch.nn.Linear(2, 2).cuda()\ntorch.cuda.synchronize()\n", to=to)
    assert result.after.decode().startswith(head)
    assert result.after.decode().count("import") == head.count("import")


@pytest.mark.parametrize("to", CARDS)
def test_a_half_migrated_script_is_finished(to: TargetName) -> None:
    source = (
        f"import torch\nimport torch_{to}\n\nx = torch.zeros(2).{to}()\ny = x.to('{to}:0')\nz = torch.zeros(2).cuda()\n"
    )
    assert migrate_source(source, to=to).after.decode() == source.replace(".cuda()", f".{to}()")
