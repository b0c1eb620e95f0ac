"""How learning is made fast: graphs and compilation, flat weights, optimizers, GPU kernels."""
