"""Environment variables in Python code."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite

HEAD = "import os\nimport subprocess\nimport torch\n"


OLD, NEW = "CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"


@pytest.mark.parametrize(
    "source",
    [
        f"# {OLD}\nprint('{OLD}=0')\nhelp = '{OLD}'\n",
        f"names = ['{OLD}']\n",
        f"table = {{'{OLD}': 1}}\n",
        f"print(f'{OLD}={{x}}')\n",
        f"url = 'http://a.b/{OLD}'\n",
    ],
)
def test_what_is_no_variable_stays(source: str) -> None:
    check_noop("visible_devices", HEAD + source)


@pytest.mark.parametrize(
    "line",
    [
        "os.environ['{}'] = '0,1'",
        "os.environ['{}'] = '-1'",
        "os.environ.setdefault('{}', '0')",
        "os.environ.get('{}', '')",
        "os.getenv('{}')",
        "os.putenv('{}', '3')",
        "del os.environ['{}']",
        "if '{}' in os.environ:\n    pass",
        "os.environ.update({{'{}': '0'}})",
        "env = os.environ.copy()\nenv['{}'] = '0'",
        "env = dict(os.environ, {}='0')",
        "subprocess.run(['a'], env={{**os.environ, '{}': '0'}})",
        "os.system('{}=0,1 python a.py')",
        "os.system(f'{}={{i}} python a.py')",
        "subprocess.run('{}=0 python a.py', shell=True)",
    ],
)
def test_the_variable_becomes_the_cards(line: str) -> None:
    check_rewrite("visible_devices", HEAD + line.format(OLD) + "\n", HEAD + line.format(NEW) + "\n")
    after = HEAD + line.format("MLU_VISIBLE_DEVICES") + "\n"
    check_rewrite("visible_devices", HEAD + line.format(OLD) + "\n", after, to="mlu")
