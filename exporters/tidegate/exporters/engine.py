"""The engine exporter: scrapes engines and serves their numbers under one schema, `tidegate_engine_*`."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from tidegate.catalogue.canonical import QUANTITIES
from tidegate.catalogue.engines import ENGINES
from tidegate.exporters.engine_fetch import Failed, fetch
from tidegate.exporters.engine_normalise import Normalised, canonical_name, normalise
from tidegate.exporters.exposition import Family, Labels, Sample
from tidegate.terms.errors import BadInputError, NotBuiltYetError

MAX_TARGETS = 256
DEFAULT_TIMEOUT_S = 5.0
UP_NAME = "tidegate_exporter_engine_up"
DURATION_NAME = "tidegate_exporter_engine_scrape_duration_seconds"
SINCE_NAME = "tidegate_exporter_engine_seconds_since_success"
CONTRACT_NAME = "tidegate_engine_contract"
_BUILT = ("vllm",)
_THREADS = 32  # one slow target holds one of them for its timeout


class TargetError(BadInputError):
    """A target is not an address to scrape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """What one target gave, and how long it took."""

    target: str
    result: Normalised | Failed
    duration_s: float


def target_url(text: str) -> str:
    """Return the URL to scrape; `/metrics` is added when it has no path.

    Raises:
        TargetError: Not http(s)://host[:port][/path], or it carries a password, which would end up in a label.
    """
    try:
        parts = urlsplit(text)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:  # a port that is no number, brackets that do not close
        usable, parts = False, urlsplit("")
    if not usable or not text.isascii() or not text.isprintable() or " " in text:
        msg = f"--target: must be http(s)://host:port[/path], got {text!r}"
        raise TargetError(msg)
    if parts.username is not None or parts.password is not None:
        msg = f"--target: must not carry a user or password, got one for {parts.hostname}"
        raise TargetError(msg)
    return text if parts.path not in {"", "/"} else parts._replace(path="/metrics").geturl()


class EngineExporter:
    """Scrapes its targets at each collection, each within its own time and size.

    Args:
        targets: URLs; at most `MAX_TARGETS`, no two alike.
        engine: Engine kind of all targets.
        timeout_s: For one target, connect to last byte.
        clock: Returns Unix seconds.

    Raises:
        TargetError: No, too many, doubled or unusable targets.
        NotBuiltYetError: The engine's aliases are not used by this exporter yet.
    """

    def __init__(self, targets: Sequence[str], *, engine: str, timeout_s: float, clock: Callable[[], float]) -> None:
        if engine not in _BUILT:
            msg = f"--engine {engine}: not built yet; built are {', '.join(_BUILT)}"
            raise NotBuiltYetError(msg)
        self._urls = tuple(target_url(target) for target in targets)
        if not 1 <= len(self._urls) <= MAX_TARGETS:
            msg = f"--target: must be given 1 to {MAX_TARGETS} times, got {len(self._urls)}"
            raise TargetError(msg)
        doubled = next((url for url in self._urls if self._urls.count(url) > 1), None)
        if doubled is not None:
            msg = f"--target: {doubled} is given twice; its numbers would count twice"
            raise TargetError(msg)
        self._catalogue = ENGINES[engine]
        self._timeout_s = timeout_s
        self._clock = clock
        self._succeeded_at_s: dict[str, float] = {}

    def scrape(self) -> tuple[Scrape, ...]:
        """Return one scrape of every target, in their order. A failed target does not touch the others."""
        with ThreadPoolExecutor(max_workers=min(_THREADS, len(self._urls)), thread_name_prefix="scrape") as pool:
            return tuple(pool.map(self._scrape_one, self._urls))

    def collect(self) -> tuple[Family, ...]:
        """Return all targets' families."""
        return self.families(self.scrape())

    def families(self, scrapes: Sequence[Scrape]) -> tuple[Family, ...]:
        """Return canonical families, then the account of the scrapes themselves."""
        merged: dict[str, list[Sample]] = {}
        for scrape in scrapes:
            if isinstance(scrape.result, Normalised):
                for name, samples in scrape.result.samples.items():
                    merged.setdefault(name, []).extend(self._named(scrape.target, sample) for sample in samples)
        canonical = tuple(
            Family(
                name=canonical_name(q),
                kind=q.kind.value,
                meaning=q.meaning,
                samples=tuple(merged.get(canonical_name(q), ())),
            )
            for q in QUANTITIES
        )
        return canonical + _account(scrapes, self._ages_s())

    def _scrape_one(self, url: str) -> Scrape:
        began_s = time.monotonic()
        page = fetch(url, timeout_s=self._timeout_s)
        now_s = self._clock()
        result = page if isinstance(page, Failed) else normalise(page, self._catalogue, now_s=now_s)
        if not isinstance(result, Failed):
            self._succeeded_at_s[url] = now_s
        return Scrape(target=url, result=result, duration_s=time.monotonic() - began_s)

    def _named(self, target: str, sample: Sample) -> Sample:
        labels: Labels = (("target", target), ("engine_kind", self._catalogue.engine), *sample.labels)
        return Sample(value=sample.value, labels=labels, suffix=sample.suffix)

    def _ages_s(self) -> dict[str, float]:
        now_s = self._clock()
        return {url: max(0.0, now_s - at_s) for url, at_s in sorted(self._succeeded_at_s.items())}


def _account(scrapes: Sequence[Scrape], ages_s: dict[str, float]) -> tuple[Family, ...]:
    up, contract = [], []
    for scrape in scrapes:
        target: Labels = (("target", scrape.target),)
        if isinstance(scrape.result, Failed):
            up.append(Sample(value=0.0, labels=(*target, ("reason", scrape.result.reason))))
            continue
        up.append(Sample(value=1.0, labels=target))
        contract += [
            Sample(
                value=1.0,
                labels=(
                    *target,
                    ("quantity", finding.quantity.name),
                    ("required", str(finding.quantity.required).lower()),
                    ("state", finding.state),
                    ("alias", finding.alias),
                    ("reason", finding.reason),
                ),
            )
            for finding in scrape.result.findings
        ]
    took = [Sample(value=s.duration_s, labels=(("target", s.target),)) for s in scrapes]
    ages = [Sample(value=age_s, labels=(("target", url),)) for url, age_s in ages_s.items()]
    return (
        _gauge(CONTRACT_NAME, "What became of each quantity: found (by alias), missing, stale or suspect.", contract),
        _gauge(UP_NAME, "1 when the target gave a page; 0 with the reason when it did not.", up),
        _gauge(DURATION_NAME, "Time to fetch and read the target's page.", took),
        _gauge(SINCE_NAME, "Seconds since the target last gave a page; absent if it never did.", ages),
    )


def _gauge(name: str, meaning: str, samples: list[Sample]) -> Family:
    kind: Literal["gauge"] = "gauge"
    return Family(name=name, kind=kind, meaning=meaning, samples=tuple(samples))
