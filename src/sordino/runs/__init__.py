"""What a command does, without its terminal: settings, plan, account, release, publish."""
