"""The experiments of the paper, and those beyond it."""
