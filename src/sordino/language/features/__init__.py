"""Features of text from a sentence model of your own machine."""
