import tensorflow.compat.v1 as tf


def npu_config_proto(config_proto=None):
    return config_proto or tf.ConfigProto()


def npu_clear_session(config=None):
    tf.keras.backend.clear_session()


def npu_keras_optimizer(optimizer):
    return optimizer


def set_keras_session_npu_config(config=None):
    session = tf.Session(config=config)
    tf.keras.backend.set_session(session)
    return session


def close_session(session):
    session.close()
