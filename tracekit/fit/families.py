"""Families of duration distributions, each with its formulas, starting points and random draws.

Parameters have scipy's names, `loc` is 0, and every parameter is above 0. The names of a mixture's parameters end in
the number of their part: weight_1, s_1, scale_1, weight_2, ... The weights sum to 1, and the parts are ordered by
`scale`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tracekit.array_types import Floats
    from tracekit.fit.sample import Sample

    Formula = Callable[[Floats, Floats, Any], Any]
    """A formula in the durations, their logarithms and the parameters."""


@dataclass(frozen=True)
class Family:
    """One family of distributions over durations above 0 [s]."""

    name: str
    scipy: str
    """Name in scipy.stats; for a mixture, the name of its parts."""
    own: tuple[str, ...]
    """Parameters of one part, by scipy's names."""
    density: Formula
    """Log-density."""
    survival: Formula
    """Logarithm of the share that lasts longer."""
    begins: Callable[[Moments], list[tuple[float, ...]]]
    """Returns the parameters from which a fit starts, most promising first; mixtures start from EM instead."""
    drawn: Callable[[Floats, np.random.Generator], Any]
    """Draws one duration for each row of parameters of one part."""
    em: tuple[Callable[..., list[float]], Callable[..., Floats]] | None = None
    """For parts of mixtures, functions that return a part's parameters from weighted durations and do a round of EM."""
    parts: int = 1

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of all parameters in the order of a parameter vector."""
        if self.parts == 1:
            return self.own
        return tuple(f"{name}_{k}" for k in range(1, self.parts + 1) for name in ("weight", *self.own))

    @property
    def free(self) -> int:
        """Number of free parameters, which is one less for a mixture, because its weights sum to 1."""
        return self.parts * (len(self.own) + 1) - 1 if self.parts > 1 else len(self.own)

    def named(self, p: Floats) -> dict[str, float]:
        """Return a parameter vector by name."""
        return dict(zip(self.parameters, map(float, p), strict=True))

    def vector(self, named: Mapping[str, float]) -> Floats:
        """Return named parameters as a vector."""
        return np.array([named[name] for name in self.parameters], float)

    def unit(self, name: str) -> str:
        """Return the unit of a parameter: seconds for scales, and dimensionless for all others."""
        return "s" if name.startswith("scale") else "1"

    def to_free(self, p: Floats) -> Floats:
        """Return unbounded coordinates: logarithms of parameters, and log-ratios of weights to the last weight."""
        logs = np.log(p)
        if self.parts == 1:
            return logs
        each = logs.reshape(self.parts, -1)
        return np.concatenate([each[:-1, 0] - each[-1, 0], each[:, 1:].ravel()])

    def from_free(self, theta: Floats) -> Floats:
        """Return the parameters at unbounded coordinates, along the last axis."""
        if self.parts == 1:
            return np.exp(theta)
        shape = theta.shape[:-1]
        ratios = np.concatenate([theta[..., : self.parts - 1], np.zeros((*shape, 1))], axis=-1)
        weights = np.exp(ratios - ratios.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        rest = np.exp(theta[..., self.parts - 1 :]).reshape(*shape, self.parts, -1)
        return np.concatenate([weights[..., None], rest], axis=-1).reshape(*shape, -1)

    def ordered(self, p: Floats) -> Floats:
        """Return the parameters with the parts of a mixture ordered by scale."""
        if self.parts == 1:
            return p
        each = p.reshape(self.parts, -1)
        return each[np.argsort(each[:, -1], kind="stable")].ravel()

    def problem(self, named: Mapping[str, Any]) -> str | None:
        """Return the reason why these parameters are invalid, or None if they are valid."""
        if set(named) != set(self.parameters):
            return f"{self.name} has the parameters {', '.join(self.parameters)}"
        for name, value in named.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value) or value <= 0:
                return f"{self.name}: {name} must be a number above 0, not {value}"
        total = sum(v for k, v in named.items() if k.startswith("weight"))
        if self.parts > 1 and abs(total - 1) > 1e-6:
            return f"{self.name}: the weights sum to {total:g}, not to 1"
        return None

    def logpdf(self, x: Floats, p: Floats) -> Floats:
        """Return the log-density at durations above 0."""
        return self.density(x, np.log(x), p)

    def logsf(self, x: Floats, p: Floats) -> Floats:
        """Return the logarithm of the share that lasts longer than each duration."""
        return np.minimum(self.survival(x, np.log(np.maximum(x, 1e-300)), p), 0.0)

    def cdf(self, x: Floats, p: Floats) -> Floats:
        """Return the share that lasts no longer than each duration."""
        return np.where(x > 0, -np.expm1(self.logsf(x, p)), 0.0)

    def starts(self, sample: Sample) -> list[Floats]:
        """Return the parameter vectors from which a fit starts, most promising first."""
        if self.parts > 1:
            grouped = sample.coarse(_EM_VALUES)
            return [em(self, grouped, cut) for cut in _CUTS[self.parts]]
        return [np.array(one, float) for one in self.begins(Moments.of(sample))]

    def draw(self, p: Floats, size: int, rng: np.random.Generator) -> Floats:
        """Draw `size` durations exactly."""
        each = p.reshape(self.parts, -1)
        if self.parts == 1:
            of_job = np.broadcast_to(each[0], (size, each.shape[1]))
        else:
            of_job = each[np.searchsorted(np.cumsum(each[:, 0])[:-1], rng.random(size)), 1:]
        return self.drawn(of_job, rng)


# Formulas, in scipy's parameters with loc = 0.
# They use plain NumPy because a fit calls them hundreds of times; the tests compare each with scipy.stats. `x` holds
# durations above 0, and `logx` holds their logarithms, which a fit computes once. `p` holds the parameters in the
# family's order, as numbers or as columns of numbers with one row of results each.

_HALF_LOG_2PI = 0.5 * float(np.log(2 * np.pi))


def _exp(x: Floats) -> Floats:
    # Far from the optimum, a trial value gives density 0 instead of a warning.
    return np.exp(np.minimum(x, 700.0))


def _softplus(x: Floats) -> Floats:
    """Return log(1 + exp(x))."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _lognorm_logpdf(x: Floats, logx: Floats, p: Any) -> Any:
    # In place, because a fit spends much of its time here: -z^2 / 2 - log x - log(s sqrt(2 pi)).
    z = logx - np.log(p[1])
    z /= p[0]
    found = -0.5 * z
    found *= z
    found -= logx
    found -= np.log(p[0]) + _HALF_LOG_2PI
    return found


def _weibull_logpdf(x: Floats, logx: Floats, p: Any) -> Any:
    z = p[0] * (logx - np.log(p[1]))
    return np.log(p[0]) - logx + z - _exp(z)


def _gamma_logsf(x: Floats, logx: Floats, p: Any) -> Any:
    y = x / p[1]
    upper = special.gammaincc(p[0], y)
    far = upper < 1e-290
    # Where the value underflows, the leading term of the asymptotic series is used.
    series = (p[0] - 1) * np.log(np.maximum(y, 1e-300)) - y - special.gammaln(p[0])
    return np.where(far, series, np.log(np.where(far, 1.0, upper)))


def _burr_logpdf(x: Floats, logx: Floats, p: Any) -> Any:
    z = p[0] * (logx - np.log(p[2]))
    return np.log(p[0] * p[1]) - logx + z - (p[1] + 1) * _softplus(z)


def _burr_logsf(x: Floats, logx: Floats, p: Any) -> Any:
    return -p[1] * _softplus(p[0] * (logx - np.log(p[2])))


# Draw one duration for each row of `p`.


def _loss(p: Floats, rng: np.random.Generator) -> Floats:
    """Draw exponential numbers with mean 1, by inversion."""
    return -np.log(np.maximum(rng.random(len(p)), 1e-300))


def _burr_drawn(p: Floats, rng: np.random.Generator, second: Floats | float) -> Floats:
    odds = special.expm1(np.minimum(_loss(p, rng) / second, 600))
    return np.exp(np.minimum(np.log(np.maximum(odds, 1e-300)) / p[:, 0], 600)) * p[:, -1]


# Find starting points for a fit, from moments of the logarithms, or by EM for mixtures.


class Moments(NamedTuple):
    """Durations [s] and their logarithms, used for starting points; censored durations count as their bound.

    `shared` is the total time per known end, and `middle` is the geometric mean. `logistic` and `extreme` are the
    shapes of a log-logistic and a Weibull distribution with this spread of the logarithms; `turned` is the scale of the
    Weibull distribution.
    """

    mean: float
    mean_log: float
    spread: float
    shared: float
    middle: float
    logistic: float
    extreme: float
    turned: float

    @classmethod
    def of(cls, sample: Sample) -> Moments:
        """Return the moments of a sample."""
        values = np.maximum(np.concatenate([sample.middles, sample.right]), 1e-6)
        counts = np.concatenate([sample.middles_n, sample.right_n])
        logs, total = np.log(values), counts.sum()
        center = float(counts @ logs / total)
        spread = max(float(np.sqrt(counts @ (logs - center) ** 2 / total)), 1e-3)
        shared = float(counts @ values / max(sample.middles_n.sum(), 1.0))
        logistic, extreme = np.pi / (np.sqrt(3) * spread), 1.28 / spread
        turned = float(np.exp(center + 0.5772 / extreme))
        return cls(
            float(counts @ values / total), center, spread, shared, float(np.exp(center)), logistic, extreme, turned
        )


def _gamma_begins(m: Moments) -> list[tuple[float, ...]]:
    gap = max(float(np.log(m.mean)) - m.mean_log, 1e-4)
    shape = (3 - gap + np.sqrt((gap - 3) ** 2 + 24 * gap)) / (12 * gap)
    return [(shape, max(m.shared / shape, 1e-6))]


_EM_VALUES = 300
"""Number of grouped values that EM uses."""
_EM_ROUNDS = 25
_CUTS: dict[int, tuple[tuple[float, ...], ...]] = {
    2: ((0.5,), (0.15,), (0.85,)),
    3: ((1 / 3, 2 / 3), (0.1, 0.5), (0.5, 0.9)),
}
"""Shares at which EM initially splits the jobs, by number of parts."""


def em(family: Family, sample: Sample, cut: tuple[float, ...]) -> Floats:
    """Return the parameters of a mixture after some rounds of expectation and maximization.

    A right-censored value counts with the mean and mean square of each part beyond it, and an interval with its middle.
    """
    assert family.em is not None  # noqa: S101 -- every part of a mixture has it
    begin, step = family.em
    seen, seen_n = np.maximum(sample.middles, 1e-6), sample.middles_n
    order = np.argsort(seen, kind="stable")
    seen, seen_n = seen[order], seen_n[order]
    rank = (np.cumsum(seen_n) - seen_n / 2) / seen_n.sum()
    member = np.searchsorted(np.asarray(cut), rank)
    weights = [seen_n * (member == k) for k in range(family.parts)]
    p = np.array([[max(weight.sum(), 1e-9), *begin(seen, weight)] for weight in weights])
    p[:, 0] /= p[:, 0].sum()
    for _ in range(_EM_ROUNDS):
        p = step(p, seen, seen_n, sample)
        p[:, 0] = np.maximum(p[:, 0], 1e-4)
        p[:, 0] /= p[:, 0].sum()
    return p.ravel()


def _memberships(logs: Floats) -> Floats:
    """Return each part's share in each value, computed from log weight plus log density."""
    if not logs.size:
        return logs
    found: Floats = np.exp(logs - logs.max(axis=0))
    found /= found.sum(axis=0)
    return found


def _exponential_begin(seen: Floats, weight: Floats) -> list[float]:
    return [max(float(weight @ seen / max(weight.sum(), 1e-9)), 1e-6)]


def _exponential_round(p: Floats, seen: Floats, seen_n: Floats, sample: Sample) -> Floats:
    weight, scale = p[:, :1], p[:, 1:]
    of_seen = _memberships(np.log(weight) - np.log(scale) - seen / scale) * seen_n
    of_right = _memberships(np.log(weight) - sample.right / scale) * sample.right_n
    jobs = of_seen.sum(axis=1) + of_right.sum(axis=1)
    beyond = (of_right * (sample.right + scale)).sum(axis=1)
    mean = (of_seen @ seen + beyond) / np.maximum(jobs, 1e-9)
    return np.column_stack([jobs / jobs.sum(), np.maximum(mean, 1e-6)])


def _lognormal_begin(seen: Floats, weight: Floats) -> list[float]:
    logs, share = np.log(seen), max(weight.sum(), 1e-9)
    mean = float(weight @ logs / share)
    return [max(float(np.sqrt(weight @ (logs - mean) ** 2 / share)), 0.05), np.exp(mean)]


def _lognormal_round(p: Floats, seen: Floats, seen_n: Floats, sample: Sample) -> Floats:
    weight, s, mean = p[:, :1], p[:, 1:2], np.log(p[:, 2:])
    logs = np.log(seen)
    z = (logs - mean) / s
    of_seen = _memberships(np.log(weight) - np.log(s) - z * z / 2) * seen_n
    jobs = of_seen.sum(axis=1)
    first = of_seen @ logs
    second = of_seen @ (logs * logs)
    if sample.right.size:
        bound = (np.log(sample.right) - mean) / s
        left = special.log_ndtr(-bound)
        of_right = _memberships(np.log(weight) + left) * sample.right_n
        # Mean and mean square of a normal variable beyond `bound`.
        hazard = np.exp(np.minimum(-bound * bound / 2 - 0.9189385332 - left, 50))
        beyond = mean + s * hazard
        square = mean**2 + s**2 * (1 + bound * hazard) + 2 * mean * s * hazard
        jobs = jobs + of_right.sum(axis=1)
        first = first + (of_right * beyond).sum(axis=1)
        second = second + (of_right * square).sum(axis=1)
    jobs = np.maximum(jobs, 1e-9)
    centre = first / jobs
    spread = np.sqrt(np.maximum(second / jobs - centre**2, 0.05**2))
    return np.column_stack([jobs / jobs.sum(), spread, np.exp(centre)])


# The table of the families.


_MANY = 8_000
"""Number of values from which computing the formula only for distinct parameters saves time."""


def _weighted(formula: Formula, x: Floats, logx: Floats, p: Any) -> Any:
    """Return log weight plus formula for one part of a mixture; `p` begins with the weight.

    Most rows of a gradient change another part, so the formula is computed once for rows with equal parameters.
    """
    weight, own = np.log(p[0]), p[1:]
    if own.ndim == 1 or own.shape[1] * x.size < _MANY:
        return weight + formula(x, logx, own)
    moved = np.flatnonzero((own[..., 0] != own[:, :1, 0]).any(axis=0))
    found = weight + formula(x, logx, own[:, :1])
    if moved.size:
        found[moved] = weight[moved] + formula(x, logx, own[:, moved])
    return found


def _mixture(name: str, part: Family, parts: int) -> Family:
    """Return the mixture of `parts` copies of a family.

    The parameters of part 1 come first, beginning with its weight, followed by those of part 2, and so on.
    """

    def mixed(formula: Formula) -> Formula:
        """Return the log of the weighted sum."""

        def found(x: Floats, logx: Floats, p: Any) -> Any:
            width = len(p) // parts
            logs = [_weighted(formula, x, logx, p[k : k + width]) for k in range(0, len(p), width)]
            top = np.maximum(logs[0], -1e300)
            for other in logs[1:]:
                np.maximum(top, other, out=top)
            for each in logs:
                np.exp(np.subtract(each, top, out=each), out=each)
            total = logs[0]
            for other in logs[1:]:
                total += other
            np.log(total, out=total)
            total += top
            return total

        return found

    return replace(part, name=name, density=mixed(part.density), survival=mixed(part.survival), parts=parts)


_EXPON = Family(
    "expon",
    "expon",
    ("scale",),
    density=lambda x, _, p: -np.log(p[0]) - x / p[0],
    survival=lambda x, _, p: -x / p[0],
    begins=lambda m: [(m.shared,)],
    drawn=lambda p, rng: _loss(p, rng) * p[:, -1],
    em=(_exponential_begin, _exponential_round),
)
_LOGNORM = Family(
    "lognorm",
    "lognorm",
    ("s", "scale"),
    density=_lognorm_logpdf,
    survival=lambda _, logx, p: special.log_ndtr((np.log(p[1]) - logx) / p[0]),
    begins=lambda m: [(m.spread, m.middle)],
    drawn=lambda p, rng: np.exp(p[:, 0] * rng.standard_normal(len(p))) * p[:, -1],
    em=(_lognormal_begin, _lognormal_round),
)
_WEIBULL = Family(
    "weibull_min",
    "weibull_min",
    ("c", "scale"),
    density=_weibull_logpdf,
    survival=lambda _, logx, p: -_exp(p[0] * (logx - np.log(p[1]))),
    begins=lambda m: [(m.extreme, m.turned)],
    drawn=lambda p, rng: _loss(p, rng) ** (1 / p[:, 0]) * p[:, -1],
)
_GAMMA = Family(
    "gamma",
    "gamma",
    ("a", "scale"),
    density=lambda x, logx, p: (p[0] - 1) * logx - x / p[1] - (special.gammaln(p[0]) + p[0] * np.log(p[1])),
    survival=_gamma_logsf,
    begins=_gamma_begins,
    drawn=lambda p, rng: rng.gamma(p[:, 0], p[:, -1]),
)
_FISK = Family(
    "fisk",
    "fisk",
    ("c", "scale"),
    density=lambda x, logx, p: _burr_logpdf(x, logx, (p[0], 1.0, p[1])),
    survival=lambda x, logx, p: _burr_logsf(x, logx, (p[0], 1.0, p[1])),
    begins=lambda m: [(m.logistic, m.middle)],
    drawn=lambda p, rng: _burr_drawn(p, rng, 1.0),
)
_LOMAX = Family(
    "lomax",
    "lomax",
    ("c", "scale"),
    density=lambda x, _, p: np.log(p[0]) - np.log(p[1]) - (p[0] + 1) * np.log1p(x / p[1]),
    survival=lambda x, _, p: -p[0] * np.log1p(x / p[1]),
    begins=lambda m: [(1.0, m.middle), (4.0, 4 * m.shared)],
    drawn=lambda p, rng: np.expm1(np.minimum(_loss(p, rng) / p[:, 0], 600)) * p[:, -1],
)
_BURR = Family(
    "burr12",
    "burr12",
    ("c", "d", "scale"),
    density=_burr_logpdf,
    survival=_burr_logsf,
    begins=lambda m: [
        (m.logistic, 1.0, m.middle),
        (m.extreme, 5.0, m.turned * 5 ** (1 / m.extreme)),
        (m.logistic * 1.5, 0.4, m.middle * 0.6),
    ],
    drawn=lambda p, rng: _burr_drawn(p, rng, p[:, 1]),
)
_MIXTURES = [
    _mixture(f"{name}_{parts}", part, parts)
    for parts in (2, 3)
    for name, part in (("hyperexpon", _EXPON), ("lognorm_mix", _LOGNORM))
]
FAMILIES = {family.name: family for family in (_EXPON, _LOGNORM, _WEIBULL, _GAMMA, _FISK, _LOMAX, _BURR, *_MIXTURES)}
"""All families by name, simplest first."""

_GRID = 4096


def quantiles(family: Family, p: Floats, scores: Floats, *, longest_s: float) -> Floats:
    """Return the durations [s] at given normal scores of the distribution truncated at `longest_s`.

    A score z corresponds to the probability Phi(z). The quantile function is interpolated in a table of 4,096
    durations, linearly in the normal score and the logarithm. The error is below 1e-4 of the duration, but 0.4 % at the
    truncation.
    """
    p = np.asarray(p, float)
    low = np.log(1e-6)
    x = np.exp(np.linspace(low, np.log(max(longest_s, 1e-3)), _GRID))
    logsf = np.minimum(family.logsf(x, p), -1e-300)
    share = -np.expm1(logsf)
    whole = max(float(share[-1]), 1e-300)
    # Use the lower share below the median and the upper share above it, to keep the digits of each tail.
    below = np.maximum(share / whole, 1e-300)
    above = np.maximum((whole - share) / whole, 0.0)
    if whole > 0.5:
        above = np.maximum((np.exp(logsf) - np.exp(logsf[-1])) / whole, 0.0)
    with np.errstate(divide="ignore"):
        table = np.where(below < 0.5, special.ndtri(np.minimum(below, 1.0)), -special.ndtri(above))
    known = np.isfinite(table)
    table, x = table[known], x[known]
    rising = np.diff(table, prepend=-1e9) > 0
    if not rising.any():
        return np.full(scores.shape, longest_s)
    return np.exp(np.interp(scores, table[rising], np.log(x)[rising]))
