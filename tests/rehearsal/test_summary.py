"""The lines that the user sees at the end of a rehearsal."""

from __future__ import annotations

import pytest

from viaduct.rehearsal.plan import Plan
from viaduct.rehearsal.summary import Summary, advise, describe_end, describe_summary


@pytest.mark.parametrize(
    ("failure", "steps", "is_reported"),
    [
        ("tensorflow.python.framework.errors_impl.NotFoundError: data/mnist.tfrecords", 0, True),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'data'", 0, True),
        ("errors_impl.NotFoundError: Key dense/bias not found in checkpoint", 0, False),
        ("tensorflow.python.framework.errors_impl.OutOfRangeError: End of sequence", 0, True),  # no file matched
        ("tensorflow.python.framework.errors_impl.OutOfRangeError: End of sequence", 3, False),  # all was read
        ("ValueError: bad shape", 0, False),
    ],
)
def test_missing_data_is_distinguished_from_other_failures(failure: str, steps: int, is_reported: bool) -> None:
    plan = Plan("original", "tf1", "train.py", (), "record", "work")
    found = Summary("", "original", "tf1", "train.py", [], 1, None, 1, steps=steps, failure=failure)
    assert any("Data is missing" in line and failure in line for line in advise(found, plan)) == is_reported


@pytest.mark.parametrize(
    ("modes", "expected"),
    [
        ("off", "limits not checked"),
        ("off,float64=warn", "no limit met (only float64 was checked)"),
        ("warn,float64=off", "no limit met (not checked: float64)"),
        ("error", "no limit met"),
    ],
)
def test_limits_that_were_not_checked_are_not_said_to_be_unmet(modes: str, expected: str) -> None:
    plan = Plan("npu", "torch", "train.py", (), "record", limit_modes=modes)
    summary = Summary("", "npu", "torch", "train.py", [], 1, None, 0, steps=1)
    assert f"MiB at most, {expected}, exit code 0." in describe_summary(summary, plan)[0]


def test_an_exit_code_that_is_no_signals_is_named_as_a_code() -> None:
    """sys.exit(-1) gives 255."""
    assert describe_end(137) == "was ended by SIGKILL"
    assert describe_end(255) == "ended with exit code 255"


def test_a_module_that_may_be_the_projects_own_is_not_called_a_package() -> None:
    plan = Plan("original", "torch", "train.py", (), "record", "work")
    failure = "ModuleNotFoundError: No module named 'helpers.net'"
    made = Summary("", "original", "torch", "train.py", [], 1, None, 1, failure=failure)
    assert advise(made, plan) == ["No module 'helpers.net' was found. If helpers is a package: pip install helpers"]


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        ("NotImplementedError: A rehearsal does not capture NPU graphs.", "The rehearsal cannot run this script: "),
        ("NotImplementedError: viaduct's stand-in has no Adasum", "The rehearsal cannot run this script: "),
        ("NotImplementedError: Model.forward", "The script failed: "),
        ("ValueError: the rehearsal of the choir", "The script failed: "),
    ],
)
def test_what_the_stand_in_lacks_is_not_called_a_failure_of_the_script(failure: str, expected: str) -> None:
    plan = Plan("npu", "torch", "train.py", (), "record", "work")
    made = Summary("", "npu", "torch", "train.py", [], 1, None, 1, failure=failure)
    assert advise(made, plan) == [expected + failure]


def test_an_error_of_viaduct_is_not_called_a_failure_of_the_script() -> None:
    plan = Plan("npu", "torch", "train.py", (), "record", "work")
    failure = "viaduct.rehearsal.limits.StandInFails: FileNotFoundError: [Errno 2] No such file or directory: 'x'"
    made = Summary("", "npu", "torch", "train.py", [], 1, None, 1, failure=failure)
    (line,) = advise(made, plan)
    assert line.startswith("The rehearsal failed, not the script: ")
    assert line.endswith("This is a fault of viaduct; please report it.")
