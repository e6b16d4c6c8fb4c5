"""One Ray serves all of these tests: what is of a package is started once for it."""
