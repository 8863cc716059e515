"""The helper is imported where torch is: a file that starts without torch still does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from migration.checking import check_rewrite, migrate_source

OPTIONAL = """
    try:
        import torch
    {helper}except ImportError:
        torch = None
    def wait():
        if torch is not None:
            {home}.synchronize()
    """
HELPER = "from accelerator_device import accelerator\n"


def test_without_torch_a_script_that_can_do_without_starts(tmp_path: Path) -> None:
    source = "try:\n    import torch\n    FAST = torch.cuda.is_available()\nexcept ImportError:\n    FAST = None\n"
    (tmp_path / "script.py").write_bytes(migrate_source(source + "print('FAST', FAST)\n", to="any").after)
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')\n")
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout == "FAST None\n", done.stderr


def test_a_module_whose_functions_fetch_torch_does_not_fetch_it() -> None:
    before = """
    def main():
        import torch
        torch.cuda.synchronize()
    def other(x):
        \"\"\"Moves.\"\"\"
        return x.cuda()
    class Held:
        import torch as t
        fast = t.cuda.is_available()
    """
    after = """
    def main():
        import torch
        from accelerator_device import accelerator
        accelerator.synchronize()
    def other(x):
        \"\"\"Moves.\"\"\"
        from accelerator_device import accelerator
        return x.to(accelerator.device())
    class Held:
        import torch as t
        from accelerator_device import accelerator
        fast = accelerator.is_available()
    """
    check_rewrite("", before, after, to="any")


def test_an_optional_torch_stays_optional_and_that_is_reported() -> None:
    before = OPTIONAL.format(helper="", home="torch.cuda")
    after = OPTIONAL.format(helper=f"    {HELPER}    ", home="accelerator")
    result = check_rewrite("", before, after, to="any")
    assert any(finding.rule == "engine.imports" and finding.status == "advice" for finding in result.findings)


def test_an_import_for_type_checkers_or_of_the_main_program_is_none_for_functions() -> None:
    before = """
    from typing import TYPE_CHECKING
    if TYPE_CHECKING:
        import torch
    def move(x: torch.Tensor) -> torch.Tensor:
        return x.cuda()
    if __name__ == "__main__":
        import torch
        torch.cuda.init()
    """
    after = """
    from typing import TYPE_CHECKING
    if TYPE_CHECKING:
        import torch
    def move(x: torch.Tensor) -> torch.Tensor:
        from accelerator_device import accelerator
        return x.to(accelerator.device())
    if __name__ == "__main__":
        import torch
        from accelerator_device import accelerator
        accelerator.init()
    """
    check_rewrite("", before, after, to="any")


def test_a_use_that_no_function_holds_takes_it_to_the_top() -> None:
    source = "def f():\n    import torch\n    torch.cuda.init()\ndef g(device='cuda'):\n    pass\n"
    assert migrate_source(source, to="any").after.decode().startswith(HELPER)


def test_a_later_run_gives_it_to_a_function_that_is_new() -> None:
    first = migrate_source("def f():\n    import torch\n    torch.cuda.init()\n", to="any").after.decode()
    after = migrate_source(first + "def g():\n    import torch\n    torch.cuda.init()\n", to="any").after.decode()
    assert after.count(HELPER) == 2
    assert "any_accelerator" not in after


def test_torch_at_the_top_is_followed_there() -> None:
    source = "import torch\ndef f():\n    import torch\n    torch.cuda.init()\n"
    check_rewrite(
        "", source, source.replace("torch\ndef", f"torch\n{HELPER}def").replace("torch.cuda", "accelerator"), to="any"
    )
