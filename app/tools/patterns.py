"""Regular expressions of schemas: most are matched in linear time, and what others may cost is bounded."""

from functools import lru_cache

import jsonschema_rs

OPTIONS = jsonschema_rs.FancyRegexOptions(backtrack_limit=5_000)
"""Looking around and back takes an engine that tries again and again: so often, and not a million times."""
_SMALL = jsonschema_rs.RegexOptions(size_limit=1 << 18)
LONGEST = 2_000
"""Characters of a pattern that others may send."""
PLAIN = 1
HARD = 200


def cost_of(pattern: str) -> int:
    """What one character of a value costs, in schemas looked at."""
    return PLAIN if len(pattern) <= LONGEST and _is_plain(pattern) else HARD


@lru_cache(maxsize=1000)
def _is_plain(pattern: str) -> bool:
    try:
        jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=_SMALL, offline=True)
    except (jsonschema_rs.ValidationError, ValueError):
        return False
    return True
