import numpy as np
from scipy import stats

from crypto.stream import KeyStream
from silo_agent.learning.dpsgd.sampling import PatientSampler

FIVE_SIGMA = 5.7e-7


def sampler(patients, rate, seed=0):
    return PatientSampler(np.array(patients, np.int64), rate, KeyStream(seed.to_bytes(32, "big"), b"test"))


def test_batch_sizes_are_binomial_in_the_number_of_patients():
    n, rate, draws = 400, 0.1, 3000
    one = sampler(range(n), rate)
    sizes = np.array([len(one.draw()) for _ in range(draws)])
    expected = stats.binom(n, rate)
    assert abs(sizes.mean() - expected.mean()) < 5 * expected.std() / np.sqrt(draws)
    assert abs(sizes.var() / expected.var() - 1) < 5 * np.sqrt(2 / draws)
    edges = np.array([31, 35, 38, 41, 44, 48])
    observed = np.bincount(np.searchsorted(edges, sizes, "left"), minlength=7)
    cells = np.diff(np.concatenate([[0], expected.cdf(edges), [1]]))
    assert stats.chisquare(observed, draws * cells).pvalue > FIVE_SIGMA


def test_a_patient_enters_with_one_record_and_as_often_whatever_its_records():
    patients = [0, 1, 1, 1, 1, 1, 1, 1]
    one = sampler(patients, 0.5)
    seen = np.zeros(8)
    for _ in range(4000):
        drawn = one.draw()
        assert len(set(np.array(patients)[drawn].tolist())) == len(drawn)
        seen[drawn] += 1
    spread = 5 * np.sqrt(4000 * 0.25)
    assert abs(seen[0] - 2000) < spread
    assert abs(seen[1:].sum() - 2000) < spread
    assert stats.chisquare(seen[1:]).pvalue > FIVE_SIGMA


def test_records_need_not_be_sorted_by_patient():
    patients = np.array([2, 0, 2, 1, 0])
    drawn = sampler(patients, 1.0).draw()
    assert patients[drawn].tolist() == [0, 1, 2]


def test_a_rate_of_one_takes_everybody_and_no_patients_give_empty_batches():
    assert len(sampler(range(50), 1.0).draw()) == 50
    assert sampler([], 0.5).draw().shape == (0,)
    assert sampler([], 1.0).draw().shape == (0,)
    assert sampler(range(5), 1e-12).draw().shape == (0,)


def test_patients_enter_independently_of_each_other():
    one = sampler(range(2), 0.5)
    both = np.zeros((2, 2))
    for _ in range(4000):
        drawn = set(one.draw().tolist())
        both[int(0 in drawn), int(1 in drawn)] += 1
    assert stats.chisquare(both.ravel()).pvalue > FIVE_SIGMA
