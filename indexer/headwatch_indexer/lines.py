"""Where the lines of a text are, in characters and in UTF-8 bytes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of one text, split by \\n alone; line numbers start at 1."""

    texts: Sequence[str]  # without their newline
    starts: Sequence[int]  # code point offset of each line
    byte_starts: Sequence[int]  # the same in UTF-8 bytes
    source: bytes  # the text in UTF-8

    @classmethod
    def of(cls, text: str) -> Lines:
        """Index a text; a final newline ends the last line and starts none."""
        texts = text.split("\n")
        if texts[-1] == "" and len(texts) > 1:
            texts.pop()
        source = text.encode("utf-8")
        starts = [0, *accumulate(len(line) + 1 for line in texts[:-1])]
        if len(source) == len(text):
            return cls(texts, starts, starts, source)
        byte_lengths = (len(line.encode("utf-8")) + 1 for line in texts[:-1])
        return cls(texts, starts, [0, *accumulate(byte_lengths)], source)

    def __len__(self) -> int:
        return len(self.texts)

    def line_at(self, byte: int) -> int:
        """Number of the line that holds a byte offset."""
        return bisect_right(self.byte_starts, byte)

    def span(self, first: int, last: int) -> tuple[int, int]:
        """Code point offsets of whole lines, the last one without its newline."""
        return self.starts[first - 1], self.starts[last - 1] + len(self.texts[last - 1])

    def slice(self, first: int, last: int) -> str:
        """Text of whole lines."""
        return "\n".join(self.texts[first - 1 : last])

    def is_blank(self, number: int) -> bool:
        return not self.texts[number - 1].strip()
