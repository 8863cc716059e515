from __future__ import annotations

import pytest

from viaduct.benching import starts
from viaduct.benching.starts import (
    StartFailed,
    StartRequest,
    StartResults,
    explain_end,
    format_starts,
    measure_start,
    measure_starts,
)


@pytest.mark.process
def test_a_start_that_fails_says_its_last_words() -> None:
    with pytest.raises(StartFailed, match="no recipe called 'nobody'"):
        measure_start(StartRequest("nobody", [], "cpu", "synthetic"))


def test_a_warning_is_not_the_reason_of_a_start_that_was_killed() -> None:
    warning = ["UserWarning: expandable segments are not supported"]
    assert explain_end(-9, 20.0, warning).startswith("it was ended by SIGKILL; its last line was: UserWarning")
    assert explain_end(-9, 20.0, []) == "it was ended by SIGKILL; it printed no message"
    assert explain_end(-9, 1800.0, warning) == "it had not taken its first step after 30 minutes and was killed"
    assert explain_end(2, 20.0, ["no memory"]) == "no memory"
    assert explain_end(2, 20.0, []) == "it ended with exit code 2 and no message"


@pytest.mark.process
def test_a_variant_whose_start_fails_is_named_and_has_no_times() -> None:
    lines: list[str] = []
    found, failed = measure_starts(
        [("ours", StartRequest("shapes_taster", [("mode", "slow")], "cpu", "synthetic"))], lines.append
    )
    assert found == {}
    assert "mode=slow" in failed["ours"]
    assert lines[0] == "ours: start 1 of 4, in a separate process"
    assert len(lines) == 2
    assert "mode=slow" in lines[1]


def test_the_times_are_sent_before_the_variant_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    class Loop:
        def run_first_step(self) -> None:
            calls.append("step")

        def close(self) -> None:
            calls.append("close")

    monkeypatch.setattr(starts, "build_variant", lambda request: (Loop(), lambda: calls.append("wait")))
    request = StartRequest("shapes_taster", [], "cpu", "synthetic")
    starts.run_child(request, lambda seconds: calls.append(" ".join(seconds)))
    assert calls == ["step", "wait", "build_s first_step_s", "close"]


def start(whole: float) -> dict[str, float]:
    return {"whole_s": whole, "imports_s": whole / 2, "build_s": whole / 4, "first_step_s": whole / 4}


def test_starts_are_recognised_by_the_middle_one_of_those_that_compiled_nothing() -> None:
    found = {"viaduct": [start(9), start(5), start(4), start(6)], "peer": [start(50), start(11), start(10), start(9)]}
    head, ours, peer, other = format_starts(StartResults(found, {"other": "no memory"}))
    assert head.startswith("From the start of a process to its first step")
    assert ours == (
        "  viaduct: 5.0 s (median of 3, 4.0 to 6.0; imports 2.50, building 1.25, step 1.25; the first time 9.0 s)"
    )
    assert peer.endswith("the first time 50.0 s), 2.00 times ours")
    assert other == "  other: no memory"
