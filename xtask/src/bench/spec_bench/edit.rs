//! A file to edit: most of the answer is a copy of the prompt.

use super::questions::{EDIT, Question};

const TASK: &str = "Rename the class `Shelf` to `Storage` everywhere in this file, change nothing else, \
                    and print the whole file again.";

const FILE: &str = r#"
"""Keeps track of what lies on the shelves of a small workshop."""

from dataclasses import dataclass, field
from datetime import date


class NotEnough(Exception):
    """Raised where more is taken than there is."""


@dataclass
class Part:
    name: str
    unit_price: float
    minimum: int = 0


@dataclass
class Shelf:
    label: str
    capacity: int
    counts: dict[str, int] = field(default_factory=dict)
    last_checked: date | None = None

    def total(self) -> int:
        return sum(self.counts.values())

    def room(self) -> int:
        return self.capacity - self.total()

    def put(self, part: Part, count: int) -> None:
        if count <= 0:
            raise ValueError("count must be positive")
        if count > self.room():
            raise NotEnough(f"shelf {self.label} has room for {self.room()} only")
        self.counts[part.name] = self.counts.get(part.name, 0) + count

    def take(self, part: Part, count: int) -> None:
        present = self.counts.get(part.name, 0)
        if count > present:
            raise NotEnough(f"shelf {self.label} holds {present} of {part.name}")
        if count == present:
            del self.counts[part.name]
        else:
            self.counts[part.name] = present - count

    def check(self, today: date) -> None:
        self.last_checked = today


class Workshop:
    def __init__(self, shelves: list[Shelf], parts: list[Part]) -> None:
        self.shelves = shelves
        self.parts = {part.name: part for part in parts}

    def count(self, name: str) -> int:
        return sum(shelf.counts.get(name, 0) for shelf in self.shelves)

    def missing(self) -> list[Part]:
        return [part for part in self.parts.values() if self.count(part.name) < part.minimum]

    def value(self) -> float:
        return sum(self.count(name) * part.unit_price for name, part in self.parts.items())

    def roomiest(self) -> Shelf:
        return max(self.shelves, key=lambda shelf: shelf.room())

    def store(self, name: str, count: int) -> Shelf:
        shelf = self.roomiest()
        shelf.put(self.parts[name], count)
        return shelf

    def overdue(self, today: date, days: int) -> list[Shelf]:
        def is_overdue(shelf: Shelf) -> bool:
            return shelf.last_checked is None or (today - shelf.last_checked).days > days

        return [shelf for shelf in self.shelves if is_overdue(shelf)]


def report(workshop: Workshop) -> str:
    lines = [f"{shelf.label}: {shelf.total()} of {shelf.capacity}" for shelf in workshop.shelves]
    lines += [f"missing: {part.name}" for part in workshop.missing()]
    lines.append(f"value: {workshop.value():.2f}")
    return "\n".join(lines)
"#;

/// The file, and what to do with it.
pub(super) fn question() -> Question {
    Question {
        group: EDIT.to_owned(),
        text: format!("{TASK}\n\n```python{FILE}```"),
    }
}
