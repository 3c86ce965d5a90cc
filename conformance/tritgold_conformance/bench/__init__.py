"""``tritgold bench``: the speed of an engine that passes the judge, beside other engines and the read bandwidth."""
