"""`python -m hadamard`."""

from hadamard.cli import program

program()
