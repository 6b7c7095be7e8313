import pytest

from protos.chunks import ChunkList
from silo_agent.storage.durable import write_pieces, write_whole


@pytest.mark.parametrize("pieces", [[], [b""], [b"whole"], [b"in ", b"", b"pieces"], [b"x" * (1 << 20)] * 3])
def test_the_digest_is_that_of_the_file_as_the_wire_has_it(tmp_path, pieces):
    path = tmp_path / "file"
    assert write_pieces(path, iter(pieces)) == ChunkList.of(path).digest
    assert path.read_bytes() == b"".join(pieces)
    write_whole(tmp_path / "other", path.read_bytes())
    assert (tmp_path / "other").read_bytes() == path.read_bytes()
