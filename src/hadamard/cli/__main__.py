"""`python -m hadamard.cli`."""

from hadamard.cli import program

program()
