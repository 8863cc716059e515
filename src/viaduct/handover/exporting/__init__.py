"""A trained classifier as a file for another runtime; every file is run there before it gets its name.

request.py      what was asked for, checked before anything is loaded
graph.py        preprocessing, network and softmax as one graph (torch.export)
pixels.py       the recipe's evaluation preprocessing as a torch module
pt2.py, onnx.py, safetensors.py, savedmodel.py, frozen_pb.py      one format each
tf_network.py   the network's graph as a TensorFlow 1 graph; tf_images.py, preprocessing in TensorFlow
checking.py     images to check with, and the comparison with PyTorch
card.py         the model card beside the file
export.py       all of it, in order
"""
