import pytest

# A failed assert of a helper shows its values, as one of a test does.
pytest.register_assert_rewrite("tests.support")
