"""Private regressions: least squares, noised moments, descent, and draws in proportion to fit."""
