"""Turning an existing network's hidden layers into Hadamard layers.

``tracing`` finds what follows each layer, ``selection`` chooses the layers to convert,
``replacements`` builds the Hadamard layers, and ``convert`` puts them into the network.
"""
