"""What people said."""
