"""Twelve questions to try a study out with: harmless, and people differ about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from sordino._files import write_text

__all__ = ["EXAMPLES", "write_examples"]

EXAMPLES: Final = (
    (
        "How do I keep basil alive in my kitchen?",
        (
            "Put it where it gets at least five hours of light. Water it from below when the "
            "top of the soil is dry, and pick the tips often so that it grows bushy."
        ),
        "Basil likes light and water. Give it both, and be kind to it!",
    ),
    (
        "My colleague keeps interrupting me in meetings. What should I say?",
        'Say calmly, in the moment: "Let me finish this thought, then I want to hear yours."',
        (
            "Talk to them alone afterwards. Tell them what you noticed, how it felt, and what you "
            "would like instead."
        ),
    ),
    (
        "Explain to a child why the sky is blue.",
        (
            "Sunlight is a mix of all colors. Air bounces the blue part around more than the rest, "
            "so blue light comes to your eyes from everywhere."
        ),
        (
            "Imagine that sunlight is a crowd of colors running home. The blue ones are small and "
            "bump into everything, so they end up all over the sky."
        ),
    ),
    (
        "Write one sentence that invites friends to a picnic.",
        "Picnic on Sunday at noon by the lake: bring a blanket, I bring the food.",
        "The sun has cleared its calendar for Sunday noon at the lake and hopes you will come.",
    ),
    (
        "Should I learn to cook from books or from videos?",
        "Videos. You see how brown is brown enough, and how hard to press the dough.",
        "Books. They make you plan ahead, and you taste and decide for yourself.",
    ),
    (
        "How can I fall asleep faster?",
        (
            "Get up at the same time each day, stay off screens for the last hour, and keep the "
            "room cool and dark. If you lie awake for long, get up and read until you are tired."
        ),
        (
            "Try this tonight: breathe in for four counts and out for six, ten times. Each time a "
            "thought comes, let it go and count on."
        ),
    ),
    (
        "What is a good first pet for a family in a small flat?",
        "A pair of guinea pigs: friendly, awake by day, happy with a large cage and some care.",
        "An older cat from a shelter: calm, used to people, and less work than a young animal.",
    ),
    (
        "Give me an excuse for being ten minutes late.",
        "Better without one: say that you are sorry, and that you will be there in ten minutes.",
        "Say that you missed the bus. It happens to everybody, and nobody will ask twice.",
    ),
    (
        "Is it rude to recline my seat on a short flight?",
        "The seat reclines, so you may use it. Look behind you first, and go slowly.",
        "On a short flight, better not: you gain a little comfort and somebody else loses more.",
    ),
    (
        "How do I start running if I have never done it?",
        (
            "Run for one minute and walk for two, eight times, three days a week. Add a minute of "
            "running each week."
        ),
        (
            "Put on your shoes and run slowly enough to talk. Stop when it is no fun any more, and "
            "go again the day after tomorrow."
        ),
    ),
    (
        "Name a gift for somebody who has everything.",
        "An afternoon with you, planned in full: a walk, their favorite cake, no phones.",
        "Something that is used up: very good olive oil, or coffee from a small roastery.",
    ),
    (
        "Summarize the story of Little Red Riding Hood.",
        (
            "A girl takes food to her grandmother and tells a wolf where she is going. The wolf "
            "gets there first and eats them both. A hunter frees them."
        ),
        (
            "Do not tell strangers where you are going. A girl did, a wolf listened, and it took a "
            "hunter to bring her and her grandmother back."
        ),
    ),
)
"""A prompt and two answers each."""


def write_examples(path: Path) -> None:
    """Write the questions as JSON Lines, and never over a file that is there.

    Raises:
        UsageError: The file exists.
        FileSystemError: It cannot be written.
    """
    rows = (dict(zip(("prompt", "first", "second"), one, strict=True)) for one in EXAMPLES)
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
