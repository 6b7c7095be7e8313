"""Faults planted into the modules on which privacy stands: how many of them their tests find."""
