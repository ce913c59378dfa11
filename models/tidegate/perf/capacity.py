"""What one replica can carry inside its latency limits, in closed form.

Let u be the requests that arrive during one step. In steady state every step carries, per request arriving in it, the
request's whole prefill and, from the requests before it, a token for each output token but the first (Little's law for
the batch: decoding = u * (output - 1)). So the mean step f(u) follows from u alone, the rate is u / f(u), and as f is
convex with f(0) > 0 that rate grows with u: each limit is one bisection on u, the lowest u wins, and its limit binds.

Only mean lengths are known, so lengths are taken as exponential (coefficient of variation 1; Azure's 2023 conversation
trace has 0.96 for prompts and 0.77 for answers): E[x^2] = 2 * mean^2 wherever a square enters, and a 95th percentile is
three means.

Tail margins at quantile q (default 0.95) with z its normal deviate, checked against `sim.replica`:
- TPOT = f + z * sqrt(V / (1 - load)). V is the noise of the prompts prefilled during an answer of 200 tokens (compound
  Poisson, plus one term for its skew when they are few) and of the batch (Poisson). The answer's length is fixed at 200
  so that longer answers never raise the capacity; means well under that are noisier than said here.
- TTFT = front end + one mean step + wait + prefill of a prompt at q. The wait is that of a single exponential server
  whose work is prefill at the full token budget (Kleinrock, Queueing Systems vol. 1, ch. 3).
- KV and sequences: the budget must hold the batch at quantile 0.99.
- Steady state: at most 0.95 of the rate at which steps would grow without end.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

from tidegate.perf.profile import PS_PER_S, EngineProfile

_OVERFLOW_Z = NormalDist().inv_cdf(0.99)  # of the batch that KV and sequence slots must hold
_NOISE_TOKENS = 200.0  # answer length whose TPOT noise is taken
_SKEW = 22.0  # fitted to simulated p95 TPOT, with the 2.0 and 0.2 beside it, over twelve pairs of lengths and limits
_STEADY_RATIO = 0.95  # of the asymptotic rate; beyond it queues outlast any load peak
_MOST_PER_STEP = 1e6  # requests arriving in one step, far past any limit
_LOOKS = 12  # at most, to close in on a limit
_NARROW = 3e-5  # a third of the precision asked for, in logarithms
_CURVE = 0.05  # how far figures are from a straight line, per squared unit of logarithm; a bad guess only costs looks
_LONE = 1e-6  # requests arriving in one step: a replica that is all but idle


class Limit(StrEnum):
    """What keeps a replica from carrying more."""

    TPOT = "tpot"
    TTFT = "ttft"
    KV = "kv"
    SEQUENCES = "sequences"
    COMPUTE = "compute"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sustainable:
    """The highest steady load of one replica, and what it looks like there.

    `requests_per_s` is 0 when even an idle replica misses a limit; `binding` then names that limit.
    """

    requests_per_s: float
    binding: Limit
    step_s: float  # mean
    tpot_s: float  # at the quantile
    ttft_s: float  # at the quantile
    decoding: float  # mean sequences decoding at once
    kv_used_ratio: float  # mean


class _Load:
    """One replica under requests of given mean lengths, as functions of u."""

    def __init__(self, profile: EngineProfile, *, prompt: float, output: float, quantile: float) -> None:
        p = profile
        self.profile = profile
        self.prompt = prompt
        self.decodes = max(0.0, output - 1.0)
        self._z = NormalDist().inv_cdf(quantile)
        self._tail = -math.log(1.0 - quantile)  # of an exponential, in means
        self._fixed_ps = float(p.step_base_ps + p.host_fixed_ps)
        self._token_ps = p.compute_ps_per_token * p.compute_factor_ratio
        self._read_ps = float(p.weight_read_ps)
        self._power, self._root = p.smooth_max_power, 1.0 / p.smooth_max_power
        # A decoding sequence's KV, over its time in the batch: E[p] + E[o^2] / (2 E[o]).
        self.context = prompt + output
        self._decode_ps = p.kv_read_ps_per_token * self.context + p.host_ps_per_sequence
        self._prompt_ps = p.attention_ps_per_pair * prompt * prompt + p.host_ps_per_sequence  # E[p^2] / 2
        # Second moment of one prompt's own time, c1 * p + c3 * p^2 / 2, over exponential p.
        linear, square = self._token_ps * prompt, p.attention_ps_per_pair * prompt * prompt
        self._prompt_square_ps2 = 2.0 * linear**2 + 6.0 * linear * square + 6.0 * square**2
        self._full_dense_ps = self.dense_ps(p.token_budget)
        self._step_at = (-1.0, 0.0)  # the last u asked for and its step: every figure at one u starts from it
        self.cost_ps = self._token_ps * (self.decodes + prompt) + self._decode_ps * self.decodes + self._prompt_ps

    def dense_ps(self, tokens: float) -> float:
        """Return `steptime.dense_ps`, without its look-ups: half the time of a capacity goes here."""
        read, compute = self._read_ps, self._token_ps * tokens
        if read < compute:
            return compute * math.pow(1.0 + math.pow(read / compute, self._power), self._root)
        return read * math.pow(1.0 + math.pow(compute / read, self._power), self._root)

    def decoding(self, u: float) -> float:
        return u * self.decodes

    def crowd(self, u: float) -> float:
        """Return the decoding sequences that KV and sequence slots must hold."""
        mean = self.decoding(u)
        return mean + _OVERFLOW_Z * math.sqrt(2.0 * mean)

    def step_ps(self, u: float) -> float:
        """Return the mean step."""
        if self._step_at[0] == u:
            return self._step_at[1]
        decoding = self.decoding(u)
        # Prompts come in lumps: a share of the steps has one or more, the others decode only.
        lumpy = 1.0 - math.exp(-u)
        dense = (1.0 - lumpy) * self.dense_ps(decoding)
        if u > 0.0:
            dense += lumpy * self.dense_ps(decoding + u * self.prompt / lumpy)
        step = self._fixed_ps + dense + self._decode_ps * decoding + self._prompt_ps * u
        self._step_at = (u, step)
        return step

    def rate(self, u: float) -> float:
        """Return requests/s."""
        return u / self.step_ps(u) * PS_PER_S

    def load(self, u: float) -> float:
        """Return the share of a step that grows with the load, 0 to 1."""
        return min(1.0, u * self.cost_ps / self.step_ps(u))

    def tpot_s(self, u: float) -> float:
        prompts = u * _NOISE_TOKENS
        noise = 2.0 * prompts + _SKEW * (1.0 - math.exp(-prompts))
        batch = 0.2 * (self._token_ps + self._decode_ps) ** 2 * self.decoding(u)
        variance = noise * self._prompt_square_ps2 / _NOISE_TOKENS**2 + batch
        spare = max(1e-9, 1.0 - self.load(u))
        return (self.step_ps(u) + self._z * math.sqrt(variance / spare)) / PS_PER_S

    def ttft_s(self, u: float) -> float:
        """Return the time to first token at the quantile; infinite when prefill cannot keep up."""
        p = self.profile
        decoding = self.decoding(u)
        room = p.token_budget - decoding
        if room < 1.0:
            return math.inf
        full_ps = self._fixed_ps + self._full_dense_ps + self._decode_ps * decoding
        mean_ps = self.prompt / room * full_ps + self._prompt_ps
        used = u / self.step_ps(u) * mean_ps
        if used >= 1.0:
            return math.inf
        wait_ps = max(0.0, math.log(used) + self._tail) * mean_ps / (1.0 - used) if used > 0.0 else 0.0
        long = min(self.prompt * self._tail, float(p.longest_request_tokens))
        own_steps = max(1.0, long / room)
        own_ps = own_steps * (self._fixed_ps + self.dense_ps(decoding + long / own_steps) + self._decode_ps * decoding)
        own_ps += p.attention_ps_per_pair * long * long / 2.0
        front_ps = p.front_end_ps_per_live * (decoding + u)
        return p.front_end_s + (front_ps + self.step_ps(u) + wait_ps + own_ps) / PS_PER_S

    def kv_tokens(self, u: float, decoding: float) -> float:
        """Return resident KV tokens; a prompt being computed holds its blocks too, and each sequence half a block."""
        return (decoding + u) * (self.context + self.profile.block_tokens / 2.0)


def replica_capacity(
    profile: EngineProfile,
    *,
    ttft_s: float | None,
    tpot_s: float | None,
    prompt_tokens: float,
    output_tokens: float,
    quantile: float = 0.95,
) -> Sustainable:
    """Return the highest steady arrival rate of one replica at which the latency limits hold.

    Never rises with longer prompts or answers or with tighter limits.

    Args:
        profile: The engine.
        ttft_s: Limit of the time to first token at `quantile`, or None.
        tpot_s: Limit of a request's mean time per output token at `quantile`, or None.
        prompt_tokens: Mean prompt length, > 0.
        output_tokens: Mean answer length, >= 1 (less counts as 1).
        quantile: Share of requests that must meet each limit, [0.5, 1).

    Raises:
        ValueError: A length that is not a number > 0, a limit <= 0, or a quantile outside its range.

    Source: Little's law for the batch; Kleinrock, Queueing Systems vol. 1, ch. 3, for the exponential wait.
    """
    if not (0.0 < prompt_tokens < math.inf and 0.0 < output_tokens < math.inf):
        msg = f"lengths must be numbers > 0, got prompt {prompt_tokens}, output {output_tokens}"
        raise ValueError(msg)
    if not 0.5 <= quantile < 1.0:  # noqa: PLR2004  (under the median there is no tail)
        msg = f"quantile must be in [0.5, 1), got {quantile}"
        raise ValueError(msg)
    if any(limit is not None and not limit > 0.0 for limit in (ttft_s, tpot_s)):
        msg = f"limits must be > 0 s, got ttft {ttft_s}, tpot {tpot_s}"
        raise ValueError(msg)
    load = _Load(profile, prompt=prompt_tokens, output=max(1.0, output_tokens), quantile=quantile)
    u, binding = _most(_limits(load, ttft_s, tpot_s))
    return Sustainable(
        requests_per_s=load.rate(u),
        binding=binding,
        step_s=load.step_ps(u) / PS_PER_S,
        tpot_s=load.tpot_s(u),
        ttft_s=load.ttft_s(u),
        decoding=load.decoding(u),
        kv_used_ratio=load.kv_tokens(u, load.decoding(u)) / profile.kv_capacity_tokens,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bound:
    """One limit: it holds while `figure(u)` <= `most`, which is so up to some u and not beyond it."""

    limit: Limit
    figure: Callable[[float], float]
    most: float  # > 0


def _limits(load: _Load, ttft_s: float | None, tpot_s: float | None) -> list[_Bound]:
    profile = load.profile
    kv_tokens = float(profile.kv_blocks * profile.block_tokens)
    bounds = [
        _Bound(limit=Limit.COMPUTE, figure=load.load, most=_STEADY_RATIO),
        _Bound(
            limit=Limit.COMPUTE,
            figure=lambda u: load.decoding(u) + u * load.prompt,
            most=float(profile.token_budget),
        ),
        _Bound(limit=Limit.SEQUENCES, figure=lambda u: load.crowd(u) + u, most=float(profile.max_sequences)),
        _Bound(limit=Limit.KV, figure=lambda u: load.kv_tokens(u, load.crowd(u)), most=kv_tokens),
    ]
    if tpot_s is not None and load.decodes > 0.0:
        bounds.append(_Bound(limit=Limit.TPOT, figure=load.tpot_s, most=tpot_s))
    if ttft_s is not None:
        bounds.append(_Bound(limit=Limit.TTFT, figure=load.ttft_s, most=ttft_s))
    return bounds


class _Search:
    """Where the limits cease to hold together, with as few looks as possible: what one look told is not asked again."""

    def __init__(self, bounds: list[_Bound]) -> None:
        self._bounds = bounds
        self._open = bounds  # those that may bind: the others hold at a u known to break one
        self._low = self._high = math.nan  # the largest u known to hold, the smallest known not to
        self._low_margin = self._high_margin = math.nan  # log of the worst figure over its limit there

    def holds(self, u: float) -> bool:
        """Return whether every limit holds at u."""
        if u <= self._low:
            return True
        if u >= self._high:
            return False
        figures = [(b, b.figure(u)) for b in self._open]
        broken = [b for b, figure in figures if not figure <= b.most]
        margin = math.log(max(figure / b.most for b, figure in figures))
        if broken:
            self._open = broken
            self._high, self._high_margin = u, margin
            return False
        self._low, self._low_margin = u, margin
        return True

    def narrow(self) -> None:
        """Close in on the border between a point that holds and one that does not, if both are known.

        Each look is where a straight line on logarithms puts the border, moved a little towards the nearer end, so
        that it is the farther end that comes in; the little shrinks with the square of the distance, as the line's
        error does.
        """
        for _ in range(_LOOKS):
            low, high = math.log(self._low), math.log(self._high)
            width, under, over = high - low, -self._low_margin, self._high_margin
            if not (width > _NARROW and under >= 0.0 and 0.0 < over < math.inf):
                return
            guess = low + width * under / (under + over)
            slip = max(_NARROW / 3.0, _CURVE * width * width)
            aim = guess - slip if guess - low > high - guess else guess + slip
            self.holds(math.exp(aim if low < aim < high else low + width / 2.0))

    def binding(self, u: float) -> Limit:
        """Return the first limit that does not hold at u, or the first of all when all do."""
        broken = (b.limit for b in self._bounds if not b.figure(u) <= b.most)
        return next(broken, self._bounds[0].limit)


def _most(bounds: list[_Bound]) -> tuple[float, Limit]:
    """Return the largest u at which every limit holds, to a part in ten thousand, and the limit that binds.

    0 when not even a lone request meets them all. The points tried are the same for every load, so that equal limits
    have equal answers.
    """
    search = _Search(bounds)
    low = high = 0.1
    if not search.holds(low) and not search.holds(_LONE):
        return 0.0, search.binding(_LONE)
    while high < _MOST_PER_STEP and search.holds(high):
        low, high = high, high * 4.0
    while low > _LONE and not search.holds(low):
        low, high = low / 4.0, low
    search.narrow()
    while high > low * 1.0001:
        middle = math.sqrt(low * high)
        if search.holds(middle):
            low = middle
        else:
            high = middle
    return low, search.binding(high)
