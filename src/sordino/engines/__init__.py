"""Where sums over many chunks of data are computed: here, or on machines of yours."""
