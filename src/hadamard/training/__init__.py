"""Training: the loop and its parts, from a new or an interrupted run to evaluation and films."""
