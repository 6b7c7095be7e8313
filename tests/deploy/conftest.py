"""A release, and whether the registries can be reached."""

from support.made_release import registries, release, release_key

__all__ = ["registries", "release", "release_key"]
