"""Reports: figures, tables and pages from runs' numbers. Nothing in it imports torch."""
