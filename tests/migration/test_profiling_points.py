"""`migrate --profile DIR --profile-points RECORD`: the points of a rehearsal's graph reach the script and env.sh."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from migration.checking import migrate_source
from viaduct.cards.cann_options import PROFILING_POINTS_FILE
from viaduct.errors import BadData, BadValue
from viaduct.migration.checks import check_options
from viaduct.migration.options import Options
from viaduct.migration.profiling_points import read_points
from viaduct.migration.run import migrate_project
from viaduct.migration.start_scripts import render_start_scripts

POINTS = ("resnet_model/conv2d/Conv2D", "gradients/AddN_70")
ASKED = {"profile": "/tmp/p", "profile_points": POINTS}
WRITTEN = (
    '{"output": "/tmp/p", "training_trace": "on", "fp_point": "resnet_model/conv2d/Conv2D", '
    '"bp_point": "gradients/AddN_70"}'
)
SESSION = "import tensorflow as tf\nsess = tf.Session()\nsess.run(tf.global_variables_initializer())\nsess.close()\n"
ESTIMATOR = 'import tensorflow as tf\nconfig = tf.estimator.RunConfig(model_dir="out")\n'


def test_without_a_record_the_points_stay_empty() -> None:
    after = migrate_source(SESSION, profile="/tmp/p").after.decode()
    assert '{"output": "/tmp/p", "training_trace": "on", "fp_point": "", "bp_point": ""}' in after


@pytest.mark.parametrize("source", [SESSION, ESTIMATOR])
def test_the_points_stand_in_the_options_of_sessions_and_estimators(source: str) -> None:
    assert WRITTEN in migrate_source(source, **ASKED).after.decode()


def test_env_sh_carries_the_variables(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SESSION)
    scripts = render_start_scripts(migrate_project(tmp_path, Options(**ASKED), jobs=1))  # type: ignore[arg-type]
    assert f"PROFILING_OPTIONS='{WRITTEN}'" in scripts["scripts/env.sh"]
    assert 'export PROFILING_MODE="${PROFILING_MODE:-false}"' in scripts["scripts/env.sh"]
    plain = render_start_scripts(migrate_project(tmp_path, Options(), jobs=1))["scripts/env.sh"]
    assert '"output": "/tmp/profiling", "training_trace": "on", "fp_point": ""' in plain


def test_points_without_a_profile_are_refused() -> None:
    with pytest.raises(BadValue, match="--profile-points without --profile"):
        check_options(Options(profile_points=POINTS))


def test_a_record_and_its_file_are_read(tmp_path: Path) -> None:
    (tmp_path / PROFILING_POINTS_FILE).write_text(json.dumps({"fp_point": POINTS[0], "bp_point": POINTS[1]}))
    assert read_points(tmp_path) == read_points(tmp_path / PROFILING_POINTS_FILE) == POINTS
    (tmp_path / PROFILING_POINTS_FILE).write_text(json.dumps({"bp_point": POINTS[1]}))
    assert read_points(tmp_path) == ("", POINTS[1])


def test_what_carry_leaves_holds_the_record_of_the_migrated_script(tmp_path: Path) -> None:
    record = tmp_path / "runs" / "migrated"
    record.mkdir(parents=True)
    (record / PROFILING_POINTS_FILE).write_text(json.dumps({"fp_point": POINTS[0], "bp_point": POINTS[1]}))
    assert read_points(tmp_path) == POINTS


def test_a_folder_that_is_no_such_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"there is no profiling_points\.json in"):
        read_points(tmp_path)


@pytest.mark.parametrize("text", ["", "[1]", '{"fp_point": 3}', "{"])
def test_a_damaged_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / PROFILING_POINTS_FILE).write_text(text)
    with pytest.raises(BadData, match=PROFILING_POINTS_FILE):
        read_points(tmp_path)
