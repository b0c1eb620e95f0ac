"""Scores on one scale, aggregates with intervals, and what they allow to be said."""
