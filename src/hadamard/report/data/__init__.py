"""Reading runs: folders, packed files, imported curves, and what runs are called."""
