"""Where a RunConfig goes: to ready-made estimators alone, or elsewhere too. Not a rule."""

from __future__ import annotations

import ast

from viaduct.migration.rule import Site
from viaduct.migration.rules.tf1._optimizers import loads

# The place of `config` among the positional arguments of the ready-made estimators (TensorFlow 1.15).
CANNED = {
    "BaselineClassifier": 6, "BaselineEstimator": 3, "BaselineRegressor": 5,
    "BoostedTreesClassifier": 15, "BoostedTreesEstimator": 14, "BoostedTreesRegressor": 14,
    "DNNClassifier": 10, "DNNEstimator": 8, "DNNRegressor": 9,
    "DNNLinearCombinedClassifier": 12, "DNNLinearCombinedEstimator": 9, "DNNLinearCombinedRegressor": 11,
    "LinearClassifier": 7, "LinearEstimator": 4, "LinearRegressor": 6,
}  # fmt: skip
INIT = "npu_bridge.npu_init.npu_run_config_init"


def for_canned(site: Site, made: ast.expr) -> bool:
    """Whether all that is done with a RunConfig is to give it to ready-made estimators."""
    parent = site.source.parents[made]
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1 and isinstance(parent.targets[0], ast.Name):
        uses = list(loads(site, parent.targets[0]))
        return bool(uses) and all(given_to_canned(site, use) for use in uses)
    return given_to_canned(site, made)


def given_to_canned(site: Site, value: ast.expr) -> bool:
    """As the config of one, or on its way there through npu_run_config_init."""
    parent = site.source.parents[value]
    word = parent if isinstance(parent, ast.keyword) else None
    call = site.source.parents[parent] if word is not None else parent
    if not isinstance(call, ast.Call) or value is call.func:
        return False
    name = site.qualified(call.func) or ""
    if name == INIT:
        return given_to_canned(site, call)
    position = CANNED.get(name.removeprefix("tensorflow.estimator."))
    if position is None:
        return False
    return word.arg == "config" if word is not None else call.args.index(value) == position
