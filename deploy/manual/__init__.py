"""Man pages of all programs, made from their commands: `python -m deploy.manual`."""
