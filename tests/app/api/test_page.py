"""What the page must never do; how it looks was judged by eye."""

import re
from importlib import resources

import pytest

FOLDER = resources.files("tidegate.app") / "page"
FILES = {f.name: f.read_text(encoding="utf-8") for f in FOLDER.iterdir()}


def test_page_names_only_files_that_are_served() -> None:
    from tidegate.app.api import _PAGE_FILES  # noqa: PLC0415  (with FastAPI, slower than the rest of this file)

    named = set(re.findall(r"/static/([a-z.]+)", "".join(FILES.values())))
    assert named <= set(_PAGE_FILES)
    assert set(FILES) == set(_PAGE_FILES)


@pytest.mark.parametrize("name", sorted(FILES))
def test_page_needs_no_other_host(name: str) -> None:
    text = FILES[name].replace("http://www.w3.org/2000/svg", "")
    assert re.findall(r"https?://|//cdn|@import|@font-face", text) == []


@pytest.mark.parametrize("name", [n for n in sorted(FILES) if n.endswith(".js")])
def test_script_never_parses_text_as_markup(name: str) -> None:
    banned = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|createContextualFragment"
    assert re.findall(banned, FILES[name]) == []


def test_page_has_no_inline_script_or_style() -> None:
    page = FILES["index.html"]
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\son[a-z]+=|\sstyle=", page) == []
    assert re.findall(r"style:|\"style\"", "".join(FILES[n] for n in FILES if n.endswith(".js"))) == []
