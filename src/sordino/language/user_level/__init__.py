"""Policies that learn from people who are asked as it goes: a slot and a clipped gradient each."""
