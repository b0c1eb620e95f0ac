"""The contracts: types, settings, identity, run folders, checkpoints, random numbers."""
