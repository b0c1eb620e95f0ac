"""Moved to `hadamard.training.start`; what scripts import from here still works, with a warning."""

from hadamard.core import renamed

__getattr__ = renamed.names_of(__name__)
