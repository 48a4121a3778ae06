"""Holds JSON against the schemas of the API's document.

As a program: json_schemas.py OPENAPI.json NAME or [NAME], with the JSON on standard input. Properties that no schema names are refused, as are
times in any other form than `_unix_s`."""
import copy, json, re, sys

import jsonschema


class Schemas:
    def __init__(self, document):
        """The document's schemas, such that no object may have what its schema does not name."""
        self.schemas = copy.deepcopy(json.load(open(document))["components"]["schemas"])
        parts = json.dumps([s["allOf"] for s in self.schemas.values() if "allOf" in s])
        parts = set(re.findall(r'"#/components/schemas/(\w+)"', parts))
        for name, schema in self.schemas.items():
            if "allOf" in schema or ("properties" in schema and name not in parts):
                schema["unevaluatedProperties"] = False

    def hold(self, name, value):
        """`name`: NAME, or [NAME] for a list of them."""
        one = {"$ref": f"#/components/schemas/{name[0] if isinstance(name, list) else name}"}
        whole = {"type": "array", "items": one} if isinstance(name, list) else one
        jsonschema.Draft202012Validator({**whole, "components": {"schemas": self.schemas}}).validate(value)
        assert not unnamed_times(value), unnamed_times(value)


def unnamed_times(value, at=""):
    """Strings that look like times."""
    if isinstance(value, dict):
        return [found for key, inner in value.items() for found in unnamed_times(inner, f"{at}.{key}")]
    if isinstance(value, list):
        return [found for inner in value for found in unnamed_times(inner, at)]
    return [f"{at}: {value}"] if isinstance(value, str) and re.match(r"\d{4}-\d{2}-\d{2}[ T]\d{2}:", value) else []


if __name__ == "__main__":
    document, name = sys.argv[1:]
    is_list = name.startswith("[")
    Schemas(document).hold([name.strip("[]")] if is_list else name, json.load(sys.stdin))
