"""Experiments: the paper's as data, sweeps that train runs, estimates, the benchmark, the demo."""
