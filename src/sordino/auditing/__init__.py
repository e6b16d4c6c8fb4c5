"""Trying to break the promise."""
