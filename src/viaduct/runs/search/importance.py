"""Importance of hyper-parameters: how much each one decides whether a trial is among the best.

PED-ANOVA (Watanabe, Bansal, Hutter 2023) compares the distribution of a parameter in the best tenth of the trials with
its distribution in all trials. It needs neither a regression model nor scikit-learn.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from viaduct.runs.search.results import TrialResult

if TYPE_CHECKING:
    from optuna import Study

MIN_TRIALS = 10  # finished trials, including past runs; with fewer, the importance would be random


def measure_importance(study: Study) -> dict[str, float] | None:
    """Return the importance of each parameter, the largest first; None if it cannot be measured. The sum is 1."""
    import optuna
    from optuna.importance import PedAnovaImportanceEvaluator
    from optuna.trial import TrialState

    finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len(finished) < MIN_TRIALS or len({trial.value for trial in finished}) < 2:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        importance = optuna.importance.get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
    return importance if sum(importance.values()) > 0 else None


def explain_missing_importance(results: Sequence[TrialResult]) -> str:
    """Explain why these trials show no importance."""
    finished = sum(result.is_measured for result in results)
    if finished < MIN_TRIALS:
        return f"{finished} finished {'trial' if finished == 1 else 'trials'}; {MIN_TRIALS} are needed"
    return "no parameter separates the best trials from the others"
