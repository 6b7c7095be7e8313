"""MNIST's files as published."""

import gzip

import numpy as np

from bench import idx


def test_images_and_labels_are_what_follows_the_headers(tmp_path):
    images = np.arange(3 * 28 * 28, dtype=np.int64).astype(np.uint8).reshape(3, 28, 28)
    labels = np.array([3, 1, 2], np.uint8)
    assert not idx.there(tmp_path)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(bytes(16) + images.tobytes()))
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(bytes(8) + labels.tobytes()))
    assert idx.there(tmp_path)
    read = idx.read(tmp_path, "train")
    np.testing.assert_array_equal(read[0], images)
    np.testing.assert_array_equal(read[1], labels)
