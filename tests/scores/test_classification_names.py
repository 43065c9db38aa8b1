"""The names that `dco.scores` promises."""

import pytest

import dco.scores


@pytest.mark.parametrize("name", dco.scores.__all__)
def test_every_promised_name_is_there(name):
    assert getattr(dco.scores, name).__name__ == name
    assert name in dir(dco.scores)


def test_the_names_promised_are_the_names_with_a_home():
    assert set(dco.scores.__all__) == set(dco.scores._MODULE_OF)


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'LACK'"):
        dco.scores.LACK  # noqa: B018
