"""Use of trained networks: predict, export, serve.

classifier = open_run(Path("runs/try1"))        network, preprocessing and labels
classifier.prepare(Path("photo.jpg").read_bytes())
"""
