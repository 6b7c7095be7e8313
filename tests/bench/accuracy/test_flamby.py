from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.accuracy import flamby
from bench.places import HEART_DISEASE as DATA

SKLEARN = {
    "0000010100": [0, 1, 2, 4, 5, 7],
    "011000000": [0, 1, 2, 4, 5],
    "1111111111111011111": [0, 1, 2, 3, 4, 7, 10, 11, 13, 15, 16, 17],
    "0000010001000000010000": [2, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18, 20, 21],
    "010101010101010101010101": [3, 4, 8, 9, 11, 12, 13, 14, 16, 17, 18, 19, 20, 21, 23],
    "111101110110111011111": [0, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 18, 19],
    "00000010100000001000000111100": [1, 3, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 21, 23, 25, 26, 27, 28],
}
"""Training rows of scikit-learn's train_test_split(test_size=1-.66, train_size=.66, random_state=43, shuffle=True,
stratify=labels where both classes have more than two rows)."""
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="needs UCI heart disease beside the checkout")


@pytest.mark.parametrize("labels", SKLEARN)
def test_the_split_is_scikit_learns(labels):
    found = flamby.own_split(np.array(list(labels), dtype=np.int64))
    assert np.flatnonzero(found).tolist() == SKLEARN[labels]


@given(st.lists(st.integers(0, 1), min_size=8, max_size=200))
def test_two_thirds_train_and_both_classes_where_there_are_some(labels):
    labels = np.array(labels, np.int64)
    training = flamby.own_split(labels)
    assert training.sum() == int(0.66 * len(labels))
    counts = np.bincount(labels, minlength=2)
    if counts.min() > 2:
        shares = np.bincount(labels[training], minlength=2) - 0.66 * counts
        assert np.abs(shares).max() <= 1.0


def test_rows_without_a_feature_are_left_out_but_those_without_a_dropped_column_stay(tmp_path):
    file = tmp_path / "centre.data"
    file.write_text(
        "63,1,1,145,233,1,2,150,0,2.3,3,0,6,0\n"
        "67,0,4,160,286,0,0,108,1,1.5,?,?,?,2\n"
        "37,1,3,?,250,0,0,187,0,3.5,3,0,3,0\n"
        "41,0,2,130,204,0,1,172,0,1.4,1,0,3,1\n"
    )
    centre = flamby.read_centre(file)
    assert centre.rows.tolist() == [0, 1, 3]
    assert centre.labels.tolist() == [0, 1, 1]
    # age, sex, trestbps, chol, fbs, thalach, exang, oldpeak; cp 2, 3, 4; restecg 1, 2
    assert centre.features[1].tolist() == [67, 0, 160, 286, 0, 108, 1, 1.5, 0, 0, 1, 0, 0]
    assert centre.features[0, 8:].tolist() == [0, 0, 0, 0, 1]
    assert centre.features[2, 8:].tolist() == [1, 0, 0, 1, 0]


def test_the_pooled_model_learns_and_each_centre_is_tested_on_its_other_rows():
    rng = np.random.default_rng(0)
    centres = []
    for shift in (0.0, 3.0):
        features = rng.normal(shift, 1.0, (120, 13)).astype(np.float32)
        labels = (features[:, 0] > shift).astype(np.int64)
        centres.append(flamby.Centre(features, labels, np.arange(120)))
    training = [np.arange(120) < 80] * 2
    found = flamby.pooled_accuracies(centres, training, 42)
    # Labels follow each centre's own mean, which only standardisation by centre takes out.
    assert found.shape == (2,)
    assert (found > 80).all()
    wrong = [flamby.Centre(c.features, np.where(np.arange(120) < 80, c.labels, 1 - c.labels), c.rows) for c in centres]
    assert flamby.pooled_accuracies(wrong, training, 42) == pytest.approx(100 - found)


@needs_data
def test_the_published_files_give_flambys_centres():
    centres = [flamby.read_centre(DATA / f"processed.{name}.data") for name in flamby.CENTRES]
    assert [len(c.labels) for c in centres] == [303, 261, 46, 130]
    assert [int(flamby.own_split(c.labels).sum()) for c in centres] == [199, 172, 30, 85]
    assert [round(100 * c.labels.mean()) for c in centres] == [46, 38, 98, 78]


@needs_data
def test_one_seed_of_the_recipe_gives_flambys_accuracy():
    centres = [flamby.read_centre(Path(DATA) / f"processed.{name}.data") for name in flamby.CENTRES]
    training = [flamby.own_split(c.labels) for c in centres]
    assert flamby.pooled_accuracies(centres, training, 43).round(2).tolist() == [77.88, 76.4, 75.0, 64.44]
