"""Training on raw judgments: noised sums of clipped gradients, paid for before they are drawn."""
