"""What all tests share."""

import pytest

# They check what the tests of rules are about, and are to say what they found.
pytest.register_assert_rewrite(
    "cpu_examples", "gpu_examples", "gpu_pass_examples", "operation_examples"
)
