"""Importance of each parameter for a trial to be among the best (PED-ANOVA).

PED-ANOVA (Watanabe, Bansal, Hutter 2023) compares the distribution of the best tenth of the trials with that of all
trials; it needs neither a regression model nor scikit-learn. Few trials would give a random result.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optuna import Study

MIN_TRIALS = 10  # trials trained to their end, including past runs


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
    """Explain why no importance is given after this number of finished trials."""
    if finished < MIN_TRIALS:
        return f"{finished} finished {'trial' if finished == 1 else 'trials'}; {MIN_TRIALS} are needed"
    return "no parameter separates the best trials from the others"
