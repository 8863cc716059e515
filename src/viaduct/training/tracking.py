"""Experiment trackers as callbacks: `--track mlflow`, `--track wandb`, or both separated by a comma.

Their packages are optional and imported when a run begins; the packages' own settings (MLFLOW_TRACKING_URI, WANDB_MODE,
…) decide where records go. RUN/tracking.json has the tracker's id of the run, so that a resumed run continues the same
record. TensorBoard's events are written in every run; `--track tensorboard` is accepted and adds nothing.
"""

from __future__ import annotations

import importlib
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from viaduct.errors import BadValue
from viaduct.recipes import Recipe
from viaduct.recipes._fields import to_record
from viaduct.run_files import read_json_object
from viaduct.training.callbacks import Callback, LogRecord
from viaduct.training.rundir import write_json

if TYPE_CHECKING:
    from viaduct.training.loop import Training
    from viaduct.training.metrics import Score

TRACKING_FILE = "tracking.json"  # in the run's directory: {tracker: its id of the run}
MAX_VALUE_CHARACTERS = 500  # MLflow's limit for the value of a parameter
LOGGED_FIELDS = ("loss", "total_loss", "top1", "lr", "images_per_s", "loss_scale")  # of a LogRecord


class MlflowClient:
    """MLflow with its configured tracking store."""

    def __init__(self) -> None:
        self.mlflow = import_tracker("mlflow")

    def start_run(self, name: str, resumed_id: str | None, parameters: dict[str, str]) -> str:
        """Start a run, or resume the one with the id `resumed_id`; return the run's id."""
        run = self.mlflow.start_run(run_id=resumed_id) if resumed_id else self.mlflow.start_run(run_name=name)
        if not resumed_id:
            self.mlflow.log_params(parameters)
        return str(run.info.run_id)

    def write(self, values: dict[str, float], step: int) -> None:
        self.mlflow.log_metrics(values, step=step)

    def finish_run(self, finished: bool) -> None:
        self.mlflow.end_run(status="FINISHED" if finished else "KILLED")


class WandbClient:
    """Weights & Biases, in the mode of WANDB_MODE; the same methods as MlflowClient."""

    def __init__(self) -> None:
        self.wandb = import_tracker("wandb")

    def start_run(self, name: str, resumed_id: str | None, parameters: dict[str, str]) -> str:
        self.run = self.wandb.init(project="viaduct", name=name, id=resumed_id, resume="allow", config=parameters)
        return str(self.run.id)

    def write(self, values: dict[str, float], step: int) -> None:
        self.run.log(values, step=step)

    def finish_run(self, finished: bool) -> None:
        self.run.finish(exit_code=0 if finished else 1)


CLIENTS: dict[str, type[MlflowClient] | type[WandbClient]] = {"mlflow": MlflowClient, "wandb": WandbClient}


class Tracking(Callback):
    """Sends log lines and evaluations to a tracker."""

    def __init__(self, name: str) -> None:
        self.name, self.client = name, CLIENTS[name]()

    def start(self, training: Training) -> None:
        file = training.run.path / TRACKING_FILE
        ids = read_json_object(file) if file.is_file() else {}
        path, parameters = training.run.path, flatten(to_record(training.recipe))
        resumed_id = ids.get(self.name) if training.step else None
        ids[self.name] = self.client.start_run(path.resolve().name, resumed_id, parameters)
        write_json(file, ids)

    def log(self, training: Training, record: LogRecord) -> None:
        values = {f"train/{key}": float(value) for key, value in asdict(record).items() if key in LOGGED_FIELDS}
        self.client.write(values, record.step)

    def evaluation(self, training: Training, score: Score) -> None:
        figures = score.to_record().items()
        values = {f"validation/{key}": float(value) for key, value in figures if isinstance(value, int | float)}
        self.client.write(values, training.step)

    def end(self, training: Training, outcome: str) -> None:
        self.client.finish_run(outcome == "finished")


def build_trackers(recipe: Recipe) -> list[Callback]:
    """Return the callbacks of the trackers that the recipe names; raise BadValue if a package is not installed."""
    return [Tracking(name) for name in recipe.log.trackers if name in CLIENTS]


def import_tracker(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        message = f"--track {package} needs the package {package}, which is not installed."
        raise BadValue(message, f"pip install {package}") from None


def flatten(record: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Return the values of a recipe's record by path, such as "optimizer.lr", as text.

    The key "is" of a part, which names its class (recipes/_fields.py), is left out.
    """
    texts: dict[str, str] = {}
    for key, value in record.items():
        if isinstance(value, dict) and "is" in value:
            texts |= flatten(value, f"{prefix}{key}.")
        elif key != "is":
            texts[prefix + key] = str(value)[:MAX_VALUE_CHARACTERS]
    return texts
