"""Importance of each parameter: how much it decides whether a trial is among the best (PED-ANOVA).

PED-ANOVA (Watanabe, Bansal, Hutter 2023) compares where the best tenth of the trials lie with where all of them lie; it
needs no regression model and so no scikit-learn. With few trials its answer is chance, so none is given.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optuna import Study

MIN_TRIALS = 10
"""Trials trained to their end, past runs included, that are needed."""


def measure_importance(study: Study) -> dict[str, float] | None:
    """Return the share of each parameter, the largest first; None if too few trials finished or nothing differs."""
    import optuna
    from optuna.importance import PedAnovaImportanceEvaluator
    from optuna.trial import TrialState

    finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len(finished) < MIN_TRIALS or len({trial.value for trial in finished}) < 2:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        shares = optuna.importance.get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
    return shares if sum(shares.values()) > 0 else None


def explain_missing(finished: int) -> str:
    """Return why no importance is given after so many finished trials."""
    if finished < MIN_TRIALS:
        return f"{finished} finished {'trial' if finished == 1 else 'trials'}; {MIN_TRIALS} are needed"
    return "no parameter separates the best trials from the others"
