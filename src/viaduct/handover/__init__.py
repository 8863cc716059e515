"""Trained networks in use: predict, export, serve.

classifier = open_run(Path("runs/try1"))        network, preprocessing, labels and where they came from
classifier.prepare(Path("photo.jpg").read_bytes())
"""
