"""The ground floor: what every other package may use, and what needs nothing but Python's standard library.

Its modules are about the machine that a program runs on (files, locks, databases, errors, the service manager) and
about forms that all packages share (names, canonical JSON). None of them knows what FedWard does.
"""
