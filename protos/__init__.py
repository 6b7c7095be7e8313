"""The wire: messages, their protobuf form, and the code between. Knows no cryptography, no policy, no model."""
