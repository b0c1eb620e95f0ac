"""hadamardize (stub while building)."""
Conversion = None
hadamardize = None
