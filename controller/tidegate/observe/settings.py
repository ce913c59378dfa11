"""How the fleet's series are found and how fresh they must be."""

from dataclasses import dataclass

from tidegate.terms.errors import BadInputError

MIN_SCRAPES_PER_WINDOW = 4  # a rate over fewer is mostly noise, and one lost scrape empties it


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserveSettings:
    """Windows and join labels.

    Raises:
        BadInputError: The window is too short for the scrape interval, or a figure is not positive.
    """

    rate_window_s: float
    scrape_interval_s: float
    stale_after_s: float
    replica_label: str = "replica"
    service_label: str = "service"
    pool_label: str = "pool"
    gateway_job: str = "envoy"

    def __post_init__(self) -> None:
        if self.scrape_interval_s <= 0 or self.stale_after_s <= 0:
            msg = (
                "observe: scrape interval and stale-after must be > 0 s, "
                f"got {self.scrape_interval_s:g} and {self.stale_after_s:g}"
            )
            raise BadInputError(msg)
        if self.rate_window_s < MIN_SCRAPES_PER_WINDOW * self.scrape_interval_s:
            msg = (
                f"observe.rate_window_s: must be >= {MIN_SCRAPES_PER_WINDOW} scrape intervals "
                f"({MIN_SCRAPES_PER_WINDOW * self.scrape_interval_s:g} s), got {self.rate_window_s:g}"
            )
            raise BadInputError(msg)

    @property
    def fresh_within_s(self) -> float:
        """Greatest age of a sample that counts as fresh: never less than three scrapes, or one slow scrape is stale."""
        return max(self.stale_after_s, 3 * self.scrape_interval_s)

    @property
    def settle_s(self) -> float:
        """How long a new replica may go unseen: Prometheus applies new targets every 5 s, then scrapes twice."""
        return 5.0 + 3 * self.scrape_interval_s

    @property
    def look_back_s(self) -> float:
        """Span of raw samples to ask for."""
        return max(self.rate_window_s, self.fresh_within_s) + self.scrape_interval_s
