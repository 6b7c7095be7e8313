"""The wire: messages, their protobuf form, and the code between.

It knows no cryptography, no policy and no model.
"""
