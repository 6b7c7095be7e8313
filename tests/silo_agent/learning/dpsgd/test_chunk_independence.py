import pytest
import torch

from silo_agent.learning.dpsgd import chunk_independence, training
from silo_agent.learning.dpsgd.batches import InputKind
from silo_agent.learning.dpsgd.chunk_independence import HOSTILE, is_steady, steady_kernels

VALUES = torch.tensor([[0.1, 0.7], [0.3, 0.2], [float("nan"), 0.0]])


def own(numbers):
    return [VALUES[numbers].clone()]


def whole(parts):
    return [part.mul_(100.0).trunc_() for part in parts]


def test_rows_that_stay_apart_are_steady():
    assert all(is_steady(own, whole, rows) for rows in (1, 2, 5, 64))


@pytest.mark.parametrize(
    "moved",
    [
        lambda parts, numbers: parts[0][-1].mul_(1 + 2**-23),
        lambda parts, numbers: parts[0][1::4].mul_(1 + 2**-23),
        lambda parts, numbers: parts[0].add_(2**-26 * float(numbers[0])),
        lambda parts, numbers: parts[0][0].add_(2**-26 * float(HOSTILE in numbers)),
    ],
    ids=["the last place", "one place in four", "a neighbour", "a hostile neighbour"],
)
def test_a_last_bit_that_moves_is_found(moved):
    def gradients(numbers):
        parts = own(numbers)
        moved(parts, numbers)
        return parts

    assert not is_steady(gradients, whole, 8)


def test_integers_that_move_are_found_though_the_gradients_did_not():
    def integers(parts):
        parts[0][2] += 1.0
        return parts

    assert not is_steady(own, integers, 8)


@pytest.mark.parametrize(("inputs", "hidden"), [(5, (8,)), (3, (5,)), (101, (33, 10)), (35, ())])
def test_the_networks_of_a_study_are_steady_on_this_machine(make_study, inputs, hidden):
    study = make_study(inputs=inputs, hidden=hidden)
    network = training._untrained(study.model, study.data, study.encoder)
    asked = study.encoder, InputKind.of(study.data), torch.device("cpu")
    assert training._steady_rows(network, *asked) == training._rows(network, study.encoder) == 64


def test_a_stochastic_network_is_steady_in_large_chunks_too(make_study):
    """With 248 rows it was not on every processor, and a study took minutes instead of seconds."""
    study = make_study(inputs=25, hidden=(25,), representation=25, cmi=0.001)
    plan = study.encoder.model_copy(update={"batch_size": 1000})
    network = training._untrained(study.model, study.data, plan)
    assert training._steady_rows(network, plan, InputKind.of(study.data), torch.device("cpu")) == 224


def test_a_network_whose_rows_move_each_other_is_trained_one_record_at_a_time(make_study, make_records, monkeypatch):
    losses = training._losses

    def placed(trained, batch, plan, latent):
        return losses(trained, batch, plan, latent) * (1 + 2.0**-20 * torch.arange(len(batch.y)))

    monkeypatch.setattr(training, "_losses", placed)
    study = make_study()
    network = training._untrained(study.model, study.data, study.encoder)
    assert training._steady_rows(network, study.encoder, InputKind.of(study.data), torch.device("cpu")) == 1


def test_a_network_that_a_hostile_row_alone_moves_is_trained_one_record_at_a_time(make_study, monkeypatch):
    """Of ordinary rows nothing changes. A row that is no number makes those of all others none."""
    losses = training._losses

    def mixed(*given):
        own = losses(*given)
        return own * (1.0 + 0.0 * own.detach().sum())

    monkeypatch.setattr(training, "_losses", mixed)
    study = make_study()
    network = training._untrained(study.model, study.data, study.encoder)
    assert training._steady_rows(network, study.encoder, InputKind.of(study.data), torch.device("cpu")) == 1


def test_a_network_of_which_memory_holds_one_row_is_not_examined(make_study, monkeypatch):
    study = make_study()
    network = training._untrained(study.model, study.data, study.encoder)
    monkeypatch.setattr(training, "PART_BYTES", 1)
    monkeypatch.setattr(training, "_is_steady", None)
    assert training._steady_rows(network, study.encoder, InputKind.of(study.data), torch.device("cpu")) == 1


def test_rows_follow_from_public_constants(make_study):
    def rows(batch_size, *, sealed=False, **model):
        study = make_study(**model)
        plan = study.encoder.model_copy(update={"batch_size": batch_size, "sealed_steps": sealed})
        return training._rows(training._untrained(study.model, study.data, plan), plan)

    assert (rows(1), rows(256), rows(1000), rows(1_000_000)) == (64, 64, 224, 1024)
    assert rows(64, inputs=1000, hidden=(1400, 400)) == 64, "of linear layers a record has two factors"
    assert rows(64, inputs=1000, hidden=(1400, 400), sealed=True) == 16, "and in a sealed step whole gradients"
    assert rows(1000, image=224, encoder="resnet18") in range(1, 9)


def test_on_a_cpu_no_switch_is_touched():
    with steady_kernels(torch.device("cpu")):
        assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: steadiness of its kernels is not examined")
def test_on_a_gpu_rows_stay_apart_too(make_study):
    study = make_study(inputs=5)
    network = training._untrained(study.model, study.data, study.encoder)
    device = torch.device("cuda")
    with steady_kernels(device):
        assert training._steady_rows(network, study.encoder, InputKind.of(study.data), device) == 64


def test_only_a_processor_without_vectors_computes_without_them():
    plain = torch.backends.cpu.get_cpu_capability() == "DEFAULT"
    assert ("COMPATIBLE" if plain else "AVX2,STRICT") == chunk_independence._MODE
