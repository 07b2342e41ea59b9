"""What all tests share."""

import pytest
from hypothesis import settings

# They check what the tests of rules are about, and are to say what they found.
pytest.register_assert_rewrite(
    "cpu_examples", "gpu_examples", "gpu_pass_examples", "operation_examples"
)

# A machine that does much else beside is slow, and no fault.
settings.register_profile("fusionscope", deadline=None)
settings.load_profile("fusionscope")
