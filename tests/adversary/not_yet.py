"""What the judge does not catch today, by the kind of hole: empty, and to be kept so.

The runner fails where an entry is here and caught, or missed and not here.
"""

NOT_YET: dict[str, str] = {}
