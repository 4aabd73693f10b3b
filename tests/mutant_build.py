"""Builds many mutants into one program, which an environment variable turns into one of them.

Each mutated function gets a copy of its body for each mutant, in the scratch copy only:

    fn f(…) -> R {
        if crate::mutant() == 17 { a mutated body } else if crate::mutant() == 23 { … } else { the body }
    }

A mutant that does not compile in this way is left out: a `const fn` cannot read the variable,
branches cannot return different closures, and some mutants compile nowhere. The compiler's errors
name the lines, and so the mutants.
"""

import re
from dataclasses import replace

import mistakes

VARIABLE = "FTLD_MUTANT"
ASK = f"""
/// The number of the mutant to be.
pub(crate) fn mutant() -> u32 {{
    static NUMBER: std::sync::LazyLock<u32> =
        std::sync::LazyLock::new(|| std::env::var("{VARIABLE}").map_or(0, |number| number.parse().unwrap()));
    *NUMBER
}}
"""


class Combined(mistakes.Bench):
    """A bench whose patches are the numbers of mutants, all of them built at once."""

    # Suites stay built.
    AHEAD = 1

    def __init__(self, mutants):
        """With mutants of cargo-mutants by number, from 1 on."""
        self.mutants, self.programs, self.number, self.left_out = mutants, {}, None, set()
        super().__init__()

    def contents(self):
        self.originals = super().contents()
        return self.weave()

    def weave(self):
        """The files, with the mutants. `lines` remembers whose each line is."""
        by_file, files, self.lines = {}, dict(self.originals), {}
        for number in sorted(self.mutants.keys() - self.left_out):
            by_file.setdefault(self.mutants[number]["file"], []).append(number)
        for name, numbers in by_file.items():
            content, mode = self.originals[name]
            files[name] = self.woven(name, content.decode(), numbers).encode(), mode
        for name in {name.split("/")[0] + "/src/lib.rs" for name in by_file}:
            content, mode = files[name]
            files[name] = content + ASK.encode(), mode
        return files

    def woven(self, name, text, numbers):
        """The text of a file with a copy of a function's body for each of these mutants."""
        starts = [0]
        for line in text.split("\n"):
            starts.append(starts[-1] + len(line) + 1)

        def place(at):
            return starts[at["line"] - 1] + at["column"] - 1

        functions = {}
        for number in numbers:
            mutant = self.mutants[number]
            # A constant outside of functions is computed by the compiler.
            span = mutant["function"] and mutant["function"]["span"]
            functions.setdefault((place(span["start"]), place(span["end"])) if span else None, []).append(number)
        self.left_out.update(functions.pop(None, []))
        parts, end, line = [], 0, 1
        for (first, last), numbers in sorted(functions.items()):
            body = body_of(text, first, last)
            if first < end or not body:  # nested in the one before
                self.left_out.update(numbers)
                continue
            parts.append(text[end : body[0]])
            line += parts[-1].count("\n")
            for number in numbers:
                mutant = self.mutants[number]
                start, stop = place(mutant["span"]["start"]), place(mutant["span"]["end"])
                mutated = text[body[0] : start] + f" {mutant['replacement']} " + text[stop : body[1]]
                parts.append(f"\nif crate::mutant() == {number} {{{mutated}\n}} else")
                after = line + parts[-1].count("\n")
                self.lines.update({(name, at): number for at in range(line + 1, after + 1)})
                line = after
            parts.append(" {" + text[body[0] : body[1]] + "\n}\n")
            line += parts[-1].count("\n")
            end = body[1]
        return "".join(parts) + text[end:]

    def blamed(self, errors):
        """The mutants that errors point to; if none does, those that notes point to."""
        for primary in (True, False):
            spans = [span for error in errors for span in places(error) if span["is_primary"] or not primary]
            found = {self.lines.get((span["file_name"], span["line_start"])) for span in spans} - {None}
            if found:
                return found
        return set()

    def apply(self, number):
        self.number, self.planted = number, True

    def revert(self, number):
        self.number, self.planted = None, False

    def build(self, one):
        """Builds a suite once. Without the mutants that do not compile."""
        while (one.select, one.level) not in self.programs:
            try:
                programs, seconds = super().build(one)
                mistakes.say(f"{one.name} built with {len(self.mutants) - len(self.left_out)} mutants: {seconds:.0f} s")
                self.programs[one.select, one.level] = programs
            except mistakes.Failed as failed:
                blamed = self.blamed(failed.errors)
                if not blamed:
                    raise SystemExit(f"the mutants together: {failed}") from None
                mistakes.say(f"to be built alone: {sorted(blamed)}")
                self.left_out |= blamed
                self.files = self.weave()
                for name in self.files:
                    self.restore(name)
        return self.programs[one.select, one.level], 0.0

    def has(self, number, suites):
        """Whether a mutant is in the builds of these suites."""
        for one in suites:
            self.build(one)
        return number not in self.left_out

    def run(self, one, programs, limit):
        chosen = ((VARIABLE, str(self.number)),) if self.number else ()
        verdict, seconds, self.printed = super().run(replace(one, env=one.env + chosen), programs, limit)
        return verdict, seconds, self.printed

    def require_pass(self, one, seconds, number):
        """A swarm names the run that failed: that one alone is repeated without the mutant."""
        seed = re.search(r"FTLD_SWARM_RUN=(\d+)", self.printed)
        if not seed:
            return super().require_pass(one, seconds, number)
        self.revert(number)
        alone = replace(one, env=(*one.env, ("FTLD_SWARM_RUN", seed[1])))
        verdict, _, text = self.run(alone, self.build(one)[0], one.most)
        if verdict != "passed":
            raise SystemExit(f"{one.name} fails without a mistake, so its verdicts mean nothing:\n{text}")


def body_of(text, first, last):
    """Where a function's body begins and ends, without its braces."""
    found = re.search(r"^[^\n/]*\bfn\s+\w+[^{]*\{", text[first:last], re.M)
    return (first + found.end(), last - 1) if found else None


def places(error):
    """The places of an error, of its notes, and of the macros that made them."""
    spans = list(error["spans"])
    for span in spans:
        if span.get("expansion"):
            spans.append(span["expansion"]["span"] | {"is_primary": span["is_primary"]})
    return spans + [span | {"is_primary": False} for child in error["children"] for span in places(child)]
