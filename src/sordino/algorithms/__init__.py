"""Whole procedures."""
