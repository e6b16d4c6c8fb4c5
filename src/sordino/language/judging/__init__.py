"""How much better a policy is than its reference, by a judge that did not train it."""
