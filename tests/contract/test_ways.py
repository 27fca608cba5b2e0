"""What single scenarios read, as JSON: what is said is taken, what cannot be used is refused by name."""

import dataclasses

import pytest

from fourfold.contract import ways
from fourfold.contract.errors import InvalidInputError
from fourfold.contract.records import Training


def test_its_fields_and_defaults_are_those_of_a_training():
    training = dataclasses.asdict(Training("sequential", 1, "store", "f", "s", "out"))
    assert ways.read("{}") == {name: training[name] for name in ways.FIELDS}
    assert ways.read("") == ways.read("{}")


def test_what_is_written_is_read_and_the_usual_is_left_out():
    assert ways.write() == "{}"
    told = {"starts": ["he_uniform:7"], "proximal": 0.5, "placement": "pods", "cut": [], "rows": 10}
    assert ways.write(**told) == '{"placement": "pods", "proximal": 0.5, "starts": ["he_uniform:7"]}'
    assert ways.read(ways.write(**told)) == {
        **ways.read("{}"),
        "starts": ["he_uniform:7"],
        "proximal": 0.5,
        "placement": "pods",
    }


def test_whole_numbers_that_arrive_as_floats_are_taken():
    assert ways.read('{"member_workers": 2.0, "proximal": 1}') == {
        **ways.read("{}"), "member_workers": 2, "proximal": 1.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "ways is not a JSON object such as"),
        ("[]", "it is a list"),
        ('{"proximale": 1}', "did you mean 'proximal'"),
        ('{"cut": "flatten"}', "cut: expected list"),
        ('{"starts": [1]}', "starts: 0: expected str"),
        ('{"debug": 1}', "debug: expected bool"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(text, said):
    with pytest.raises(InvalidInputError) as caught:
        ways.read(text)
    assert said in str(caught.value)
