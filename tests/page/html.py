"""Pages, read as a browser would: their elements, their text, and what they would fetch."""

import re
from html.parser import HTMLParser

VOID = {"meta", "link", "img", "br", "hr", "input", "source", "wbr", "col", "area", "base", "embed", "track"}


class Document(HTMLParser):
    """A page's elements with their attributes and its text; remembers tags that do not match."""

    def __init__(self, html: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.faults: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        self.faults += [f"<{tag}> is never closed" for tag in self._open]

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self._open or self._open[-1] != tag:
            self.faults.append(f"</{tag}> within {self._open[-1:]} at {self.getpos()}")
        else:
            self._open.pop()

    def handle_data(self, data):
        if self._open and self._open[-1] not in ("style", "script"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def needs_nothing_else(html: str) -> None:
    """Fails for a page that would fetch, or run, something."""
    document = Document(html)
    for tag, attributes in document.elements:
        for name, value in attributes.items():
            if name in ("src", "href", "xlink:href", "data", "action", "poster", "srcset"):
                assert str(value).startswith("#"), f"<{tag} {name}={value}>"
            assert not name.startswith("on"), f"<{tag} {name}={value}>"
    for tag in ("script", "link", "iframe", "object", "embed"):
        assert document.all(tag) == [], tag
    assert not re.search(r"@import|@font-face", html)
    assert set(re.findall(r"url\((.)", html)) <= {"#"}
    without_names = re.sub(r'xmlns(:\w+)?="[^"]*"', "", html)
    assert "http:" not in without_names
    assert "https:" not in without_names


def references_are_found(html: str) -> None:
    """Fails for a reference to an id that is not there, and for an id that is there twice."""
    ids = re.findall(r'\sid="([^"]*)"', html)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"url\(#([^)]*)\)", html)) <= set(ids)
    assert set(re.findall(r'href="#([^"]*)"', html)) <= set(ids)
