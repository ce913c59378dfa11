"""What no file of the project may say, and what its documents may claim."""

import re
from pathlib import Path

import pytest

from tidegate.app.cli.verbs import NOT_BUILT, VERBS

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAM_TEXT = {".py", ".sh", ".lua", ".html", ".css", ".js", ""}
TEXT = PROGRAM_TEXT | {".md", ".txt", ".toml", ".yaml", ".yml", ".json", ".csv", ".lock"}
NOT_OURS = {".git", ".venv", ".cache", "demo-out", "dist", "build", "__pycache__", ".hypothesis"}

# Whoever installs chooses the registry, a machine's folders are nobody else's, the text speaks of the project alone.
BANNED = {
    "a registry": re.compile(r"pypi\.org|pythonhosted\.org|npmjs\.org|debian\.org|ubuntu\.com", re.IGNORECASE),
    "a machine's folder": re.compile(r"(?<![\w.\-])/(?:work|root|opt/pypi|opt/wheels|tmp/tg|home/\w+)/"),
    "how the work is organised": re.compile(
        r"\b(?:issue|ticket|milestone|sprint) #?\d|\bsub-?agents?\b", re.IGNORECASE
    ),
    "a work step": re.compile(r"\b(?:in|of|until|by|since|for|from) step [1-9]\b", re.IGNORECASE),
}


def texts() -> list[Path]:
    found = []
    for path in sorted(CHECKOUT.rglob("*")):
        inside = path.relative_to(CHECKOUT).parts
        generated = any(part in NOT_OURS or part.endswith("_cache") for part in inside)
        if not generated and path.is_file() and path.suffix in TEXT and path != Path(__file__).resolve():
            found.append(path)
    return found


@pytest.mark.parametrize("what", BANNED)
def test_no_file_names(what: str) -> None:
    hits = [
        f"{path.relative_to(CHECKOUT)}:{number}: {line.strip()[:120]}"
        for path in texts()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1)
        if BANNED[what].search(line)
    ]
    assert hits == []


def code_of(path: Path) -> str:
    """Return what a document shows as code: fenced blocks and spans; prose may `make sure` of things."""
    text = path.read_text()
    fenced = re.findall(r"^```.*?$(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    spans = re.findall(r"`([^`\n]+)`", text)
    return "\n".join([*fenced, *spans])


def documents() -> list[Path]:
    return [
        CHECKOUT / "README.md",
        CHECKOUT / "CONTRIBUTING.md",
        CHECKOUT / "CHANGELOG.md",
        *(CHECKOUT / "docs").rglob("*.md"),
    ]


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_document_names_only_verbs_and_targets_that_exist(path: Path) -> None:
    code = code_of(path)
    verbs = {verb.name for verb in VERBS} | {name for name, _ in NOT_BUILT}
    targets = set(re.findall(r"^([a-z]+):", (CHECKOUT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"(?:^|[\s$/])tidegate ([a-z]+)\b", code, flags=re.MULTILINE)) <= verbs
    assert set(re.findall(r"(?:^|[\s$])make ([a-z]+)\b", code, flags=re.MULTILINE)) <= targets


def links() -> list[tuple[Path, str]]:
    return [
        (path, target)
        for path in documents()
        for target in re.findall(r"\]\(([^)#\s]+)", path.read_text())
        if not target.startswith(("http:", "https:", "mailto:"))
    ]


def test_links_between_documents_lead_somewhere() -> None:
    broken = [f"{path.name}: {target}" for path, target in links() if not (path.parent / target).exists()]
    assert broken == []
