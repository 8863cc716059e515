"""Wrong options of the NPU are reported with the right ones; reads of variables repeat."""

from __future__ import annotations

from pathlib import Path

import pytest

from rehearsal.tf1_scripts import needs_tensorflow, rehearse_script
from viaduct.rehearsal import limits

pytestmark = needs_tensorflow


def test_what_is_wrong_with_options_is_reported_with_what_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """No TensorFlow: the table and its rules alone."""
    from viaduct.rehearsal.tf1_stage import options

    assert options.find_fault("precision_mode", "s", "allow_mix_precision") is None
    assert options.find_fault("experimental_something", "s", "x") is None
    assert options.find_fault("sump_mode", "s", "all") == ("similar", {"key": "sump_mode", "closest": "dump_mode"})
    as_bool = {"key": "jit_compile", "actual": "b", "field": "s", "type": "bytes"}
    assert options.find_fault("jit_compile", "b", True) == ("field", as_bool)
    assert options.find_fault("jit_compile", None, None) == ("no value", {**as_bool, "actual": None})
    choice = options.find_fault("dump_mode", "s", "everything")
    assert choice == ("choice", {"key": "dump_mode", "value": "everything", "choices": "input, output, all"})
    wrong = [
        {"enable_dump": True},
        {"enable_dump": True, "dump_path": "/no/such/folder"},
        {"dump_step": "5-3"},
        {"dump_step": "0,5"},
        {"precision_mode": "force_fp16", "precision_mode_v2": "fp16"},
        {"modify_mixlist": "a.json", "precision_mode": "force_fp32"},
        {"enable_compress_weight": True, "compress_weight_conf": "a"},
        {"optypelist_for_implmode": "Pooling"},
        {"input_shape": "x:1"},
        {"mix_compile_mode": True, "iterations_per_loop": 2},
    ]
    for values in wrong:
        faults = list(options.find_contradictions(values))
        assert faults, values
        for case, fields in faults:
            action, _, remedy = limits.LIMITS["parameter-map"].choose_sentences(case, is_chinese=True)
            assert "{" not in action.format(**fields) + remedy.format(**fields)
    loop = {"mix_compile_mode": True, "iterations_per_loop": 0}
    assert list(options.find_contradictions(loop)) == [("mixed loop", {"iterations": 0})]
    right = {"enable_dump": True, "dump_path": ".", "dump_step": "0|3-5|10", "modify_mixlist": "a"}
    assert not list(options.find_contradictions({**right, "precision_mode": "allow_mix_precision"}))


def test_a_value_in_the_wrong_field_does_not_end_the_checks() -> None:
    from viaduct.rehearsal.tf1_stage import options

    values = {"enable_dump": True, "dump_path": 7, "dump_step": 5, "precision_mode": 1, "modify_mixlist": "a.json"}
    assert [case for case, _ in options.find_contradictions(values)] == ["dump path", "mixlist"]


def test_visible_devices_must_ascend(monkeypatch: pytest.MonkeyPatch) -> None:
    from viaduct.rehearsal.tf1_stage import options

    monkeypatch.setattr(limits, "violations", [])
    monkeypatch.delenv(limits.RECORD_VARIABLE, raising=False)
    monkeypatch.setenv(limits.LIMITS_VARIABLE, "error")
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "0,1,3")
    options.check_visible_devices(None)
    for listed in ("1,0", "1,1", "0;1", ""):
        monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", listed)
        with pytest.raises(limits.CardRefuses, match="visible-devices"):
            options.check_visible_devices(None)


def test_reads_that_have_no_order_with_a_write_are_the_same_in_every_run(tmp_path: Path) -> None:
    """A learning rate reads the global step while it is counted up, in BERT's optimizer."""
    script = tmp_path / "race.py"
    script.write_text(
        "import json\nimport tensorflow as tf\n"
        "counter = tf.get_variable('counter', [400000], initializer=tf.zeros_initializer())\n"
        "up = counter.assign(counter + 1)\n"
        "late = [tf.reduce_max(counter * 2.0) for _ in range(20)]\n"
        "seen = []\n"
        "for _ in range(10):\n"
        "    with tf.Session(config=tf.ConfigProto(inter_op_parallelism_threads=8)) as session:\n"
        "        session.run(tf.global_variables_initializer())\n"
        "        seen.append([session.run([up, *late])[1:] for _ in range(3)])\n"
        "print(json.dumps({'same': all(repr(one) == repr(seen[0]) for one in seen)}))\n"
    )
    answer = rehearse_script("original", script)
    assert answer.parse_last_line() == {"same": True}, "sessions that did the same read different values"
