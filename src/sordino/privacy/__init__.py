"""What is promised, and what has been spent."""
