"""Hadamard inside other people's training: one file for each library, imported by its name."""
