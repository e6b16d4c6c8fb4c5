"""Does the claim of a run follow from its ledger and its files?"""
