"""Why a pair was (not) fused: the compiler's records, a replay of its rules, inferred rules."""
