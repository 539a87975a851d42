"""Measured figures beside their targets."""

import dataclasses
import math


@dataclasses.dataclass
class Figure:
    """One figure. Without a target it is only reported."""

    name: str
    value: float
    unit: str = ""
    bound: str = ""
    target: float | None = None

    def met(self):
        """Whether the figure meets its target. Values that are not numbers meet none."""
        if self.bound == "":
            return True
        if math.isnan(self.value):
            return False
        if self.bound == "<=":
            return self.value <= self.target
        if self.bound == ">=":
            return self.value >= self.target
        return self.value == self.target


class Report:
    """The figures and notes of one scenario."""

    def __init__(self, name):
        self.name = name
        self.figures = []
        self.notes = []
        self.error = None
        self.seconds = 0.0

    def measured(self, name, value, unit=""):
        """A figure without a target."""
        self.figures.append(Figure(name, value, unit))

    def at_most(self, name, value, target, unit=""):
        self.figures.append(Figure(name, value, unit, "<=", target))

    def at_least(self, name, value, target, unit=""):
        self.figures.append(Figure(name, value, unit, ">=", target))

    def equal(self, name, value, target, unit=""):
        self.figures.append(Figure(name, value, unit, "=", target))

    def note(self, text):
        """What a reader of the figures must know, such as what was not done."""
        self.notes.append(text)

    def passed(self):
        """Whether the scenario ran to its end, has targets, and met all of them."""
        targets = [figure for figure in self.figures if figure.bound]
        return self.error is None and bool(targets) and all(figure.met() for figure in targets)

    def document(self):
        """The report as a value for JSON."""
        figures = [dict(dataclasses.asdict(f), value=finite(f.value), met=f.met()) for f in self.figures]
        return {
            "name": self.name,
            "passed": self.passed(),
            "error": self.error,
            "seconds": round(self.seconds, 1),
            "figures": figures,
            "notes": self.notes,
        }

    def lines(self):
        """The report as lines of text."""
        yield f"{self.name}: {'passed' if self.passed() else 'FAILED'} ({self.seconds:.0f} s)"
        width = max((len(figure.name) for figure in self.figures), default=0)
        for figure in self.figures:
            value = f"{shown(figure.value)} {figure.unit}".strip()
            target = f"{figure.bound} {shown(figure.target)} {figure.unit}".strip() if figure.bound else ""
            verdict = ("ok" if figure.met() else "MISSED") if figure.bound else ""
            yield f"  {figure.name:<{width}}  {value:>14}  {target:<14}  {verdict}".rstrip()
        for note in self.notes:
            yield f"  note: {note}"
        if self.error:
            yield f"  error: {self.error}"


def finite(value):
    """The value, or None for one that JSON cannot hold."""
    return value if math.isfinite(value) else None


def shown(value):
    """A number with about four digits."""
    if isinstance(value, int) or not math.isfinite(value):
        return str(value)
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.4g}"


def percentile(values, share):
    """The smallest value that at least `share` of the values do not exceed; NaN if there are none."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
