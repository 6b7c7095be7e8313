"""The blind coordinator: it leads the rounds, spools sealed bytes, and adds values that it cannot read."""
