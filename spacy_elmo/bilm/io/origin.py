"""What a model's `meta` says of the model that it was begun from."""

from typing import Any, Dict, Mapping

BEGUN_FROM = "begun_from"
#: Facts that hold for what is trained on from a model as well.
_SHARED = ("language",)


def facts_begun_from(meta: Mapping[str, Any], name: str) -> Dict[str, Any]:
    """Facts for a model that is trained on from another one, which it is no longer.

    Name, licence, training and all else that is said of the source goes under ``begun_from``,
    also what the source itself was begun from.

    :param meta: `meta` of the source.
    :param name: What to call the source if it has no name.
    """
    source = {"name": name, **{key: v for key, v in meta.items() if key not in _SHARED}}
    facts = {key: meta[key] for key in _SHARED if key in meta}
    if any(key in meta for key in ("licence", "license")):
        # Its own text may point to a card, or say what does not hold for the new text.
        facts["licence"] = f"see the card of {source['name']}, which this model was begun from"
    return {**facts, BEGUN_FROM: source}


def describe_origin(meta: Mapping[str, Any]) -> str:
    """Name of the model that one was begun from, and of what that was begun from; may be empty."""
    names = []
    source = meta.get(BEGUN_FROM)
    while isinstance(source, Mapping):
        names.append(str(source.get("name") or "a model without a name"))
        source = source.get(BEGUN_FROM)
    return ", begun from ".join(names)
