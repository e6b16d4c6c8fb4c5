"""Language models as this package reads, tokenizes, samples and saves them."""
