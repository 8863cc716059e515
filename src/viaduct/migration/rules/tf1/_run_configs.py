"""Uses of a RunConfig: whether only ready-made estimators get it, or the vendor's converter. Not a rule."""

from __future__ import annotations

import ast

from viaduct.cards.tensorflow_api import full_name
from viaduct.migration.lookups import assigned_name, bindings_of, receiving_call
from viaduct.migration.predicates import find_argument
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


def is_for_canned(site: Site, config: ast.expr) -> bool:
    """Return True if a RunConfig goes to ready-made estimators and nowhere else."""
    uses = uses_of(site, config)
    return bool(uses) and all(is_passed_to_canned(site, use) for use in uses)


def is_converted(site: Site, config: ast.expr) -> bool:
    """Return True for a RunConfig that the vendor's converter has dealt with: all its uses go to npu_run_config_init.

    That returns a RunConfig again, which NPUEstimator refuses: a use whose result goes there does not count.
    """
    uses = uses_of(site, config)
    return bool(uses) and all(is_passed_to_init(site, use) for use in uses)


def uses_of(site: Site, config: ast.expr) -> list[ast.expr]:
    """Return the reads of the variable that a config is assigned to; the config itself if there is no variable."""
    variable = assigned_name(site, config)
    return [config] if variable is None else list(loads(site, variable))


def is_passed_to_init(site: Site, value: ast.expr) -> bool:
    """Return True if a value goes to npu_run_config_init, and the result to no NPUEstimator."""
    call = receiving_call(site, value)
    if call is None or site.qualified(call.func) != INIT:
        return False
    receivers = [receiving_call(site, use) for use in uses_of(site, call)]
    return not any(
        (site.qualified(receiver.func) or "").endswith(".NPUEstimator") for receiver in receivers if receiver
    )


def comes_from_init(site: Site, config: ast.expr | None) -> bool:
    """Return True for a config from npu_run_config_init, also if its variable is assigned something else as well."""
    if config is None:
        return False
    bindings = bindings_of(site, config) if isinstance(config, ast.Name) else []
    values = [site.values.origin(config), *bindings]
    return any(isinstance(value, ast.Call) and site.qualified(value.func) == INIT for value in values)


def is_passed_to_canned(site: Site, value: ast.expr) -> bool:
    """Return True if a value is the config of a ready-made estimator, directly or through npu_run_config_init."""
    call = receiving_call(site, value)
    if call is None:
        return False
    name = site.qualified(call.func) or ""
    if name == INIT:
        return is_passed_to_canned(site, call)
    position = CANNED.get(name.removeprefix("tensorflow.estimator."))
    return position is not None and value is find_argument(call, "config", position)
