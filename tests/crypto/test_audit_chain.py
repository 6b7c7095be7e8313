"""The chain of the audit log: the same entries give the same head, and no other list of entries does."""

from __future__ import annotations

import hashlib
import struct

from hypothesis import given
from hypothesis import strategies as st

from crypto.audit_chain import NOTHING, UNKNOWN, AuditStatement, Followed, entry_digest, follow

CONTENTS = st.lists(st.binary(max_size=20), max_size=6)


def part(kind, content):
    return kind + struct.pack("<Q", len(content)) + content


def labelled(domain, *parts):
    """The canonical bytes, written down anew from docs/design."""
    return b"".join([b"fedward/1", part(b"s", domain), *parts])


def test_the_head_of_two_entries_is_what_an_independent_computation_gives():
    digests = [hashlib.sha256(labelled(b"audit entry", part(b"b", one))).digest() for one in (b"{}", b'{"a":1}')]
    head = bytes(32)
    for digest in digests:
        head = hashlib.sha256(labelled(b"audit head", part(b"b", head), part(b"b", digest))).digest()
    assert [entry_digest(b"{}"), entry_digest(b'{"a":1}')] == digests
    assert follow(NOTHING, digests) == head
    assert follow(NOTHING, []) == NOTHING == UNKNOWN.head == bytes(32)


@given(CONTENTS, CONTENTS)
def test_a_head_fixes_all_entries_before_it(one, other):
    heads = [follow(NOTHING, map(entry_digest, contents)) for contents in (one, other)]
    assert (heads[0] == heads[1]) == (one == other)


@given(CONTENTS, st.integers(0, 6))
def test_who_follows_in_parts_gets_to_the_same_head(contents, cut):
    digests = [entry_digest(content) for content in contents]
    assert follow(follow(NOTHING, digests[:cut]), digests[cut:]) == follow(NOTHING, digests)


def test_a_statement_signs_both_heads_and_both_numbers():
    one, other = Followed(3, b"1" * 32), Followed(2, b"2" * 32)
    statements = [
        AuditStatement(one),
        AuditStatement(one, other),
        AuditStatement(other, one),
        AuditStatement(Followed(4, one.head)),
        AuditStatement(one, Followed(1, other.head)),
    ]
    assert len({statement.to_sign() for statement in statements}) == len(statements)
