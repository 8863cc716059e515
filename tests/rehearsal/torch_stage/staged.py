"""Tests whose body runs on a stand-in device, each in a separate process, since a process has only one such device."""

from __future__ import annotations

import functools
import importlib
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from forked_viaduct import start_command
from viaduct.rehearsal import limits


def on(stage: str, **environment: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The test's body, in a process with the device `npu` or `mlu`, or `cuda` as for a script that was not migrated."""

    def run_on_stage(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            with start_command(perform, stage, test.__module__, test.__name__, fixtures, environment) as command:
                out, stderr = command.communicate()
            assert command.returncode == 0, out + stderr

        return run

    return run_on_stage


def perform(stage: str, module: str, test: str, fixtures: dict[str, Any], environment: dict[str, str]) -> None:
    os.environ.update(environment)
    warnings.simplefilter("error")
    from viaduct.rehearsal import torch_stage

    # The test is the script: limits name its lines.
    sys.argv = [importlib.import_module(module).__file__ or ""]
    if stage == "cuda":
        torch_stage.install_cuda_as_cpu()
    else:
        torch_stage.install(stage)
    try:
        getattr(sys.modules[module], test).__wrapped__(**fixtures)
    except BaseException:
        traceback.print_exc()
        raise SystemExit(1) from None


def expect_refusal(name: str) -> pytest.RaisesExc[limits.CardRefuses]:
    """Expect that the card refuses what the block does, by this limit."""
    return pytest.raises(limits.CardRefuses, match=rf"\[{name}\]")
