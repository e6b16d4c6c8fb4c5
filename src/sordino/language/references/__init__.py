"""Where training starts: a model that was taught no judgment, and the check that it was not."""
