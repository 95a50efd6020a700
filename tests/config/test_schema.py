import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from agent.config.model import Config
from agent.config.schema import schema as schema_of_configuration
from tests.config.test_one_mistake_each import STRUCTURE
from tests.config.writing import GOOD

EXAMPLE = Path(__file__).parents[2] / "config.example.yaml"


def test_the_schema_is_one_and_accepts_what_the_agent_accepts():
    schema = schema_of_configuration()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert "$id" not in schema
    for text in (GOOD, EXAMPLE.read_text()):
        jsonschema.validate(yaml.safe_load(text), schema)


def test_the_schema_refuses_a_wrong_type_key_and_choice():
    validator = jsonschema.Draft202012Validator(schema_of_configuration())
    refused = 0
    for new, old, _, _ in STRUCTURE:
        if (
            any(word in new for word in ("concurrency: 4.0", ".nan", "99999", "\\n", "true: x", "!!python", "name: 2"))
            or new.count("subject:") > 1
        ):
            continue  # of YAML, or of a parser that knows more than a pattern
        assert list(validator.iter_errors(yaml.safe_load(GOOD.replace(old, new)))), new
        refused += 1
    assert refused > 30


def test_every_block_has_a_description_and_text_durations():
    definitions = schema_of_configuration()["$defs"]
    assert all(definition["description"] for definition in definitions.values())
    assert definitions["Refresh"]["properties"]["maxAge"]["default"] == "1d"
    assert definitions["FilesSettings"]["properties"]["mode"]["default"] == "0640"
    assert set(definitions["Config"]["properties"]) == {field.encode_name for field in __import__("msgspec").structs.fields(Config)}
    json.dumps(definitions)


@pytest.mark.parametrize("kind", ["source", "provider"])
def test_each_source_provider_and_sink_is_found_by_its_type(kind):
    choice = schema_of_configuration()["$defs"]["Identity"]["properties"][kind]
    for name, reference in choice["discriminator"]["mapping"].items():
        definition = schema_of_configuration()["$defs"][reference.rsplit("/", 1)[1]]
        assert definition["properties"]["type"] == {"const": name}
        assert definition["required"][0] == "type"
