"""`raises`: that a call fails with an error of ptynb with this code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ptynb.exceptions import PtynbError


@contextmanager
def raises(code: str, *facts: object) -> Iterator[pytest.ExceptionInfo[PtynbError]]:
    """An error with this code; facts: names, numbers and values that its message states."""
    with pytest.raises(PtynbError) as caught:
        yield caught
    message = str(caught.value)
    assert caught.value.code == code, f"{caught.value.code!r}: {message}"
    missing = [str(fact) for fact in facts if str(fact) not in message]
    assert not missing, f"the message does not state {missing}: {message}"
