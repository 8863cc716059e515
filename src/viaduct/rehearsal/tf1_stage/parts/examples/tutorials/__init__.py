"""tensorflow.examples.tutorials"""
