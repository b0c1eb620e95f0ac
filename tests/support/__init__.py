"""What tests share. Nothing imports from a test file: helpers of two or more of them are here.

Fixtures are in the `conftest.py` of the folder whose tests use them.
"""
