from __future__ import annotations

import hashlib
import re

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from common.canonical_json import canonical_json
from policies.documents.document import DocumentError
from policies.documents.study import Study, load_study, parse_study
from policies.documents.unaccountable import WISHES
from policies.refusals import Reason, Refused
from support.studies import tiny_document, tiny_study

PARTS = ("model", "heads", "encoder", "evaluation", "privacy")


def refusal(**changes):
    with pytest.raises(Refused) as caught:
        Study.model_validate(tiny_document(**changes))
    return caught.value


def is_ordinary(**changes):
    with pytest.raises(ValidationError):
        Study.model_validate(tiny_document(**changes))


@pytest.mark.parametrize(
    ("changes", "reason", "field"),
    [
        ({"encoder": {"mmd": 0.1}}, Reason.BATCH_STATISTICS, "encoder.mmd"),
        ({"encoder": {"mk-mmd": 0.1}}, Reason.BATCH_STATISTICS, "encoder.mk-mmd"),
        ({"encoder": {"mmd_weight": 0.1}}, Reason.BATCH_STATISTICS, "encoder.mmd_weight"),
        ({"encoder": {"irm": {"penalty": 1}}}, Reason.BATCH_STATISTICS, "encoder.irm"),
        ({"encoder": {"losses": ["cross_entropy", "MMD"]}}, Reason.BATCH_STATISTICS, "encoder.losses"),
        ({"encoder": {"irm": 0.5}}, Reason.BATCH_STATISTICS, "encoder.irm"),
        ({"encoder": {"group_dro": 1}}, Reason.BATCH_STATISTICS, "encoder.group_dro"),
        ({"losses": {"upload": {"GroupDRO": 0.5}}}, Reason.BATCH_STATISTICS, "losses.upload.GroupDRO"),
        ({"model": {"batch_norm": True}}, Reason.BATCH_NORM, "model.batch_norm"),
        ({"model": {"norm": "batch"}}, Reason.BATCH_NORM, "model.norm"),
        ({"model": {"norm_layer": "BatchNorm2d"}}, Reason.BATCH_NORM, "model.norm_layer"),
        ({"model": {"encoder": "resnet18_bn"}}, Reason.BATCH_NORM, "model.encoder"),
        ({"model": {"encoder": "vit_b16"}}, Reason.NO_PER_SAMPLE_GRADIENT, "model.encoder"),
        ({"model": {"layers": ["linear", "lstm"]}}, Reason.NO_PER_SAMPLE_GRADIENT, "model.layers"),
        ({"model": {"weight_norm": True}}, Reason.NO_PER_SAMPLE_GRADIENT, "model.weight_norm"),
        ({"heads": {"local": True}}, Reason.UNNOISED_PART, "heads.local"),
        ({"heads": {"local_epochs": 5}}, Reason.UNNOISED_PART, "heads.local_epochs"),
        ({"model": {"personal_layers": [0, 1]}}, Reason.UNNOISED_PART, "model.personal_layers"),
        ({"encoder": {"adversary": {"steps": 1}}}, Reason.UNNOISED_PART, "encoder.adversary"),
        ({"encoder": {"prior": "unnoised"}}, Reason.UNNOISED_PART, "encoder.prior"),
        ({"algorithm": {"local_encoder": True}}, Reason.UNNOISED_PART, "algorithm.local_encoder"),
        ({"evaluation": {"ensemble": "local"}}, Reason.LOCAL_MODELS, "evaluation.ensemble"),
        ({"evaluation": {"unknown_origin": "local_ensemble"}}, Reason.LOCAL_MODELS, "evaluation.unknown_origin"),
        ({"heads": {"majority_vote": True}}, Reason.LOCAL_MODELS, "heads.majority_vote"),
        ({"encoder": {"early_stopping": {"patience": 3}}}, Reason.PRIVATE_CHOICE, "encoder.early_stopping"),
        ({"evaluation": {"choose_best": "auc"}}, Reason.PRIVATE_CHOICE, "evaluation.choose_best"),
        ({"model_selection": "validation"}, Reason.PRIVATE_CHOICE, "model_selection"),
        ({"encoder": {"checkpoint": "best"}}, Reason.PRIVATE_CHOICE, "encoder.checkpoint"),
    ],
)
def test_a_wish_is_refused_by_name_with_its_field_why_and_what_to_write(changes, reason, field):
    refused = refusal(**changes)
    assert refused.reason is reason
    wish = next(wish for wish in WISHES if wish.reason is reason)
    assert refused.text == f"study.{field}: {wish.why}; {wish.instead}"


def test_an_ensemble_of_local_models_is_refused_of_public_data_too_and_told_where_it_is_measured():
    public = {
        "heads": {"pooled_noise": 0.0, "domain_noise": 0.0},
        "encoder": {"noise": 0.0},
        "evaluation": {"noise": 0.0},
        "privacy": {"mode": "none", "count_noise": 0.0},
    }
    Study.model_validate(tiny_document(**public))
    refused = refusal(**public | {"evaluation": {"noise": 0.0, "ensemble": "local"}})
    assert refused.reason is Reason.LOCAL_MODELS
    assert "fedward simulate --ensemble" in refused.text


def test_every_reason_has_words_of_its_own_and_every_word_is_found():
    found = [word for wish in WISHES for word in wish.words]
    assert len(found) == len(set(found))
    for wish in WISHES:
        for word in wish.words:
            assert refusal(encoder={word: 0.1}).reason is wish.reason
            assert refusal(encoder={"method": word}).reason is wish.reason


@pytest.mark.parametrize("off", [False, 0, 0.0, None, "", "none", "Off", [], {}])
def test_what_is_switched_off_is_no_wish_but_an_unknown_field(off):
    is_ordinary(encoder={"mmd": off})


@pytest.mark.parametrize(
    "changes",
    [
        {"personal": {"early_stopping": True}},
        {"personal": {"adversary": 0.1}},
        {"encoder": {"nesterov": True}},
        {"recipe": "fed_rep"},
        {"algorithm": "LG-FedAvg"},
        {"encoder": {"mmdx": 1}},
        {"model": {"encoder": "vgg"}},
        {"encoder": {"noise": -1}},
        {"data": {"mmd": 1}},
    ],
)
def test_other_faults_are_ordinary_ones(changes):
    is_ordinary(**changes)


def test_a_study_that_fits_is_never_refused_for_its_names():
    tiny_study(
        name="early-stopping",
        purpose="Compare MMD with batch_norm.",
        silos=["mmd", "fedrep", "bn"],
        data={"patient": "monitor", "label": {"column": "irm", "positive": ["mmd"], "negative": ["rnn"]}},
        personal={"mmd": 0.1, "ditto": 0.1},
        encoder={"cmi": 0.1, "prior": "local"},
    )


def test_a_wish_beside_other_faults_is_named_first():
    assert refusal(encoder={"steps": 0, "mmd": 1}, colour="red").reason is Reason.BATCH_STATISTICS


def test_the_same_refusal_comes_of_a_file_and_of_the_wire(tmp_path):
    document = tiny_document(encoder={"mmd": 0.1})
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(document))
    wire = canonical_json(document).encode()
    told = []
    for read in (
        lambda: load_study(tmp_path / "study.yaml"),
        lambda: parse_study(wire, hashlib.sha256(wire).hexdigest()),
        lambda: Study.model_validate_json(wire),
    ):
        with pytest.raises(Refused) as caught:
            read()
        told.append(str(caught.value))
    assert len(set(told)) == 1
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(tiny_document(encoder={"mmdx": 0.1})))
    with pytest.raises(DocumentError, match=r"encoder\.mmdx: unknown field"):
        load_study(tmp_path / "study.yaml")


def test_a_field_of_a_strangers_making_is_shown_harmlessly():
    text = refusal(encoder={"x\x1b[31m\n" + "y" * 10_000: {"mmd": 1}}).text
    assert text.startswith("study.encoder.x??31m?yyy")
    assert re.fullmatch(r"[ -~]{1,500}", text)


def test_deep_and_long_wishes_are_found_without_end():
    deep = {"mmd": 1}
    for _ in range(150):
        deep = {"a": deep}
    assert refusal(encoder={"x": deep}).reason is Reason.BATCH_STATISTICS
    assert refusal(encoder={"x": [["plain"] * 50_000, "mmd"]}).reason is Reason.BATCH_STATISTICS
    is_ordinary(encoder={"x": "mmd " * 100_000})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=20), inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=150, deadline=None)
@given(part=st.sampled_from(PARTS), field=st.text(min_size=1, max_size=20), content=JSON)
def test_whatever_stands_in_a_study_nothing_unknown_is_taken(part, field, content):
    assume(field not in Study.model_fields[part].annotation.model_fields)
    document = tiny_document()
    document[part] = {**document[part], field: content}
    with pytest.raises((ValidationError, Refused)):
        Study.model_validate(document)
