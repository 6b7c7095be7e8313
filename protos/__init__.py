"""The wire: messages, their protobuf form, and the code between; and what both programs say to their machine.

It knows no cryptography, no policy and no model.
"""
