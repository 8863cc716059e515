"""Export of a trained classifier for another runtime. Unless --no-check is given, that runtime runs the file first.

    request.py      the options, checked before anything is loaded
    format.py       the interface of the format modules
    graph.py        preprocessing, network and softmax as one graph (torch.export)
    pixels.py       the recipe's evaluation preprocessing as a torch module
    pt2.py, onnx.py, safetensors.py, savedmodel.py, frozen_pb.py      one format each
    tf_graph.py     the TensorFlow 1 graph of the last two: tf_network.py, the network; tf_images.py, its preprocessing
    checking.py     the comparison with PyTorch on images
    card.py         the model card beside the file

export.py writes the file with the module of its format, compares it, and writes the card.
"""
