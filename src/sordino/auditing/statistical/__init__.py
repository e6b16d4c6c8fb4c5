"""Lower confidence bounds on the loss, from games on two neighboring inputs."""
