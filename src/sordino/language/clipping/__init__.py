"""Gradients of whole pairs, clipped before they are summed: what central privacy rests on."""
