"""PROFILING_MODE, PROFILING_OPTIONS and --profile: what they ask for, and what is refused with the place named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from viaduct.errors import BadValue
from viaduct.profiling.options import (
    UNUSED_KEYS,
    USED_KEYS,
    ProfilingOptions,
    Window,
    choose_default_window,
    parse_options,
    parse_window,
    read_environment,
)

BOOK = (  # listing 5-57 as the book prints it: a blank in a key, typographic quotes where it was copied from a page
    '{"output":"/tmp/profiling","training_trace":"on","task_ trace":"on","aicpu":"on","fp_point":"conv1",'
    '"bp_point":"gradients/AddN_70","aic_metrics": "PipeUtilization"}'
)


def options(**given: object) -> ProfilingOptions:
    return parse_options(json.dumps(given))


@pytest.mark.parametrize("variables", [{}, {"PROFILING_MODE": "false"}, {"PROFILING_MODE": ""}])
def test_without_the_mode_nothing_is_profiled_whatever_the_options(variables: dict[str, str]) -> None:
    assert read_environment({**variables, "PROFILING_OPTIONS": "no JSON at all"}) is None


def test_a_mode_that_is_neither_true_nor_false_is_refused() -> None:
    with pytest.raises(BadValue, match="PROFILING_MODE is 'yes'; it is true or false"):
        read_environment({"PROFILING_MODE": "yes"})


def test_the_mode_alone_profiles_everything_into_the_run() -> None:
    assert read_environment({"PROFILING_MODE": "True"}) == ProfilingOptions()


def test_the_keys_of_the_book_are_read_and_those_without_meaning_named(tmp_path: Path) -> None:
    text = BOOK.replace("task_ trace", "task_trace").replace("/tmp/profiling", str(tmp_path))
    found = read_environment({"PROFILING_MODE": "true", "PROFILING_OPTIONS": text})
    assert found is not None
    assert (found.output, found.operators, found.fp_point) == (tmp_path, True, "conv1")
    assert found.bp_point == "gradients/AddN_70"
    assert len(found.notes) == 1
    assert "aicpu, aic_metrics have no effect here" in found.notes[0]


def test_a_key_with_a_blank_inside_is_refused_with_the_key_that_is_meant() -> None:
    with pytest.raises(BadValue, match="'task_ trace' contains spaces") as error:
        parse_options(BOOK)
    assert "'task_trace'" in str(error.value)


@pytest.mark.parametrize(
    ("text", "where", "hint"),
    [
        ("{“output”: “/tmp”}", "at character 2, in '{“output”", "typographic quotes"),
        ('{"output": "/tmp",\n "task_\ntrace": "on"}', "control character at", "line break or a tab inside"),
        ("{'output': '/tmp'}", "at character 2", "double quotes"),
        ('{"output": "/tmp"', "at character 18", "For example"),
        ('["output"]', "not a JSON object", "For example"),
    ],
)
def test_a_text_that_is_no_json_is_refused_at_its_place(text: str, where: str, hint: str) -> None:
    with pytest.raises(BadValue) as error:
        parse_options(text)
    assert where in str(error.value)
    assert hint in str(error.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"taks_trace": "on"}, "no key is called 'taks_trace'.\n  Closest is 'task_trace'"),
        ({"task_trace": True}, 'task_trace is true; it is "on" or "off"'),
        ({"aic_metrics": "PipeUtilisation"}, "Closest is 'PipeUtilization'"),
        ({"fp_point": 3}, "fp_point is 3; it must be a text"),
        ({"storage_limit": "20MB"}, 'storage_limit is "20MB"; it must be at least 200MB'),
        ({"storage_limit": 300}, "storage_limit is 300"),
        ({"training_trace": "off", "task_trace": "off"}, "nothing is left to profile"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(BadValue) as error:
        options(**given)
    assert message in str(error.value)


def test_a_key_that_comes_twice_is_refused() -> None:
    with pytest.raises(BadValue, match="'hccl' twice"):
        parse_options('{"hccl": "on", "hccl": "off"}')


def test_an_output_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadValue, match="which is a file"):
        options(output=str(tmp_path / "file"))


def test_switches_and_limits_are_read() -> None:
    found = options(task_trace="off", hccl="off", storage_limit="500MB")
    assert (found.operators, found.collectives, found.storage_limit) == (False, False, 500_000_000)
    assert found.notes == ()


def test_operators_without_a_step_trace_are_reported_to_come_with_one() -> None:
    assert "the step trace is recorded anyway" in options(training_trace="off").notes[0]


def test_every_key_is_either_used_or_named_as_unused() -> None:
    assert not set(USED_KEYS) & set(UNUSED_KEYS)
    for key in UNUSED_KEYS:
        value = "PipeUtilization" if key == "aic_metrics" else "on"
        assert key in options(**{key: value}).notes[0]


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "20-10", "1.5", "0-5,100-120", "٣"])
def test_what_is_no_range_of_steps_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match="--profile is"):
        parse_window(text)


def test_ranges_and_single_steps_are_read() -> None:
    assert parse_window("100-120") == Window(100, 120)
    assert parse_window(" 7 ") == Window(7, 7)
    assert (str(Window(7, 7)), str(Window(0, 5)), len(Window(100, 120))) == ("7", "0-5", 21)


@pytest.mark.parametrize(("steps", "recorded"), [(1, 0), (2, 1), (3, 2), (8, 2), (21, 5), (500, 5)])
def test_a_few_of_the_last_steps_are_recorded_and_never_all(steps: int, recorded: int) -> None:
    assert Window(10, 9 + steps).count_recorded() == recorded


@pytest.mark.parametrize(
    ("start", "steps", "window"),
    [(0, 1000, Window(10, 29)), (500, 1000, Window(510, 529)), (0, 25, Window(5, 24)), (0, 3, Window(0, 2))],
)
def test_the_mode_profiles_twenty_steps_after_ten_or_the_last_ones(start: int, steps: int, window: Window) -> None:
    assert choose_default_window(start, steps) == window
