"""The notation of the message tables."""

from __future__ import annotations

import pytest

from ottla_wire.protocol import ApiKey, schemas
from ottla_wire.protocol.schema import VersionRange, parse_message
from ottla_wire.protocol.schemas import parse_record_tables

TEXT = """
id          int32           =-1
names       [string]?       2+ =null
owner       Person
    name    string          ?3+ =nobody
    friend  Address?        =null
homes       [Address]       1-3
flag        bool            4 =true @0
limit       int64           @1:5+
struct Address
    street  string
"""


@pytest.fixture
def fields():
    schema = parse_message("Example", TEXT, versions="0-6", flexible="4+")
    return {member.name: member for member in schema.struct.fields}


def test_fields_nest_by_indentation(fields):
    assert list(fields) == ["id", "names", "owner", "homes", "flag", "limit"]
    assert [member.name for member in fields["owner"].struct.fields] == ["name", "friend"]


def test_a_shared_struct_is_one_struct(fields):
    friend = fields["owner"].struct.fields[1]
    assert friend.struct is fields["homes"].struct
    assert [member.name for member in friend.struct.fields] == ["street"]


def test_versions_nullability_defaults_and_tags_are_read(fields):
    assert fields["id"].default == -1
    assert fields["names"].default is None
    assert fields["names"].is_array
    assert 1 not in fields["names"].versions
    assert 2 in fields["names"].nullable
    name = fields["owner"].struct.fields[0]
    assert name.default == "nobody"
    assert 2 not in name.nullable
    assert 3 in name.nullable
    assert fields["homes"].versions == VersionRange(1, 3)
    assert fields["flag"].default is True
    assert fields["flag"].is_tagged(4, flexible=True)
    assert not fields["flag"].is_tagged(4, flexible=False)
    assert [fields["limit"].is_tagged(version, flexible=True) for version in (4, 5)] == [False, True]


@pytest.mark.parametrize("text", ["a  int33", "a  int32\n    b  int32"])
def test_a_mistake_in_a_table_is_found(text):
    with pytest.raises(ValueError, match="a"):
        parse_message("Wrong", text, versions="0", flexible=None)


def test_a_record_line_has_versions_and_options():
    text = "record A  0\n    a  int8\n\nrecord B  0-2  flexible=1+  type=7\n    b  int8\n"
    assert parse_record_tables(text) == {
        "A": ({"versions": "0"}, "    a  int8\n\n"),
        "B": ({"versions": "0-2", "flexible": "1+", "type": "7"}, "    b  int8\n"),
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("reocrd A  0\n    a  int8\nrecord B  0\n    b  int8\n", "'reocrd A .* stands before the first record"),
        ("record A  0  flexibel=0+\n    a  int8\n", "A: found 'flexibel=0\\+', wanted flexible=<versions>"),
        ("record A  0  flexible\n    a  int8\n", "A: found 'flexible', wanted flexible=<versions>"),
        ("record A\n    a  int8\n", "A: found no versions"),
    ],
)
def test_a_mistake_in_a_record_line_is_found(text, problem):
    with pytest.raises(ValueError, match=problem):
        parse_record_tables(text)


@pytest.mark.parametrize("text", ["3", "1-4", "2+"])
def test_a_version_range_prints_as_it_is_written(text):
    assert str(VersionRange.parse(text)) == text


def test_every_table_is_headed_by_its_name():
    for api in schemas.all_apis():
        assert api.summary.startswith(api.api_key.name.title().replace("_", "") + ":")


def test_tags_of_a_struct_are_unique():
    def check(struct):
        tags = [member.tag for member in struct.fields if member.tag is not None]
        assert len(tags) == len(set(tags)), struct.name
        for member in struct.fields:
            if member.struct is not None:
                check(member.struct)

    for api in schemas.all_apis():
        check(api.request.struct)
        check(api.response.struct)


def test_the_versions_that_python_clients_send_are_there():
    floors = {
        ApiKey.PRODUCE: (3, 10), ApiKey.FETCH: (4, 16), ApiKey.LIST_OFFSETS: (1, 7), ApiKey.METADATA: (0, 13),
        ApiKey.OFFSET_COMMIT: (2, 9), ApiKey.OFFSET_FETCH: (1, 9), ApiKey.FIND_COORDINATOR: (0, 2),
        ApiKey.JOIN_GROUP: (0, 5), ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 2), ApiKey.CREATE_TOPICS: (2, 4),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1), ApiKey.TXN_OFFSET_COMMIT: (0, 3), ApiKey.END_TXN: (0, 5),
    }  # fmt: skip
    for key, (first, last) in floors.items():
        versions = schemas.request(key).versions
        assert first in versions
        assert last in versions
