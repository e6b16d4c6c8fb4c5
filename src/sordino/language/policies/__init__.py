"""Policies from randomized answers, or from a private reward."""
