import errno

import pytest

from common.os_errors import explained, is_passing


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "/x/y"), "'/x/y'; fix the owner or the mode"),
        (OSError(errno.ENOSPC, "No space left on device, while 7 bytes were written", "/x"), "'/x'; make room there"),
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files; raise the limit of open files"),
        (IsADirectoryError(errno.EISDIR, "Is a directory", "/x"), "; it is a folder; give a file"),
        (OSError(errno.EIO, "Input/output error", "/x"), "'/x'; check the disk"),
    ],
)
def test_the_systems_errors_get_an_advice(error, text):
    assert text in explained(error)


@pytest.mark.parametrize(
    "error", [OSError("port 7 is taken; give another"), ValueError("b"), OSError(errno.ENXIO, "No such device")]
)
def test_what_has_a_text_of_its_own_keeps_it(error):
    assert explained(error) == str(error)


@pytest.mark.parametrize(
    ("error", "passing"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (PermissionError(errno.EACCES, "Permission denied"), True),
        (FileNotFoundError(errno.ENOENT, "No such file"), False),
        (FileExistsError(errno.EEXIST, "File exists"), False),
        (IsADirectoryError(errno.EISDIR, "Is a directory"), False),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory"), False),
        (OSError("a text of the program's own"), False),
        (ValueError(errno.ENOSPC), False),
        (None, False),
    ],
)
def test_what_may_be_otherwise_later_is_told_from_how_things_are(error, passing):
    assert is_passing(error) is passing
