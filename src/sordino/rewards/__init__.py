"""What people want, estimated."""
