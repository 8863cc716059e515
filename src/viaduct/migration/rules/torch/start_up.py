"""Set the compile mode and tensor formats of the NPU before anything runs on it.

With `--start-up`:

     import torch
    +import torch_npu
     def main():
         torch.npu.set_device(0)
     if __name__ == "__main__":
    +    torch.npu.set_compile_mode(jit_compile=False)
    +    torch.npu.config.allow_internal_format = False
         main()

With jit_compile off, operators are precompiled instead of compiled for every new shape; without internal formats
tensors are not converted to other layouts and back. Both settings are per process: with `mp.spawn` they are written
into the worker. Results may change by rounding. Without `--start-up` the rule only advises.
"""

from __future__ import annotations

import ast

from viaduct.migration.lookups import calls_to, plain_name
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules import _entry
from viaduct.migration.rules.torch._plugin_use import uses_card

rule = Rule(__name__, spec_rows=("P26",), category="performance", targets=("npu",), after=("data_parallel_ddp",))

SPAWN_FUNCTIONS = ("torch.multiprocessing.spawn", "torch.multiprocessing.spawn.spawn")
SETTINGS = ("{torch}.npu.set_compile_mode(jit_compile=False)", "{torch}.npu.config.allow_internal_format = False")


# A device may also be given by its number alone: `x.to(rank)`.
@rule.file(only_if_file_contains=("npu", ".to(", "device"))
def set_or_advise(site: Site) -> None:
    """Write or advise the settings before the first statement of the worker or of the main guard."""
    root = site.file.names.local_name("torch")
    if "set_compile_mode" in site.source.attributes or root is None or not uses_card(site):
        return
    guard = _entry.find_main_guard(site)
    location = find_start_of_worker(site) or (guard.body[0] if guard is not None else None)
    if location is None:
        return
    lines = [line.format(torch=root) for line in SETTINGS]
    if site.options.start_up:
        site.edit.insert_before(location, lines)
        site.report_change(
            "compile mode and tensor formats of the NPU are set before it is used",
            zh="在使用 NPU 之前设置编译模式与内部格式",
            node=location,
        )
    else:
        site.advise(
            f"for speed, write here: {'; '.join(lines)} (--start-up writes it)",
            zh=f"为提升性能,请在此加入:{';'.join(lines)}(--start-up 可自动写入)",
            node=location,
        )


def find_start_of_worker(site: Site) -> ast.stmt | None:
    """Return the first statement, after the docstring, of the function that mp.spawn starts, if it is in this file."""
    names = {plain_name(call.args[0]) for call in calls_to(site, SPAWN_FUNCTIONS) if call.args}
    for function in site.source.tree.body:
        if isinstance(function, ast.FunctionDef) and function.name in names:
            return _entry.first_statement(function)
    return None
