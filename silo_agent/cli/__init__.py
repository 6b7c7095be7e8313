"""The commands of `fedward-silo`: one file for each group. They read files, call one function and print.

No rule of the protocol, of a policy or of a model is decided here. A command imports what it needs when it runs.
"""
