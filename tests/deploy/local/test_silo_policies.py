"""One policy text for every silo of a local federation, or one for each."""

import pytest
import yaml

from deploy.local.silo_policies import check_common, read_policies, silo_policy, silo_text
from policies.documents.document import DocumentError
from support.small_cohort import policy_document

TEXT = yaml.safe_dump(policy_document())


def test_every_silo_has_the_policy_with_a_data_set_of_its_own(tmp_path):
    assert silo_policy(TEXT, "north", tmp_path / "study.yaml").data_set.id == "north"
    assert silo_text("id: {data_set}-2026", "south") == "id: south-2026"


def test_a_fault_names_the_policy_beside_the_study(tmp_path):
    with pytest.raises(DocumentError, match=str(tmp_path / "policy.yaml")):
        silo_policy("version: 3", "north", tmp_path / "study.yaml")


def test_one_data_set_for_several_silos_is_an_error(tmp_path):
    file = tmp_path / "policy.yaml"
    check_common(TEXT, ("north", "south"), file)
    same = yaml.safe_dump(policy_document("wards"))
    check_common(same, ("north",), file)
    with pytest.raises(DocumentError, match=r'data_set\.id: one policy for 2 silos needs "\{data_set\}"'):
        check_common(same, ("north", "south"), file)
    with pytest.raises(DocumentError, match=str(file)):
        check_common("version: 3", ("north",), file)


def test_a_folder_has_a_policy_for_each_silo(tmp_path):
    for silo, changes in (("north", {}), ("south", {"min_silos": 5})):
        (tmp_path / f"{silo}.yaml").write_text(yaml.safe_dump(policy_document() | changes))
    policies = read_policies(tmp_path, ("north", "south"))
    both = [silo_policy(policies, silo, tmp_path / "study.yaml") for silo in ("north", "south")]
    assert [own.data_set.id for own in both] == ["north", "south"]
    assert [own.min_silos for own in both] == [3, 5]
    (tmp_path / "south.yaml").write_text(yaml.safe_dump(policy_document("north")))
    with pytest.raises(DocumentError, match=r"south\.yaml.*data_set\.id: north is the data set of north too"):
        read_policies(tmp_path, ("north", "south"))
    with pytest.raises(OSError, match="west"):
        read_policies(tmp_path, ("north", "west"))


def test_a_file_has_one_for_all(tmp_path):
    (tmp_path / "policy.yaml").write_text(TEXT)
    assert read_policies(tmp_path / "policy.yaml", ("north", "south")) == TEXT
