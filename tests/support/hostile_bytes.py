"""Pieces of text that a reader of rows may take for more than they are: quotes, line ends, halves of characters."""

PIECES = [
    b'"',
    b'"12',
    b'12"',
    b",",
    b";",
    b"\n",
    b"\r",
    b"\r\n",
    b"\x00",
    b"\x1a",
    b"\xff",
    b"\xe2\x82",
    b"\xef\xbb\xbf",
]
