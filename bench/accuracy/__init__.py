"""How well private studies predict, beside the other ways to use the same patients."""
