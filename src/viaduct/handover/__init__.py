"""Use of trained networks: predict, export, serve.

    classifier = open_run(Path("runs/try1"))                 classifier.py: network, preprocessing, labels
    classifier.prepare(Path("photo.jpg").read_bytes())       the network's input, float32 size x size x 3

    decoding.py, preparing.py   convert an encoded image to pixels, and to the network's input
    labels.py, outputs.py       names and number of the network's outputs
    engine.py                   fast inference on a network made by folding.py and fusing.py; latency.py and
                                folding_effect.py measure it
    predicting.py               `viaduct predict`: image_files.py reads, prediction_*.py write
    exporting/, serving/        `viaduct export`, `viaduct serve`

Images are always preprocessed as the recipe does in evaluation.
"""
