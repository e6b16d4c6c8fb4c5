"""The randomization: raw judgments in, randomized answers out, the spend recorded first."""
