"""The documentation's evidence: every claim of the paper beside the packed runs that judge it."""
