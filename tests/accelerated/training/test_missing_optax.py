"""optax is optional, provably: without it the training says what to install, and the engine works."""

import subprocess
import sys

BLOCK = "import sys\nsys.modules[{name!r}] = None\n"
TRY = """
from tritgold.errors import MissingDependencyError
try:
    import tritgold_xla.training.optimiser
except MissingDependencyError as error:
    print("refused:", error)
else:
    print("imported")
"""


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip(), done.stderr


def test_without_optax_the_training_says_what_to_install():
    output, errors = run(BLOCK.format(name="optax") + TRY)
    assert output.startswith("refused: optax: the training needs optax"), errors
    assert output.endswith("pip install 'tritgold[train]' [missing-dependency]")


def test_with_optax_the_same_program_imports_it():
    # Or the test above would prove nothing.
    output, errors = run(BLOCK.format(name="no_such_module") + TRY)
    assert output == "imported", errors


def test_another_missing_module_is_not_blamed_on_optax():
    output, errors = run(BLOCK.format(name="optax.contrib") + TRY)
    assert "optax.contrib" in errors
    assert "refused" not in output


def test_the_engine_needs_no_optax():
    output, errors = run(BLOCK.format(name="optax") + "import tritgold_xla\nprint(tritgold_xla.XlaEngine.__name__)")
    assert output == "XlaEngine", errors
