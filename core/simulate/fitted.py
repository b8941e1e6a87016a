"""The cost of a forward pass, fitted to the measured steps of a run: ours, or another engine's.

cost = fit(trace)
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from statistics import median, quantiles
from typing import Any, NamedTuple, Self, get_type_hints

from core.errors import InflightError, shown
from core.simulate.cost import Coefficients, Deployment, Load
from core.simulate.least_squares import least_squares, predictions
from core.trace.events import StepEvent
from core.trace.header import Header, ModelFacts
from core.trace.messages import english
from core.trace.schema import fits
from core.trace.trace import Trace, require_trace

SCHEMA = "fit/1"  # of a saved cost
FOLDS = 5  # parts of a run; each is left out of a fit and predicted by that fit
LEAST = 8  # the fewest passes that can be fitted
USELESS = 0.5
"""The median error on passes left out beyond which a fit does not predict a pass."""
NOT_KNOWN = "not recorded"  # in a header of another engine's run: its device
_MODEL = ("name", "type", "parameters", "layers", "vocab_size", "context", "kv_bytes_per_token")
# attention's pairs are counted if the error on passes left out falls below this share of the error
# without them
_BETTER = 0.95
NO_FIT = "its numbers are not those of a fitted cost"
_ABOUT: dict[str, Any] = {
    "model": Mapping[str, Any],
    **dict.fromkeys(("device", "device_name", "dtype", "engine"), str | None),
    **dict.fromkeys(("workload", "created"), str),
    **dict.fromkeys(("threads", "tensor_parallel", "steps", "passes"), int | None),
    "between_s": float,
}
_FAR = 1e6  # an error beyond it was never measured, and could not be told in percent
_SHARES = ("median", "p90", "total", "worst")
_ROUNDED = 1e-4  # the last digit of a share
_MOST = 1e9  # seconds of a pass, so that a sum of many is still a number
_WARM_UP = 5.0  # a first step that takes this many times what the others predict is left out


class Measured(NamedTuple):
    """A pass of a step, and its seconds: its own, and its share of the rest of the step."""

    step: int
    load: Load
    seconds: float


NOTHING = Load(0, 0)


@dataclass(frozen=True)
class Linear:
    """A linear cost: base_s (weights, launches, Python) + per_token_s × tokens + per_kv_byte_s ×
    bytes + per_pair_s × pairs; see `Load`. In terms of `Coefficients`, no part overlaps another.

    least, most: the smallest and the largest measured loads. error: relative errors on passes left
    out of the fit, see `fit_passes`. about: the model and where it ran, see `measured_on`.
    assumptions: sentences to be read beside every result.
    """

    base_s: float
    per_token_s: float
    per_kv_byte_s: float
    kv_bytes_per_token: int
    most: Load
    error: Mapping[str, Any] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    per_pair_s: float = 0.0
    least: Load = NOTHING
    assumptions: tuple[str, ...] = ()

    @property
    def is_useless(self) -> bool:
        """Whether half of the passes that the fit had not seen are off by more than `USELESS`."""
        return float(self.error.get("median", 0.0)) > USELESS

    @property
    def is_one_fit(self) -> bool:
        """Whether these can be the numbers of one fit: what they say twice is alike, and no mean is
        further off than the worst of its parts.
        """
        try:
            return _is_one_fit(self)
        except (KeyError, TypeError):
            return False

    @property
    def model(self) -> ModelFacts:
        """The model whose passes were measured."""
        return ModelFacts(**self.about.get("model", {}))

    @property
    def deployment(self) -> Deployment:
        """See `Cost`: the hardware on which the passes were measured."""
        model, about = self.model, self.about
        return Deployment(
            model=model.name,
            device=about.get("device") or "cpu",
            hardware=about.get("device_name") or "",
            parameters=model.parameters,
            vocab_size=model.vocab_size,
            context=model.context,
            dtype=about.get("dtype") or NOT_KNOWN,
        )

    @cached_property
    def coefficients(self) -> Coefficients:
        """See `Cost`."""
        return Coefficients(self.base_s, self.per_token_s, self.per_kv_byte_s, self.per_pair_s)

    def seconds(self, load: Load) -> float:
        """See `Cost`."""
        return self.coefficients.seconds(load)

    def beyond(self, load: Load) -> bool:
        """Whether this load is smaller or larger than that of every measured pass."""
        return (
            not self.least.tokens <= load.tokens <= self.most.tokens
            or load.kv_bytes > self.most.kv_bytes
        )

    def check_model(self, name: str, **sizes: Any) -> None:
        """Raises InflightError if passes of another model were measured: one of another name
        (folders in it do not count), or one whose sizes differ from these (fields of `ModelFacts`;
        None if unknown).
        """
        measured = self.model
        if measured.name is None:
            return
        same_name = _last_part(name) == _last_part(measured.name)
        if not same_name or any(
            None not in (size, own := getattr(measured, of)) and size != own
            for of, size in sizes.items()
        ):
            theirs = ModelFacts(name=name if same_name else _last_part(name), **sizes)
            raise InflightError(
                f"This cost was fitted on {_in_words(measured)}, and what is asked for is"
                f" {_in_words(theirs)}: fit one on a run of that model."
            )

    def check_hardware(self, device: str, dtype: str) -> None:
        """Raises InflightError if the passes were measured on another kind of device or in another
        dtype. "auto" accepts any.
        """
        for asked, name in ((device, "device"), (dtype, "dtype")):
            known = self.about.get(name)
            if asked != "auto" and known not in (None, "", NOT_KNOWN, asked):
                raise InflightError(
                    f"This cost was fitted on a run with {name} {known}, and {asked} is asked for:"
                    " fit one on such a run."
                )

    def to_json(self) -> dict[str, Any]:
        """Plain data, as in a file of `fit --out` and in the header of a simulated trace."""
        return {
            "kind": "fitted",
            **asdict(self),
            "least": self.least._asdict(),
            "most": self.most._asdict(),
        }

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Inverse of `to_json`; raises InflightError for other data."""
        if not isinstance(data, dict) or data.get("kind") != "fitted":
            raise InflightError("it is no cost that was fitted")
        if (schema := data.get("schema", SCHEMA)) != SCHEMA:
            raise InflightError(f"it has schema {shown(schema)}, and this version reads {SCHEMA}")
        hints = get_type_hints(cls)
        if unknown := data.keys() - hints.keys() - {"kind", "schema", "examples"}:
            raise InflightError(f"it has no field {shown(min(unknown))}")
        known = {name: data[name] for name in hints if name in data}
        try:
            for side in ("least", "most"):
                known[side] = Load(**{name: data[side][name] for name in Load._fields})
            if isinstance(assumptions := known.get("assumptions", ()), list):
                assumptions = tuple(assumptions)
            made = cls(**{**known, "assumptions": assumptions})
            numbers = (*made.coefficients, made.kv_bytes_per_token)
            if (
                not all(fits(getattr(made, name), hint) for name, hint in hints.items())
                or not all(0 <= number <= _MOST for number in numbers)
                or made.kv_bytes_per_token < 1
                or any(least > most for least, most in zip(made.least, made.most, strict=True))
                or not 0 < made.seconds(made.most) <= _MOST
                or not fits(made.error, Mapping[str, float | Mapping[str, float]])
                or min(made.error.get(share, 0.0) for share in ("median", "p90")) < 0
                or not _is_about(made.about)
            ):
                raise ValueError
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            raise InflightError(NO_FIT) from None
        return made


# -- fitting ---------------------------------------------------------------------------------------


def fit(trace: Trace) -> Linear:
    """A cost fitted to all passes of a measured run, and its error on others; see `fit_passes`.

    The seconds of a pass are its own, its share of the rest of the step, and its share of the
    median time until the next step. Raises InflightError for a simulated trace, for one with too
    few passes, and for one whose clock was too coarse.
    """
    require_trace(trace)
    header = trace.header
    if header.is_simulated:
        raise InflightError("A simulated trace measured nothing, so nothing can be fitted to it.")
    per_token = kv_bytes_per_token(header)
    passes, between = measured(trace.events, per_token), time_between_steps(trace.events)
    notes = []
    untimed = {
        event.step for event in trace.events if any(p.t_end <= p.t_start for p in event.passes)
    }
    if passes and untimed >= {p.step for p in passes}:
        raise InflightError(
            "This recording has no times of its steps, so nothing can be fitted to it."
        )
    if untimed and header.engine is not None:
        passes = [p for p in passes if p.step not in untimed]
        notes.append(
            english(f"{len(untimed):,} [step|steps] without a recorded end [is|are] left out.")
        )
    many = {event.step: len(event.passes) for event in trace.events}
    if _can_be_fitted(passes):
        passes = [p._replace(seconds=p.seconds + between / many[p.step]) for p in passes]
    kept, told = _without_warm_up(passes)
    notes += told
    if any(event.drafts for event in trace.events):
        notes.append(
            "Its steps drafted tokens (speculation), which a simulated run does not: it gets one"
            " token a step."
        )
    if header.engine is not None and header.engine.async_:
        notes.append("Its steps overlapped: each is counted from the end of the one before it.")
    fitted = fit_passes(kept, per_token)
    about = {
        **measured_on(header),
        "steps": len({p.step for p in kept}),
        "passes": len(kept),
        "between_s": between,
    }
    return replace(
        fitted, about=about, assumptions=(_fitted_to(about), *notes, *_undetermined(kept))
    )


def fit_passes(passes: Sequence[Measured], per_token: int, typical: bool = False) -> Linear:
    """A cost fitted to passes, and its error. per_token: KV bytes of a token.

    error: every pass is predicted by a fit that did not see its step. The run is cut into `folds`
    consecutive parts of equally many steps, and each part is left out in turn, because neighbouring
    steps are alike and a pass between two that were seen is predicted too easily. median, p90: of
    the relative errors of passes; total: of the sum of all; worst: of the part whose sum is
    furthest off. in_turns has the same numbers with every fifth step left out instead.

    Attention's pairs are counted only if the error, in seconds, on the parts left out becomes
    smaller by a twentieth. typical: fit what most passes cost, not what all cost together, and
    without pairs; see `least_squares`. Raises InflightError for fewer than `LEAST` passes, and for
    passes that took no time.
    """
    if len(passes) < LEAST:
        raise InflightError(
            f"{len(passes)} measured passes are too few for a fit; {LEAST} are the least."
        )
    if not _can_be_fitted(passes):
        raise InflightError(
            "The clock was too coarse for a fit: it measured passes that took no time."
        )
    steps = {step: at for at, step in enumerate(dict.fromkeys(p.step for p in passes))}
    blocks = [steps[p.step] * FOLDS // len(steps) for p in passes]
    turns = [steps[p.step] % FOLDS for p in passes]
    rows = [_row(p.load, False) for p in passes]
    seconds = [p.seconds for p in passes]
    plain = _left_out(rows, seconds, blocks, typical)
    with_pairs = [_row(p.load, True) for p in passes]
    paired = plain if typical else _left_out(with_pairs, seconds, blocks)
    if _off(paired, seconds) < _BETTER * _off(plain, seconds):
        rows, plain = with_pairs, paired
    error = {
        "held_out_passes": len(passes),
        "folds": FOLDS,
        **_errors(plain, seconds, blocks),
        "in_turns": _errors(_left_out(rows, seconds, turns, typical), seconds, turns),
    }
    base, per_position, per_byte, *per_pair = least_squares(rows, seconds, typical)
    least, most = (
        Load(*map(end, zip(*(p.load for p in passes), strict=True))) for end in (min, max)
    )
    per_pair_s = per_pair[0] if per_pair else 0.0
    return Linear(
        base_s=base,
        per_token_s=per_position,
        per_kv_byte_s=per_byte,
        kv_bytes_per_token=per_token,
        most=most,
        error=error,
        about={},
        per_pair_s=per_pair_s,
        least=least,
    )


def measured(events: Iterable[StepEvent], per_token: int) -> list[Measured]:
    """Every pass of these events with its load and its seconds. per_token: KV bytes of a token."""
    found = []
    for event in events:
        rest = event.t_end - event.t_start - sum(p.t_end - p.t_start for p in event.passes)
        kv, pairs = [0] * len(event.passes), [0] * len(event.passes)
        for segment in event.segments:
            kv[segment.pass_index] += segment.kv_len
            pairs[segment.pass_index] += Load.pairs_of(segment.length, segment.kv_len)
        for forward, read, attending in zip(event.passes, kv, pairs, strict=True):
            load = Load(forward.rows * forward.width, read * per_token, attending)
            found.append(
                Measured(
                    event.step, load, forward.t_end - forward.t_start + rest / len(event.passes)
                )
            )
    return found


def time_between_steps(events: Sequence[StepEvent]) -> float:
    """The median time from a step's end to the next start, while there was work."""
    there, gaps = set[str](), []
    for event, following in pairwise(events):
        there |= {arrived.request for arrived in event.newcomers}
        there -= {over.request for over in event.ends}
        if there and following.resumed is None:
            gaps.append(following.t_start - event.t_end)
    return max(0.0, median(gaps)) if gaps else 0.0


def measured_on(header: Header) -> dict[str, Any]:
    """The model whose passes were measured, the engine that ran it, and the hardware."""
    model = {name: value for name in _MODEL if (value := getattr(header.model, name)) is not None}
    where = ("device", "device_name", "dtype", "threads", "tensor_parallel")
    return {
        "model": model,
        **{name: getattr(header, name) for name in where},
        "engine": str(header.engine) if header.engine else None,
        "workload": header.workload,
        "created": header.created,
    }


def _is_about(about: Any) -> bool:
    """Whether this is valid as `Linear.about`: facts of a model and of where it ran."""
    model = about.get("model", {})
    sizes = [size for name, size in model.items() if name not in ("name", "type")]
    return (
        all(fits(value, _ABOUT[name]) for name, value in about.items())
        and all(isinstance(model.get(name, ""), str) for name in ("name", "type"))
        and all(type(size) is int and 0 < size < 2**63 for size in sizes)
        and model.keys() <= set(_MODEL)
    )


def _is_one_fit(made: Linear) -> bool:
    error, about, each = made.error, made.about, made.kv_bytes_per_token
    folds = [error, error["in_turns"]] if "in_turns" in error else [error] if error else []
    passes = error.get("held_out_passes", LEAST)
    return (
        all(
            fold["median"] <= fold["p90"] < _FAR
            and fold["total"] >= -1
            and abs(fold["total"]) <= abs(fold["worst"]) + _ROUNDED < _FAR
            for fold in folds
        )
        and error.keys() <= {*_SHARES, "held_out_passes", "folds", "in_turns"}
        and error.get("folds", FOLDS) == FOLDS
        and passes == about.get("passes", passes) >= max(LEAST, about.get("steps", 1))
        and all(about.get(name, 1) != 0 for name in ("steps", "threads", "tensor_parallel"))
        and all(number >= 0 for number in about.values() if isinstance(number, (int, float)))
        and about.get("between_s", 0.0) >= 0
        and about.get("model", {}).get("kv_bytes_per_token", each) == each
        and not (made.least.kv_bytes % each or made.most.kv_bytes % each)
        and ("steps" not in about or made.assumptions[:1] == (_fitted_to(about),))
    )


def _last_part(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2]


def _in_words(model: ModelFacts) -> str:
    sizes = (
        ("parameters", model.parameters),
        ("layers", model.layers),
        ("tokens of vocabulary", model.vocab_size),
    )
    known = ", ".join(f"{size:,} {what}" for what, size in sizes if size)
    return f"{model.name} ({known})" if known else str(model.name)


def _fitted_to(about: Mapping[str, Any]) -> str:
    model = about["model"].get("name", "a model without a name")
    engine = about["engine"] or "this engine"
    where = [
        str(about[name]) for name in ("device_name", "device") if about[name] not in ("", NOT_KNOWN)
    ]
    hardware = ", ".join(where) + english(
        f", {about['threads']} [thread|threads]" if about["threads"] else ""
    )
    return (
        f"Fitted to {about['steps']:,} steps of {model} in"
        f" {about['dtype'] or 'a dtype that is not recorded'} by {engine}, on"
        f" {hardware or 'hardware that is not recorded'}."
    )


def kv_bytes_per_token(header: Header) -> int:
    """KV bytes per token; 1 if the header gives no size, so that KV is counted in positions."""
    return header.model.kv_bytes_per_token or 1


def _row(load: Load, pairs: bool) -> tuple[float, ...]:
    return (1.0, *load) if pairs else (1.0, load.tokens, load.kv_bytes)


def _can_be_fitted(passes: Sequence[Measured]) -> bool:
    return all(p.seconds > 0 for p in passes)


def _left_out(
    rows: Sequence[Sequence[float]],
    seconds: Sequence[float],
    folds: Sequence[int],
    typical: bool = False,
) -> list[float]:
    """The prediction for each row by a fit to the rows of the other folds."""
    predicted = [0.0] * len(rows)
    cost: list[float] | None = None
    for fold in range(FOLDS):
        seen = [at for at, of in enumerate(folds) if of != fold]
        cost = least_squares(
            [rows[at] for at in seen], [seconds[at] for at in seen], typical, start=cost
        )
        left_out = [at for at, of in enumerate(folds) if of == fold]
        for at, guess in zip(
            left_out, predictions([rows[at] for at in left_out], cost), strict=True
        ):
            predicted[at] = guess
    return predicted


def _off(predicted: Sequence[float], seconds: Sequence[float]) -> float:
    return sum(abs(guess - took) for guess, took in zip(predicted, seconds, strict=True))


def _errors(
    predicted: Sequence[float], seconds: Sequence[float], folds: Sequence[int]
) -> dict[str, float]:
    errors = [abs(guess - took) / took for guess, took in zip(predicted, seconds, strict=True)]
    parts = [[at for at, of in enumerate(folds) if of == fold] for fold in sorted(set(folds))]
    worst = max(
        (sum(predicted[at] for at in part) / sum(seconds[at] for at in part) - 1 for part in parts),
        key=abs,
    )
    return {
        "median": round(median(errors), 4),
        "p90": round(quantiles(errors, n=10, method="inclusive")[-1], 4),
        "total": round(sum(predicted) / sum(seconds) - 1, 4),
        "worst": round(worst, 4),
    }


def _without_warm_up(passes: list[Measured]) -> tuple[list[Measured], list[str]]:
    """The passes without a far too slow first step, and a sentence that says so."""
    first = [p for p in passes if p.step == passes[0].step] if passes else []
    others = passes[len(first) :]
    if len(others) < LEAST or not _can_be_fitted(passes):
        return passes, []
    base, per_position, per_byte = least_squares(
        [_row(p.load, False) for p in others], [p.seconds for p in others]
    )
    most = [max(number) for number in zip(*(p.load for p in others), strict=True)]
    if any(p.load.tokens > most[0] or p.load.kv_bytes > most[1] for p in first):
        return passes, []
    took = sum(p.seconds for p in first)
    times = took / sum(
        base + per_position * p.load.tokens + per_byte * p.load.kv_bytes for p in first
    )
    if times < _WARM_UP:
        return passes, []
    told = (
        f"The first step took {took:,.2g} s, {times:,.0f} times what the others tell of such a"
        " load, and is left out: engines load and compile in it."
    )
    return others, [told]


def _undetermined(passes: Sequence[Measured]) -> list[str]:
    """A sentence on a coefficient that could not be found because its quantity never varied."""
    tokens, kv = ({getattr(p.load, name) for p in passes} for name in ("tokens", "kv_bytes"))
    if len(tokens) == 1:
        (same,) = tokens
        return [
            english(
                f"Every pass computed {same:,} [position|positions], so what one costs is not"
                " known: it is in the cost of the pass."
            )
        ]
    if len(kv) == 1:
        return [
            "Every pass read as much of the KV cache, so what reading costs is not known: it is in"
            " the cost of the pass."
        ]
    return []
