"""``tritgold bench``: how fast an engine that has passed the judge is, beside other engines, and beside the memory."""
