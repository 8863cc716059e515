"""An MLflow file store, checked by its files and, where it can be installed, by MLflow itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runs.sample_runs import make_run
from viaduct.errors import BadValue
from viaduct.runs.listing import list_runs
from viaduct.runs.mlflow_export import check_store, clean_name, write_store

READ = """
import json, sys
from mlflow.tracking import MlflowClient
client = MlflowClient(tracking_uri=sys.argv[1])
found = {}
for experiment in client.search_experiments():
    for run in client.search_runs([experiment.experiment_id], order_by=["metrics.`validation.top1` DESC"]):
        history = client.get_metric_history(run.info.run_id, "training.loss")
        found[run.info.run_name] = {
            "experiment": experiment.name,
            "status": run.info.status,
            "lr": run.data.params["optimizer.lr"],
            "top1": run.data.metrics["validation.top1"],
            "losses": [[point.step, point.value] for point in history],
            "path": run.data.tags["viaduct.path"],
            "artifacts": [file.path for file in client.list_artifacts(run.info.run_id)],
        }
print(json.dumps(found))
"""


def make_store(folder: Path) -> Path:
    make_run(folder / "runs" / "a", lr=0.1)
    make_run(folder / "runs" / "b", lr=0.3, done=100, finished=False, name="other")
    assert write_store(list_runs([folder / "runs"]).runs, folder / "store") == 0
    return folder / "store"


def test_an_existing_path_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    with pytest.raises(BadValue, match="is there already"):
        check_store(tmp_path / "store")
    with pytest.raises(BadValue, match="there is no folder"):
        check_store(tmp_path / "missing" / "store")


def test_nothing_is_left_of_a_store_that_could_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path / "runs" / "a")
    runs = list_runs([tmp_path / "runs"]).runs

    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("viaduct.runs.mlflow_export.write_metrics", fail)
    with pytest.raises(OSError, match="No space left"):
        write_store(runs, tmp_path / "store")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]


@pytest.mark.parametrize("name", ["../../x", "a/b", ".hidden", "a\nb", "\x1b[31m", ""])
def test_no_name_leaves_its_folder(name: str) -> None:
    assert "/" not in clean_name(name)
    assert clean_name(name) not in ("", ".", "..")


def test_removing_artifacts_leaves_the_run(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    for file in store.glob("*/*/artifacts/*"):
        file.unlink()
    assert (tmp_path / "runs" / "a" / "metrics.jsonl").stat().st_size > 0


def test_metrics_are_written_with_their_steps(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    curves = [path.read_text().splitlines() for path in store.glob("*/*/metrics/training.loss")]
    assert sorted(len(lines) for lines in curves) == [10, 60]
    assert curves[0][0].split()[2] == "10"


def test_a_pruned_trial_was_killed_and_is_not_scheduled(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "a", done=100, finished=False)
    (run,) = list_runs([tmp_path / "runs"]).runs
    run.state = "pruned"
    assert write_store([run], tmp_path / "store") == 0
    (meta,) = (path.read_text() for path in (tmp_path / "store").glob("*/*/meta.yaml"))
    assert "status: 5\n" in meta
    assert "end_time: null" not in meta


@pytest.mark.slow
def test_damaged_lines_of_metrics_are_counted_in_a_tag(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs" / "a")
    with (run / "metrics.jsonl").open("a") as file:
        file.write("no JSON\n")
    make_run(tmp_path / "runs" / "b")
    write_store(list_runs([tmp_path / "runs"]).runs, tmp_path / "store")
    tags = list((tmp_path / "store").glob("*/*/tags/viaduct.damaged_lines"))
    assert [tag.read_text() for tag in tags] == ["1"]


@pytest.mark.slow
def test_mlflow_itself_reads_the_store_and_migrates_it(tmp_path: Path) -> None:
    python = install_mlflow(tmp_path / "environment")
    store = make_store(tmp_path)
    allowed = os.environ | {"MLFLOW_ALLOW_FILE_STORE": "true"}
    found = read_with(python, str(store), allowed)
    assert found["a"]["experiment"] == "made_up"
    assert (found["a"]["status"], found["b"]["status"]) == ("FINISHED", "FAILED")
    assert (found["a"]["lr"], found["a"]["path"]) == ("0.1", str(tmp_path / "runs" / "a"))
    logs = [json.loads(line) for line in (tmp_path / "runs" / "a" / "metrics.jsonl").read_text().splitlines()]
    assert found["a"]["losses"] == [[log["step"], log["loss"]] for log in logs if log["kind"] == "log"]
    assert "recipe.json" in found["a"]["artifacts"]
    if (python.parent / "mlflow").is_file():
        database = f"sqlite:///{tmp_path / 'mlflow.db'}"
        moved = subprocess.run(
            [python.parent / "mlflow", "migrate-filestore", "--source", store, "--target", database],
            capture_output=True,
            text=True,
        )
        if "No such command" not in moved.stderr:  # releases before 3.8 open the folder and need no such thing
            assert moved.returncode == 0, moved.stderr
            assert read_with(python, database, dict(os.environ)) == found


def install_mlflow(folder: Path) -> Path:
    """Return a Python with MLflow in an environment of its own; skip where there is none to be had."""
    python = folder / "bin" / "python"
    made = subprocess.run([sys.executable, "-m", "venv", folder], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no environment can be made: {made.stderr[-200:]}")
    installed = subprocess.run([python, "-m", "pip", "install", "-q", "mlflow"], capture_output=True, text=True)
    if installed.returncode:
        pytest.skip(f"MLflow cannot be installed: {installed.stderr[-200:]}")
    return python


def read_with(python: Path, uri: str, environment: dict[str, str]) -> dict[str, dict[str, object]]:
    read = subprocess.run([python, "-c", READ, uri], capture_output=True, text=True, env=environment)
    assert read.returncode == 0, read.stderr
    found: dict[str, dict[str, object]] = json.loads(read.stdout.splitlines()[-1])
    return found
