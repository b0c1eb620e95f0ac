"""Remedies: interventions during training that keep a network able to learn, one in each module.

A module has a frozen dataclass ``Config`` with the remedy's settings and a method ``check``, and a
function ``build(network, optimizer, config, seed)``. What it returns is called after every update
with the number of updates so far and the observations of that update. The first line of the
module's docstring names the remedy before a colon.
"""
