"""All kinds of expectations, by the key that they have in a file.

An expectation refers to operations as before fusion, and to kernels as compiled. An expectation
that selects nothing fails.
"""

from __future__ import annotations

from fusionscope.check.expectation import Expectation
from fusionscope.check.growth import MaxGrowth
from fusionscope.check.kernel_expectations import (
    AtBest,
    Bytes,
    Kernels,
    KnownFaults,
    Launches,
    LibraryCalls,
    NotLaunched,
    Peak,
    Temporaries,
)
from fusionscope.check.pair_expectations import (
    Fused,
    NeverFused,
    NotDuplicated,
    NotRefused,
    OneKernel,
)
from fusionscope.check.text_expectations import Contains, Count, NotContains, Order

EXPECTATIONS: dict[str, type[Expectation]] = {
    kind.key: kind
    for kind in (
        Fused,
        NeverFused,
        NotDuplicated,
        OneKernel,
        Kernels,
        Launches,
        Bytes,
        Peak,
        Temporaries,
        AtBest,
        LibraryCalls,
        NotLaunched,
        KnownFaults,
        NotRefused,
        Contains,
        NotContains,
        Count,
        Order,
        MaxGrowth,
    )
}
