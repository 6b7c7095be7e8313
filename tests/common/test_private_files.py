"""What is private is made so, or narrowed, and whoever asked is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.private_files import private_file, private_folder


def mode(path):
    return path.stat().st_mode & 0o777


def test_new_ones_are_the_owner_s_alone(tmp_path):
    assert not private_folder(tmp_path / "a" / "b")
    assert not private_file(tmp_path / "a" / "b" / "state")
    assert (mode(tmp_path / "a" / "b"), mode(tmp_path / "a" / "b" / "state")) == (0o700, 0o600)


@pytest.mark.parametrize("wide", [0o755, 0o750, 0o711, 0o701, 0o770])
def test_what_was_open_is_narrowed_and_keeps_its_content(tmp_path, wide):
    folder, file = tmp_path / "data", tmp_path / "data" / "state"
    folder.mkdir()
    file.write_bytes(b"kept")
    folder.chmod(wide)
    file.chmod(wide & 0o666)
    assert private_file(file) == bool(wide & 0o066)
    assert private_folder(folder)
    assert (mode(folder), mode(file) & 0o077, file.read_bytes()) == (0o700, 0, b"kept")
    assert not private_folder(folder)


def test_what_cannot_be_narrowed_names_the_path_and_the_command(tmp_path, monkeypatch):
    tmp_path.chmod(0o755)

    def refuse(self, mode):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(OSError, match=rf"{tmp_path}, and it cannot be closed to them .* run chmod 700 {tmp_path}"):
        private_folder(tmp_path)
