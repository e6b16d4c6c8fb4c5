"""Whole runs: one call for each stage, and a table across epsilons."""
