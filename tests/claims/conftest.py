"""Lets the tests of this folder share what was published: these formulas are under tests only."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
