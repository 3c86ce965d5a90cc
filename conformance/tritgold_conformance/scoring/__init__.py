"""How often an engine is right: the tasks of ``tritgold.skills``, scored by exact answer.

This is weaker than every level of the judge: an engine whose logits are all wrong may still give all answers.
"""
