"""How often a model is right: the tasks of ``tritgold.skills``, scored by exact answer, for any engine that goes on.

Weaker than every level of the judge: an engine that is wrong in the last digit of every logit may answer everything.
"""
