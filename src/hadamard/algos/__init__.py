"""Algorithms. ``algos/x.py`` is ``x``: it has ``Config``, ``NET`` and ``build``."""
