from common.output_format import OutputFormat, without_old_words


def test_what_versions_up_to_06_called_json_is_still_understood_and_told():
    assert without_old_words(["ledger", "show", "--json", "-c", "a"]) == (
        ["ledger", "show", "--format=json", "-c", "a"],
        True,
    )
    assert without_old_words(["export", "--format", "json"]) == (["export", "--format", "json"], False)


def test_the_names_are_those_that_people_type():
    assert [str(one) for one in OutputFormat] == ["table", "json"]
