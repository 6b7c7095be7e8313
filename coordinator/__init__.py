"""The blind coordinator: leads the rounds, spools sealed bytes, adds what it cannot read."""
