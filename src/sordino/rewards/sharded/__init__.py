"""Rewards from judgments in more files than memory holds: everything is a sum over pieces."""
