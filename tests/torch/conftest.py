import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from workers import Workers  # noqa: E402


@pytest.fixture(scope="session")
def ranks():
    workers = Workers()
    yield workers
    workers.close()
