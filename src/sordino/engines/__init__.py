"""Where sums over many pieces of data are computed: here, or on machines of yours."""
