"""What a Dockerfile says, stage by stage."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Stage:
    """One stage: its parent, its instructions, and the environment that they make."""

    name: str
    parent: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def of(self, verb: str) -> list[str]:
        return [text for found, text in self.steps if found == verb]

    @property
    def environment(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for text in self.of("ENV"):
            found.update(re.findall(r"(\w+)=(\S+)", text))
        return found


def stages(file: Path) -> dict[str, Stage]:
    """The stages by name; lines that go on are joined, comments left out."""
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
    text = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    found: dict[str, Stage] = {}
    for line in filter(str.strip, text.splitlines()):
        verb, _, rest = line.partition(" ")
        if verb == "FROM":
            parent, _, name = rest.partition(" AS ")
            found[name] = Stage(name, parent)
        elif found:
            list(found.values())[-1].steps.append((verb, rest.strip()))
    return found


def lineage(found: dict[str, Stage], name: str) -> list[Stage]:
    """A stage after those that it is built from."""
    stage = found[name]
    return [*(lineage(found, stage.parent) if stage.parent in found else []), stage]


def command(text: str) -> list[str]:
    """The words of a CMD in JSON form, options before it (of HEALTHCHECK) left out."""
    words = json.loads(text[text.index("[") :])
    assert all(isinstance(word, str) for word in words)
    return list(words)
