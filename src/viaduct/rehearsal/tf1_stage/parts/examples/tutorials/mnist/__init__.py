"""tensorflow.examples.tutorials.mnist"""
