"""Operators that a session run executes, and whether it trains."""

from __future__ import annotations

from rehearsal.snippets import evaluate
from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


def test_initialisers_restores_and_plain_writes_do_not_train_and_optimizers_and_global_steps_do() -> None:
    answer = evaluate(
        "original",
        """
        from viaduct.rehearsal.tf1_stage import subgraph
        graph = tf.get_default_graph()
        w = tf.get_variable("w", [2], initializer=tf.ones_initializer())
        counter = tf.get_variable("counter", [], trainable=False)
        step = tf.train.get_or_create_global_step()
        restored = tf.train.Saver().restore_op_name if False else tf.train.Saver().saver_def.restore_op_name
        from_python = tf.py_func(lambda: np.ones(2, np.float32), [], tf.float32)
        runs = {
            "initialise": tf.global_variables_initializer(),
            "restore": graph.get_operation_by_name(restored),
            "broadcast": tf.assign(w, tf.reshape(from_python, [2])).op,
            "itself": tf.assign(w, tf.identity(w)).op,
            "write before gradients": tf.assign(w, 2 * w).op,
            "count": tf.assign_add(counter, 1.0).op,
        }
        loss = tf.reduce_sum(w * w)
        gradient = tf.gradients(loss, w)[0]
        runs |= {
            "loss": loss.op,
            "gradient": gradient.op,
            "own update": tf.assign_sub(w, 0.1 * gradient).op,
            "step": tf.assign_add(step, 1).op,
            "optimizer": tf.train.AdamOptimizer().apply_gradients([(gradient, w)]),
        }
        answer = {name: subgraph.find_subgraph(graph, [op], []).is_training for name, op in runs.items()}
        """,
    )
    trains = {"own update", "step", "optimizer"}
    assert answer == {name: name in trains for name in answer}


def test_what_only_a_fed_tensor_needs_is_not_executed_and_reading_data_is_seen() -> None:
    answer = evaluate(
        "original",
        """
        from viaduct.rehearsal.tf1_stage import subgraph
        batch = tf.data.Dataset.range(4).make_one_shot_iterator().get_next(name="batch")
        half = tf.add(batch, 1, name="half")
        loss = tf.square(half, name="loss")
        graph = tf.get_default_graph()
        whole, fed = (subgraph.find_subgraph(graph, [loss.op], names) for names in ([], ["half:0"]))
        grown = []
        for _ in range(2):
            grown.append("late" in {op.name for op in subgraph.find_subgraph(graph, [loss.op], []).ops})
            loss.op._add_control_input(tf.constant(1, name="late").op)
        answer = [whole.reads_data, fed.reads_data, sorted(op.name for op in fed.ops if "loss" in op.name or
                  op.name in ("half", "batch")), grown]
        """,
    )
    assert answer == [True, False, ["loss"], [False, True]]


def test_branches_and_handles_are_not_fetched_their_gradients_may_be_dead_and_a_merge_has_a_value() -> None:
    answer = evaluate(
        "original",
        """
        from viaduct.rehearsal.tf1_stage import subgraph
        x = tf.placeholder(tf.float32, [])
        joined = tf.cond(x > 0, lambda: tf.exp(x, name="inner"), lambda: x)
        looped = tf.while_loop(lambda t: t < 3, lambda t: t + 1, [x])
        after = tf.add(joined, looped, name="after")
        graph = tf.get_default_graph()
        inner = next(op for op in graph.get_operations() if op.type == "Exp")
        ops = subgraph.find_subgraph(graph, [after.op, tf.gradients(joined, x)[0].op], []).ops
        dead = subgraph.find_perhaps_dead(ops)
        handle = tf.get_variable("w", [], use_resource=True).handle
        answer = [sorted({op.type for op in dead if "inner_grad" in op.name}), after.op in dead, joined.op in dead,
                  [subgraph.is_fetchable(t) for t in (inner.outputs[0], after, handle, tf.constant("text"))]]
        """,
    )
    assert answer == [["Mul"], False, False, [False, True, False, False]]
