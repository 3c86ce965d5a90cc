"""The radix cache by hand: what is found, where edges are split, who is evicted, and what is refused."""

from kv_cases import SHAPE
from refusals import refusal

from tritgold.kv_cache.float32 import F32
from tritgold.kv_cache.kv_scheme import kv_scheme
from tritgold.kv_cache.paged import PagePool
from tritgold.kv_cache.radix import RadixCache


def empty(pages: int = 12, page_size: int = 1) -> RadixCache:
    return RadixCache(PagePool(F32(), SHAPE, pages, page_size))


def add(radix: RadixCache, text: str) -> list[int]:
    """Insert a text, a letter a token, in pages of the pool."""
    tokens = [ord(letter) for letter in text]
    return radix.insert(tokens, radix.pool.allocate(len(tokens) // radix.pool.page_size)).pages


def found(radix: RadixCache, text: str) -> list[int]:
    return radix.match([ord(letter) for letter in text]).pages


def edges(radix: RadixCache) -> list[str]:
    return sorted("".join(map(chr, node.tokens)) for node in radix.nodes())


def test_an_empty_cache_finds_nothing() -> None:
    radix = empty()
    assert found(radix, "abc") == found(radix, "") == []
    assert (radix.cached_pages, radix.evict(5)) == (0, 0)


def test_an_edge_is_split_where_two_texts_part_and_pages_stay_where_they_are() -> None:
    radix = empty()
    assert add(radix, "abcd") == [0, 1, 2, 3]
    assert edges(radix) == ["abcd"]
    assert add(radix, "abxy") == [0, 1, 6, 7], "4 and 5 held what 0 and 1 do"
    assert edges(radix) == ["ab", "cd", "xy"]
    assert radix.pool.free_pages == 6
    assert found(radix, "abcz") == [0, 1, 2]
    assert edges(radix) == ["ab", "c", "d", "xy"], "a match ends at a node, so that it can be locked and no more"
    assert found(radix, "abxyz") == [0, 1, 6, 7]
    assert found(radix, "b") == []


def test_only_whole_pages_are_cached_and_found() -> None:
    radix = empty(page_size=3)
    assert add(radix, "abcdefgh") == [0, 1]
    assert found(radix, "abcdefgh") == [0, 1]
    assert found(radix, "abcdeX") == [0]
    assert found(radix, "abX") == found(radix, "ab") == []
    assert add(radix, "abX") == [2], "two children may begin with the same token, not with the same page"
    assert edges(radix) == ["abX", "abc", "def"]


def test_what_was_used_longest_ago_goes_first_leaves_before_what_they_hang_on() -> None:
    radix = empty()
    for text in ("abc", "abd", "xyz"):
        add(radix, text)
    found(radix, "abc")  # used: xyz is now younger than d only
    assert radix.evict(1) == 1
    assert edges(radix) == ["ab", "c", "xyz"]
    assert radix.evict(1) == 3, "a node goes as a whole"
    assert edges(radix) == ["ab", "c"]
    assert radix.evict(2) == 3, "its leaf gone, ab is one"
    assert (edges(radix), radix.pool.free_pages) == ([], 12)


def test_pages_evicted_last_are_handed_out_first_in_their_order() -> None:
    radix = empty(pages=4)
    add(radix, "abc")
    radix.evict(1)
    assert radix.pool.allocate(4) == [0, 1, 2, 3]


def test_nothing_locked_is_evicted_nor_what_it_hangs_on() -> None:
    radix = empty()
    add(radix, "abcd")
    add(radix, "abxy")
    part = radix.match([ord(letter) for letter in "abc"])
    radix.lock(part.node)
    radix.lock(part.node)
    assert (radix.evictable_pages, radix.evict(12), edges(radix)) == (3, 3, ["ab", "c"])
    radix.unlock(part.node)
    assert radix.evict(12) == 0, "one reader is left"
    radix.unlock(part.node)
    assert (radix.evictable_pages, radix.evict(12)) == (3, 3)


def test_a_lock_outlives_a_split() -> None:
    radix = empty()
    whole = radix.insert([1, 2, 3, 4], radix.pool.allocate(4))
    radix.lock(whole.node)
    radix.match([1, 2])
    assert [(node.tokens, node.locks) for node in radix.nodes()] == [((1, 2), 1), ((3, 4), 1)]
    radix.unlock(whole.node)
    assert [node.locks for node in radix.nodes()] == [0, 0]


def test_refusals_leave_everything_as_it_was() -> None:
    radix = empty(page_size=2)
    pages = radix.pool.allocate(3)
    for given in (pages, pages[:1]):
        assert refusal(lambda given=given: radix.insert([1, 2, 3, 4, 5], given)).kind == "radix-pages"  # type: ignore[misc]
    assert (radix.cached_pages, radix.pool.free_pages) == (0, 9)
    node = radix.insert([1, 2, 3, 4, 5], pages[:2]).node
    assert refusal(lambda: radix.unlock(node)).kind == "radix-unlock"
    assert node.locks == 0
    radix.evict(2)
    assert refusal(lambda: radix.lock(node)).kind == "radix-evicted"


def test_a_scheme_with_an_exception_outside_its_pages_is_refused() -> None:
    error = refusal(lambda: RadixCache(PagePool(kv_scheme("a4_8"), SHAPE, 4, 2)))
    assert error.kind == "kv-shared"
    assert "a4_8 cannot share pages" in str(error)
