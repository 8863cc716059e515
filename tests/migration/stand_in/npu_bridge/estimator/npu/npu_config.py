import tensorflow.compat.v1 as tf


class NPURunConfig(tf.estimator.RunConfig):
    """Refuses what the adapter's refuses; its own options are taken and forgotten."""

    def __init__(
        self,
        iterations_per_loop=1,
        precision_mode=None,
        hcom_parallel=False,
        enable_data_pre_proc=True,
        model_dir=None,
        tf_random_seed=1,
        save_summary_steps=0,
        save_checkpoints_steps=None,
        save_checkpoints_secs=None,
        session_config=None,
        keep_checkpoint_max=5,
        log_step_count_steps=100,
    ):
        if save_checkpoints_steps is None and save_checkpoints_secs is None:
            save_checkpoints_steps = 100
        super().__init__(
            model_dir=model_dir,
            tf_random_seed=tf_random_seed,
            save_summary_steps=save_summary_steps or None,
            save_checkpoints_steps=save_checkpoints_steps,
            save_checkpoints_secs=save_checkpoints_secs,
            session_config=session_config,
            keep_checkpoint_max=keep_checkpoint_max,
            log_step_count_steps=log_step_count_steps,
        )
