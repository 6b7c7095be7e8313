import errno

import pytest

from common.os_errors import explained


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
