"""Markdown of the page, and its figures."""

import math


def table(heads, lines):
    text = "| " + " | ".join(map(str, heads)) + " |\n|" + "---|" * len(heads) + "\n"
    return text + "".join("| " + " | ".join(str(cell) for cell in line) + " |\n" for line in lines) + "\n"


def count(number):
    return f"{number:,.0f}"


def over(number, other):
    """Ratio of two numbers: 1 if both are 0."""
    return number / other if other else (math.inf if number else 1.0)


def figure(number, digits=2):
    return "-" if number is None else f"{number:,.{digits}f}"
