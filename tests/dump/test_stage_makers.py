"""The pass that made what differs in a stage: the start of a pipeline makes nothing."""

from fusionscope.dump.names import read_name
from fusionscope.dump.stage import Stage, with_makers

# The stages of a product of two sharded arrays on two CPUs, by jaxlib 0.12.0.1, in order. The text
# of number 4 is the first that has an all-gather: spmd-partitioning inserts it, and runs
# spmd-cleanup before it ends.
STAGES = """0002.spmd-partitioner.after_pipeline-start.before_flatten-call-graph
0003.spmd-partitioner.after_shardy-xla.before_spmd-partitioning
0004.spmd-cleanup.after_pipeline-start.before_dce
0005.spmd-cleanup.after_dce.before_tuple-simplifier
0006.spmd-partitioner.after_spmd-partitioning.before_control-dep-rewriter
0007.SubbytePacker_pipeline.after_pipeline-start.before_sub-byte-size-setter
0016.dot-library-passes.after_dot-library-rewriter.before_pipeline-end
0021.copy-insertion.after_adding_copies_to_resolve_interference""".splitlines()


def test_makers():
    stages = []
    for label in STAGES:
        name = read_name(f"module_0000.jit_f.{label}.txt")
        assert name is not None
        stages.append(Stage(name, None))
    assert [stage.pass_name for stage in with_makers(stages)] == [
        "pipeline-start",  # nothing is before it
        "shardy-xla",
        "spmd-partitioning",
        "dce",
        "spmd-partitioning",
        "between pipelines",
        "dot-library-rewriter",
        "adding_copies_to_resolve_interference",
    ]
