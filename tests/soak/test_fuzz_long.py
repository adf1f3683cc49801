"The fuzz tests with many more examples"
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import test_fuzz as short

long = settings(max_examples=1500, deadline=None)


@pytest.mark.slow
@long
@given(st.lists(short.texts, min_size=1, max_size=2), st.sampled_from(sorted(short.CLF)))
def test_any_text(parts, arch): short.test_any_text_is_explained_or_refused.hypothesis.inner_test(parts, arch)


@pytest.mark.slow
@long
@given(short.strange)
def test_words(text): short.test_words_never_overlap_and_miss_no_letter.hypothesis.inner_test(text)
