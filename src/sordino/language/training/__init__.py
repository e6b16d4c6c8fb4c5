"""What every trainer on randomized answers shares: rows, losses, settings, promises."""
