"""Uses of a RunConfig: by ready-made estimators alone, or elsewhere too. Not a rule."""

from __future__ import annotations

import ast

from viaduct.cards.tensorflow_api import full_name
from viaduct.migration.rule import Site
from viaduct.migration.rules.tf1._optimizers import loads

# The position of `config` among the positional arguments of the ready-made estimators (TensorFlow 1.15).
CANNED = {
    "BaselineClassifier": 6, "BaselineEstimator": 3, "BaselineRegressor": 5,
    "BoostedTreesClassifier": 15, "BoostedTreesEstimator": 14, "BoostedTreesRegressor": 14,
    "DNNClassifier": 10, "DNNEstimator": 8, "DNNRegressor": 9,
    "DNNLinearCombinedClassifier": 12, "DNNLinearCombinedEstimator": 9, "DNNLinearCombinedRegressor": 11,
    "LinearClassifier": 7, "LinearEstimator": 4, "LinearRegressor": 6,
}  # fmt: skip
INIT = full_name("npu_run_config_init")


def for_canned(site: Site, made: ast.expr) -> bool:
    """Return True if a RunConfig goes to ready-made estimators and nowhere else."""
    parent = site.source.parents[made]
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1 and isinstance(parent.targets[0], ast.Name):
        uses = list(loads(site, parent.targets[0]))
        return bool(uses) and all(given_to_canned(site, use) for use in uses)
    return given_to_canned(site, made)


def is_converted(site: Site, made: ast.expr) -> bool:
    """Return True for a RunConfig that the vendor's converter has dealt with: all its uses go to npu_run_config_init.

    That returns a RunConfig again, which NPUEstimator refuses: a result that goes there does not count.
    """
    uses = uses_of(site, made)
    return bool(uses) and all(given_to_init(site, use) for use in uses)


def uses_of(site: Site, made: ast.expr) -> list[ast.expr]:
    parent = site.source.parents[made]
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1 and isinstance(parent.targets[0], ast.Name):
        return list(loads(site, parent.targets[0]))
    return [made]


def given_to_init(site: Site, value: ast.expr) -> bool:
    parent = site.source.parents[value]
    call = site.source.parents[parent] if isinstance(parent, ast.keyword) else parent
    if not isinstance(call, ast.Call) or value is call.func or site.qualified(call.func) != INIT:
        return False
    return not any(is_given_to_npu_estimator(site, use) for use in uses_of(site, call))


def is_given_to_npu_estimator(site: Site, value: ast.expr) -> bool:
    parent = site.source.parents[value]
    call = site.source.parents[parent] if isinstance(parent, ast.keyword) else parent
    return isinstance(call, ast.Call) and (site.qualified(call.func) or "").endswith(".NPUEstimator")


def comes_from_init(site: Site, config: ast.expr | None) -> bool:
    """Return True for a config from npu_run_config_init, also if its variable is assigned something else as well."""
    if config is None:
        return False
    made: list[object] = [site.values.origin(config)]
    if isinstance(config, ast.Name):
        made += site.work.names.lookup(config.id, site.work.names.scope_of(config)) or []
    return any(isinstance(node, ast.Call) and site.qualified(node.func) == INIT for node in made)


def given_to_canned(site: Site, value: ast.expr) -> bool:
    """Return True if a value is the config of a ready-made estimator, directly or through npu_run_config_init."""
    parent = site.source.parents[value]
    keyword = parent if isinstance(parent, ast.keyword) else None
    call = site.source.parents[parent] if keyword is not None else parent
    if not isinstance(call, ast.Call) or value is call.func:
        return False
    name = site.qualified(call.func) or ""
    if name == INIT:
        return given_to_canned(site, call)
    position = CANNED.get(name.removeprefix("tensorflow.estimator."))
    if position is None:
        return False
    return keyword.arg == "config" if keyword is not None else call.args.index(value) == position
