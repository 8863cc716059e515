"""Export a trained classifier for another runtime. Without --no-check, the file is run there and compared first.

request.py      the options, checked before anything is loaded
format.py       what each format module offers
graph.py        preprocessing, network and softmax as one graph (torch.export)
pixels.py       the recipe's evaluation preprocessing as a torch module
pt2.py, onnx.py, safetensors.py, savedmodel.py, frozen_pb.py      one format each
tf_graph.py     the TensorFlow 1 graph of the last two: tf_network.py, the network; tf_images.py, its preprocessing
checking.py     images to check with, and the comparison with PyTorch
card.py         the model card beside the file
export.py       the steps in order
"""
