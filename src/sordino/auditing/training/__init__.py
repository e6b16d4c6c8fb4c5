"""Trying to break training on raw judgments: worst canaries, samplers, gradients, one run."""
