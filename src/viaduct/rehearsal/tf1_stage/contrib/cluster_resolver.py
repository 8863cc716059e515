"""tf.contrib.cluster_resolver: the classes of tf.distribute.cluster_resolver."""

import tensorflow.compat.v1 as tf

ClusterResolver = tf.distribute.cluster_resolver.ClusterResolver
SimpleClusterResolver = tf.distribute.cluster_resolver.SimpleClusterResolver
TPUClusterResolver = tf.distribute.cluster_resolver.TPUClusterResolver
