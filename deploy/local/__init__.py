"""A whole federation on one machine: authority, coordinator and one agent per hospital, each its own process.

This package starts the programs of both sides and reads the files that they write. Neither side imports it. The demo,
the benches, the tests of whole federations and the command `fedward` use it.
"""
