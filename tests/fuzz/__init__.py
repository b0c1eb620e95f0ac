"""Hostile values for every option of every command, and for every field of a run's files."""
