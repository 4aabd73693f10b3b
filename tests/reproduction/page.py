"""Markdown of the page: tables, and claims with what became of them."""

CONFIRMED, CONTRADICTED = "confirmed", "**contradicted**"


def table(heads, lines):
    text = "| " + " | ".join(heads) + " |\n|" + "---|" * len(heads) + "\n"
    return text + "".join("| " + " | ".join(str(cell) for cell in line) + " |\n" for line in lines) + "\n"


def count(number):
    return f"{number:,.0f}"


def figure(number, digits=2):
    return "-" if number is None else f"{number:,.{digits}f}"


class Claims:
    """Statements of a paper's text beside our figures."""

    def __init__(self):
        self.lines, self.reasons, self.unexplained = [], [], []

    def add(self, claim, theirs, ours, holds, why=""):
        """`holds` is measured; `why` says why the figures differ, and must say it where the claim does not hold."""
        number = len(self.lines) + 1
        self.lines.append((number, claim, theirs, ours, CONFIRMED if holds else CONTRADICTED))
        if why:
            self.reasons.append(f"{number}. {why}\n")
        elif not holds:
            self.unexplained.append(claim)

    def text(self):
        reasons = ("Why the figures differ:\n\n" + "".join(self.reasons) + "\n") if self.reasons else ""
        return table(["", "claim", "theirs", "ours", ""], self.lines) + reasons
