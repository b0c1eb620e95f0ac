"""Interventions during training that keep a network plastic."""
