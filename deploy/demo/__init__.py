"""The demo: a whole study on one machine, with real processes, real certificates and a report."""
