"""Start and end of the device's resources without a session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from viaduct.rehearsal.tf1_stage import state
from viaduct.rehearsal.tf1_stage.site.npu_bridge.estimator.npu import npu_plugin


@pytest.fixture(autouse=True)
def reset() -> Iterator[None]:
    yield
    state.set_communication(False)
    npu_plugin.set_device_sat_mode(1)


@pytest.mark.parametrize(
    "options",
    [{"graph_run_mode": 2}, {"precision_mode": "fp16"}, {"aoe_mode": "3"}, {"precision_mode_v2": "force_fp16"},
     {"enable_exception_dump": 3}, {"work_path": "/no/such/folder"}],
)  # fmt: skip
def test_options_that_cann_refuses_start_nothing(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        npu_plugin.npu_resource_init(**options)
    assert not state.has_communication()


def test_communication_lasts_from_the_start_to_the_end(tmp_path: Path) -> None:
    npu_plugin.npu_resource_init(precision_mode="allow_mix_precision", work_path=str(tmp_path))
    assert state.has_communication()
    npu_plugin.npu_close()
    assert not state.has_communication()


def test_saturation_is_off_unless_it_is_switched_on() -> None:
    assert npu_plugin.is_inf_nan_enabled()
    npu_plugin.set_device_sat_mode(0)
    assert not npu_plugin.is_inf_nan_enabled()
    with pytest.raises(ValueError, match="0 or 1"):
        npu_plugin.set_device_sat_mode(2)
