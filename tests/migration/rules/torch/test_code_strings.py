from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says, migrate_source


@pytest.mark.parametrize(
    "text",
    [
        "print('torch.cuda.is_available()')\n",
        "raise RuntimeError('torch.cuda.synchronize() failed')\n",
        "assert x, 'torch.cuda.is_available() is False'\n",
        "logger.info('a %s' % 'x.cuda()')\n",
        "parser.add_argument('--x', help='torch.cuda.synchronize()')\n",
        "def f():\n    'x.cuda()'\n",
        "names = ['config.cuda', 'model.cuda']\n",
        "text = 'call model.cuda() before this'\n",
        "value = eval('1 + 2')\n",
        "model.eval(x.cuda_graph)\n",
        "def exec(text):\n    pass\nexec(name)\n",
    ],
)
def test_messages_and_other_strings_are_left_alone(text: str) -> None:
    check_noop("code_strings", f"import torch\n{text}")


def test_a_project_without_pytorch_is_left_alone() -> None:
    check_noop("code_strings", "exec(open(name).read())\nexec('x.cuda()')\n")


@pytest.mark.parametrize("to", ["npu", "mlu", "any"])
@pytest.mark.parametrize(
    "text",
    [
        "exec('model.cuda()')\n",
        "x = eval('torch.zeros(2).cuda()')\n",
        "text = 'x = x.cuda()'\nexec(text)\n",
        "exec(compile('torch.cuda.synchronize()', 'a', 'exec'))\n",
        "exec(f'self.{name} = self.{name}.cuda()')\n",
        "text = 'model.%s()' % 'cuda'\neval('x = \"cuda\"')\n",
        "exec(textwrap.dedent('''\n    x = x.cuda()\n    '''))\n",
        "import builtins\nbuiltins.exec('model.cuda()')\n",
        "import timeit\ntimeit.timeit('x.cuda()', setup='import torch')\n",
        "import torch.utils.benchmark as b\nb.Timer('torch.cuda.synchronize()').timeit(3)\n",
        "subprocess.run([sys.executable, '-c', 'import torch; torch.zeros(2).cuda()'])\n",
        "os.system('python -c \"import torch; torch.cuda.init()\"')\n",
        "name = 'torch.cuda'\nimport_module(name)\n",
        "exec(''.join(['x = x', '.cuda()']))\n",
        "settings = yaml.safe_load('device: cuda:0\\nlr: 1')\n",
        "parser.read_string('[train]\\nbackend=nccl')\n",
    ],
)
def test_a_string_with_code_for_cuda_needs_manual_review(text: str, to: str) -> None:
    check_says("code_strings", f"import torch\n{text}", "manual", "strings are not migrated", to=to)


def test_a_text_that_exec_gets_and_that_mentions_cuda_needs_manual_review() -> None:
    check_says("code_strings", "import torch\nexec('x.' + 'to(cuda_device)')\n", "manual", "this string has code")


def test_code_that_the_file_does_not_show_is_unresolved_and_an_expression_gets_advice() -> None:
    check_says("code_strings", "import torch\nexec(open(name).read())\n", "unresolved", "was not searched")
    compiled = "import torch\nexec(compile(open(name).read(), name, 'exec'))\n"
    check_says("code_strings", compiled, "unresolved", "was not searched")
    check_says("code_strings", compiled, "advice", "was not searched", path="setup.py")
    check_says("code_strings", "import torch\nx = eval(text)\n", "advice", "was not searched")


def test_a_file_of_the_project_that_exec_runs_is_searched_itself() -> None:
    others = {"setup_gpu.py": "import torch\n"}
    check_noop("code_strings", "import torch\nexec(open('setup_gpu.py').read())\n", others=others)


def test_a_string_that_another_rule_edits_is_not_reported() -> None:
    source = "import torch\nfrom unittest import mock\nwith mock.patch('torch.cuda.is_available'):\n    pass\n"
    findings = migrate_source(source).findings
    assert [finding.status for finding in findings if finding.rule == "torch.code_strings"] == []
