"""The judgement as tests: ``pytest conformance/`` here, ``pytest --pyargs tritgold_conformance.suite`` from a wheel.

The engine is named from outside (``--tritgold-engine``); a level it does not give is skipped, with the reason.
"""
