"""Engine profiles from YAML: a name that ships with Tidegate, or a file."""

from dataclasses import MISSING, fields
from functools import lru_cache
from importlib import resources
from pathlib import Path

from tidegate.app.config_problem import Problem, did_you_mean, got_must, raise_problems
from tidegate.app.config_yaml import Document, read_documents, read_text
from tidegate.perf.profile import EngineProfile, profile_problems

_SUFFIX = ".yaml"
_KINDS: dict[type, str] = {int: "a whole number", float: "a number", str: "a text"}


def camel(field: str) -> str:
    """Return the YAML spelling of a field of `EngineProfile`."""
    head, *rest = field.split("_")
    return head + "".join(word.capitalize() for word in rest)


def shipped_profiles() -> tuple[str, ...]:
    """Return the names of the profiles that ship with Tidegate, ascending."""
    folder = resources.files("tidegate.perf") / "profiles"
    return tuple(sorted(f.name.removesuffix(_SUFFIX) for f in folder.iterdir() if f.name.endswith(_SUFFIX)))


@lru_cache(maxsize=64)
def _shipped(name: str) -> EngineProfile:
    file = resources.files("tidegate.perf") / "profiles" / f"{name}{_SUFFIX}"
    return _parse(file.read_text(encoding="utf-8"), f"{name}{_SUFFIX}")


def load_profile(name_or_path: str) -> EngineProfile:
    """Return the shipped profile of that name, or the profile in that file (a path has a `/` or ends in .yaml, .yml).

    Raises:
        PolicyFileError: Unknown name, unreadable file, or wrong fields; the text lists every problem.
    """
    if "/" in name_or_path or name_or_path.endswith((_SUFFIX, ".yml")):
        text = read_text(Path(name_or_path))
        if isinstance(text, Problem):
            raise_problems([text])
            raise AssertionError
        return _parse(text, name_or_path)
    known = shipped_profiles()
    if name_or_path not in known:
        names = f"one of the {len(known)} that `tidegate profile list` names"
        must = f"a file, or {names}{did_you_mean(name_or_path, known)}"
        raise_problems([Problem(file="engine profile", line=None, field="", text=got_must(name_or_path, must))])
    return _shipped(name_or_path)


def _parse(text: str, file: str) -> EngineProfile:
    documents, problems = read_documents(text, file)
    raise_problems(problems)
    if len(documents) != 1 or not isinstance(documents[0].value, dict):
        must = "must hold exactly one YAML mapping, an engine profile"
        raise_problems([Problem(file=file, line=None, field="", text=f"holds {len(documents)} documents, {must}")])
    document = documents[0]
    given = document.value
    if not isinstance(given, dict):
        raise TypeError
    wanted = {camel(f.name): (f.name, f.type) for f in fields(EngineProfile)}
    optional = {camel(f.name) for f in fields(EngineProfile) if f.default is not MISSING}
    found = [
        document.problem((key,), f"is no field of an engine profile{did_you_mean(key, wanted)}")
        for key in given
        if key not in wanted
    ]
    values: dict[str, object] = {}
    for key, (name, kind) in wanted.items():
        if key not in given:
            if key not in optional:
                found.append(document.problem((key,), "is missing"))
            continue
        value = _value(given[key], kind)
        if value is None:
            found.append(document.problem((key,), got_must(given[key], _KINDS[_plain(kind)])))
        else:
            values[name] = value
    raise_problems(found)
    return _checked(values, document)


def _plain(kind: object) -> type:
    return kind if isinstance(kind, type) else {"int": int, "float": float}.get(str(kind), str)


def _value(given: object, kind: object) -> object | None:
    """Return `given` as `kind`, or None when it is of another kind; a whole number is a number, a boolean is not."""
    plain = _plain(kind)
    if isinstance(given, bool):
        return None
    if plain is float and isinstance(given, int | float):
        return float(given)
    return given if isinstance(given, plain) else None


def _checked(values: dict[str, object], document: Document) -> EngineProfile:
    profile = EngineProfile(**values)  # type: ignore[arg-type]  # kinds were checked field by field
    raise_problems(
        [
            document.problem((camel(field),), got_must(getattr(profile, field), must))
            for field, must in profile_problems(profile)
        ]
    )
    return profile
