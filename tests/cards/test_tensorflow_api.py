from __future__ import annotations

from viaduct.cards.tensorflow_api import (
    COLLECTIVE_PREFIXES,
    DEFINING_MODULE,
    STAR_BINDINGS,
    STAR_NAMES,
    VENDOR_MODULES,
    full_name,
)


def test_a_name_of_the_adapter_is_found_in_its_module() -> None:
    assert DEFINING_MODULE["hccl_ops"] == "npu_bridge.hccl"
    assert DEFINING_MODULE["get_rank_id"] == "hccl.manage.api"
    assert DEFINING_MODULE["NPUEstimator"] == "npu_bridge.estimator.npu.npu_estimator"


def test_a_qualified_name_of_the_adapter_is_made_from_the_name_alone() -> None:
    assert full_name("NPURunConfig") == "npu_bridge.estimator.npu.npu_config.NPURunConfig"
    assert full_name("init_resource") == "npu_bridge.npu_init.init_resource"


def test_the_star_import_binds_only_what_it_is_known_to_bind() -> None:
    assert STAR_NAMES["tf"] == "tensorflow"
    assert "NPUShutDownHook" not in STAR_NAMES
    assert set(STAR_NAMES) < set(STAR_BINDINGS)


def test_collectives_and_migrated_files_are_recognised_by_their_modules() -> None:
    assert "hccl.manage.api.get_rank_id".startswith(COLLECTIVE_PREFIXES)
    assert not "npu_bridge.npu_init.npu_hooks_append".startswith(COLLECTIVE_PREFIXES)
    assert {"hccl", "npu_bridge", "torch_npu", "torch_mlu"} == set(VENDOR_MODULES)
