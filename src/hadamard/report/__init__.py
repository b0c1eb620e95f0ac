"""Figures and pages from plain numbers. Nothing here imports torch."""
