"""A whole federation on one machine: authority, coordinator and one agent per hospital, each its own process.

Stands above both sides: it starts their programs and reads what they leave. Nothing below imports it. The demo, the
benches, the tests of whole federations and the command `fedward` stand on it.
"""
